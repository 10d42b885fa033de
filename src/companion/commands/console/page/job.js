// A job: its statistics, and its body in several forms.

import { formsOf } from "./body.js";
import { fill, linkTo, list, place, setText } from "./console.js";
import { serverOf } from "./tubes.js";
import { count, size, span } from "./words.js";

/** What was known last, for those who change it. */
export let shown = null;

export const bytesOf = (job) => Uint8Array.fromBase64(job.body64);

export async function job(section, ask) {
  serverOf(await ask("known"));
  const job = await ask("job");
  shown = job;
  const { id, state, tube, age, tries, priority, ttr, left, facts } = job;
  section.dataset.state = state;
  const hasLeft = state === "delayed" || state === "reserved";
  const bytes = bytesOf(job);
  fill(section, {
    name: `Job ${id}`, state, tube,
    age: span(age), tries: count(tries), priority: String(priority), ttr: span(ttr), left: hasLeft ? span(left) : null, size: size(job.size),
    note: bytes.length < job.size ? `the first ${size(bytes.length)} of ${size(job.size)}` : job.size ? size(job.size) : "empty",
  });
  section.querySelector(".badge").className = `badge plain ${state}`;
  section.querySelector("[data-is=tube]").href = linkTo({ server: place.server, tube });
  list(section.querySelector(".facts"), "fact", facts.map(([key, value]) => ({ key, value })), (pair, { key, value }) => {
    setText(pair.children[0], key);
    setText(pair.children[1], value);
  });
  // The body of a job never changes.
  const forms = section.querySelector(".forms");
  if (forms.childElementCount) return;
  list(forms, "form", formsOf(bytes).map(([key, text]) => ({ key, text })), (form, { key, text }) => {
    setText(form.children[0], key);
    setText(form.children[1], text);
  });
  forms.firstElementChild.open = true;
}
