// The body of a job: its bytes, and the forms in which a person reads them. A body has
// any bytes, so what decodes it has bounds of length and depth.

/** How many characters a form has at most, and how deep what it shows may be nested. */
const LONGEST = 1 << 18;
const DEEPEST = 64;
const UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });
const STRICT = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

export const fromBase64 = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

/** The text in these bytes; null if they are not text. */
export function textOf(bytes) {
  const text = attempt(() => STRICT.decode(bytes));
  return text === null || /[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]/.test(text) ? null : text;
}

/** The forms of a body that make sense, the best first: their names and texts. */
export function formsOf(bytes) {
  const text = textOf(bytes);
  const plain = [["Text", UTF8.decode(bytes)], ["Hex", hex(bytes)]];
  const forms = text === null ? plain.reverse() : [["JSON", attempt(() => indented(text))], ...plain];
  const cut = (shown) => (shown.length > LONGEST ? `${shown.slice(0, LONGEST)} …` : shown);
  return forms.filter(([, shown]) => shown !== null).map(([name, shown]) => [name, cut(shown)]);
}

/** What this returns; null if it throws an error, since the bytes are something else. */
function attempt(decode) {
  try {
    return decode();
  } catch {
    return null;
  }
}

function check(isRight) {
  if (!isRight) throw new SyntaxError();
}

/**
 * An object or array of JSON with indentation. Only the white space changes: numbers
 * keep all their digits, and keys their order.
 */
function indented(text) {
  check(/^\s*[[{]/.test(text) && JSON.parse(text));
  let [shown, depth, before] = ["", 0, ""];
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g)) {
    const [begins, ends] = [/^[{[]$/.test(before), /^[}\]]$/.test(token)];
    depth += begins - ends;
    check(depth <= DEEPEST);
    if (before === "," || begins !== ends) shown += `\n${"  ".repeat(depth)}`;
    shown += token === ":" ? ": " : token;
    before = token;
    if (shown.length > LONGEST) break;
  }
  return shown;
}

/** Lines of 16 bytes: where they begin, the bytes, and their characters. */
function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length && lines.length < LONGEST / 64; at += 16) {
    const some = bytes.subarray(at, at + 16);
    const numbers = Array.from(some, (byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const shown = String.fromCharCode(...some).replace(/[^ -~]/g, "·");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${numbers}  ${shown}`);
  }
  if (bytes.length > lines.length * 16) lines.push("…");
  return lines.join("\n");
}
