// The body of a job: its bytes, and the forms in which a person reads them.

/** How many bytes are shown in hex. */
const MOST_HEX = 65536;

export const bytesOf = (job) => fromBase64(job.body64);
const fromBase64 = (text) => Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0));
/** A text with a character for each byte. */
const letters = (bytes) => bytes.reduce((text, byte) => text + String.fromCharCode(byte), "");

/** The text in these bytes; null if they are not text. */
export function textOf(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return /[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** The forms of a body that make sense, the best first: their names and texts. */
export function formsOf(bytes) {
  const text = textOf(bytes);
  const php = fromPhp(bytes);
  const inner = text === null ? null : packed(text.trim());
  const plain = [["Text", new TextDecoder().decode(bytes)], ["Hex", hex(bytes)]];
  return [
    ["JSON", text === null ? null : indented(text)],
    ["PHP", php],
    ...(text === null ? plain.reverse() : plain),
    ["Base64", inner && (indented(inner) ?? inner)],
  ].filter(([, shown]) => shown !== null);
}

/** The text that was packed in base64; null if none was. */
function packed(text) {
  if (text.length < 8 || text.length % 4 || !/^[\w+/-]+={0,2}$/.test(text)) return null;
  try {
    return textOf(fromBase64(text.replaceAll("-", "+").replaceAll("_", "/")));
  } catch {
    return null;
  }
}

/**
 * JSON with indentation; null if this is no object or array of JSON. Only the
 * white space changes: numbers keep all their digits, and keys their order.
 */
export function indented(text) {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g);
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  return tokens
    .map((token, index) => {
      if (token === ":") return ": ";
      if (token === ",") return `,${line()}`;
      if (token === "{" || token === "[") {
        depth += 1;
        return /[}\]]/.test(tokens[index + 1]) ? token : token + line();
      }
      if (token === "}" || token === "]") {
        depth -= 1;
        return /[{[]/.test(tokens[index - 1]) ? token : line() + token;
      }
      return token;
    })
    .join("");
}

/** What PHP has serialised, as JSON; null if this is none, or a single value. */
function fromPhp(bytes) {
  if (!/^[aO]:\d/.test(String.fromCharCode(...bytes.subarray(0, 3)))) return null;
  const text = letters(bytes);
  let at = 0;
  const take = (end) => {
    const to = text.indexOf(end, at);
    if (to < 0) throw new Error();
    const taken = text.slice(at, to);
    at = to + end.length;
    return taken;
  };
  const expect = (part) => {
    if (take(part)) throw new Error();
  };
  const quoted = () => {
    const length = Number(take(":"));
    expect('"');
    at += length;
    expect('"');
    return JSON.stringify(new TextDecoder().decode(bytes.subarray(at - 1 - length, at - 1)));
  };
  const value = () => {
    const kind = text.slice(at, (at += 2));
    if (kind === "N;") return "null";
    if (kind === "b:") return String(take(";") === "1");
    if (kind === "i:" || kind === "d:") return take(";").replace(/^-?(INF|NAN)$/, '"$&"');
    if (kind === "s:") {
      const string = quoted();
      expect(";");
      return string;
    }
    if (kind === "O:") {
      quoted();
      expect(":");
    } else if (kind !== "a:") throw new Error();
    const pairs = [];
    for (let left = Number(take(":{")); left > 0; left -= 1) pairs.push(`${value().replace(/^-?\d+$/, '"$&"')}:${value()}`);
    expect("}");
    return `{${pairs}}`;
  };
  try {
    const json = value();
    return at === text.length ? indented(json) : null;
  } catch {
    return null;
  }
}

/** Lines of 16 bytes: where they begin, the bytes, and their characters. */
function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, MOST_HEX); at += 16) {
    const some = [...bytes.subarray(at, at + 16)];
    const numbers = some.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const shown = some.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${numbers.padEnd(47)}  ${shown}`);
  }
  if (bytes.length > MOST_HEX) lines.push("…");
  return lines.join("\n");
}
