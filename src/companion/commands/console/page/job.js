// The view of one job: its statistics, and its body in one of three forms.

import { jobActions } from "./changes.js";
import { ask } from "./console.js";
import { count, element, figures, setText, size, span, tabs, tubeLink } from "./elements.js";

/** How many bytes are shown in hex. */
const MOST_HEX = 65536;

export class JobView {
  constructor(world, server, id) {
    Object.assign(this, { world, server, id });
    this.badge = element("span", { class: "badge plain", hidden: true });
    this.actions = element("div", { class: "actions" });
    this.where = element("p", { class: "faint", role: "status" }, "Asking …");
    this.figures = element("div", { class: "sheet pad", hidden: true });
    this.text = element("pre", { class: "body", tabindex: 0, "aria-label": "Body" });
    this.bodyHead = element("div", { class: "bar" });
    this.facts = element("dl", { class: "facts" });
    this.bodySheet = element("section", { class: "sheet", "aria-label": "Body of the job", hidden: true }, this.bodyHead, this.text);
    this.factsSheet = element("section", { class: "sheet pad", "aria-label": "Statistics", hidden: true }, element("h2", {}, "Statistics"), this.facts);
    const head = element("div", { class: "head" }, element("h1", {}, `Job ${id}`), this.badge, this.actions);
    this.sheets = [head, this.where, this.figures, this.bodySheet, this.factsSheet];
  }

  async refresh() {
    let job;
    try {
      job = await ask("job", { server: this.server, id: this.id });
    } catch (error) {
      if (error.status !== 404) throw error;
      this.fail("There is no such job, or it has been deleted.");
      this.actions.replaceChildren();
      return;
    }
    const isFirst = !this.job;
    const isOther = this.job?.state !== job.state;
    this.job = job;
    this.tube = job.tube;
    this.show(job, isFirst);
    if (this.world.changes && isOther) this.actions.replaceChildren(...jobActions(this, job));
  }

  show(job, isFirst) {
    const server = this.world.servers[this.server].name;
    this.where.className = "faint";
    this.where.replaceChildren("in tube ", element("a", { href: tubeLink(server, job.tube) }, job.tube), ` of ${server}`);
    this.badge.hidden = false;
    this.badge.className = `badge plain ${job.state}`;
    setText(this.badge, job.state);
    const left = { delayed: "delay left", reserved: "time to run left" }[job.state];
    const some = [["age", span(job.age)], ["tries", count(job.tries)], ["priority", job.priority], ["time to run", span(job.ttr)]];
    if (left) some.push([left, span(job.left)]);
    this.figures.replaceChildren(figures([...some, ["size", size(job.size)]]));
    const fact = ([key, value]) => element("div", {}, element("dt", {}, key), element("dd", {}, value));
    this.facts.replaceChildren(...job.facts.map(fact));
    for (const sheet of [this.figures, this.bodySheet, this.factsSheet]) sheet.hidden = false;
    if (isFirst) this.showBody(bytesOf(job), job.size);
  }

  /** The body of a job never changes. */
  showBody(bytes, whole) {
    const text = textOf(bytes);
    const json = text === null ? null : indented(text);
    const forms = { text: () => new TextDecoder().decode(bytes), hex: () => hex(bytes) };
    const choices = [["text", "Text"], ["hex", "Hex"]];
    if (json !== null) {
      forms.json = () => json;
      choices.unshift(["json", "JSON"]);
    }
    const chosen = json !== null ? "json" : text !== null ? "text" : "hex";
    const show = (form) => setText(this.text, forms[form]());
    const note = bytes.length < whole ? `the first ${size(bytes.length)} of ${size(whole)}` : whole ? size(whole) : "empty";
    this.bodyHead.replaceChildren(
      element("h2", {}, "Body"),
      element("span", { class: "faint" }, note),
      tabs("Form of the body", choices, chosen, show),
    );
    show(chosen);
  }

  fail(message) {
    this.where.className = "alarm";
    setText(this.where, message);
  }
}

export const bytesOf = (job) => Uint8Array.from(atob(job.body64), (byte) => byte.charCodeAt(0));

/** The text in these bytes; null if they are not text. */
export function textOf(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return /[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]/.test(text) ? null : text;
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

/** Lines of 16 bytes: where they begin, the bytes, and their characters. */
function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, MOST_HEX); at += 16) {
    const some = [...bytes.subarray(at, at + 16)];
    const numbers = some.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = some.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${numbers.padEnd(47)}  ${letters}`);
  }
  if (bytes.length > MOST_HEX) lines.push("…");
  return lines.join("\n");
}
