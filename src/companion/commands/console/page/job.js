// A job: its statistics, and its body in several forms.

import { formsOf, fromBase64 } from "./body.js";
import { fill, linkTo, list, pairs, place } from "./console.js";
import { serverOf } from "./tubes.js";
import { count, left, size, span } from "./words.js";

/** What was known last, for those who change it. */
export let shown = null;

export const bytesOf = (job) => fromBase64(job.body64);

export async function job(section, ask) {
  serverOf(await ask("known"));
  const job = await ask("job").catch((failure) => {
    section.classList.toggle("missing", failure.status === 404 || section.hidden);
    fill(section, { name: `Job ${place.job}` });
    throw failure;
  });
  section.classList.remove("missing");
  shown = job;
  const { id, state, tube, priority, facts } = job;
  section.dataset.state = state;
  const bytes = bytesOf(job);
  fill(section, {
    name: `Job ${id}`, state, tube,
    note: bytes.length < job.size ? `the first ${size(bytes.length)} of ${size(job.size)}` : job.size ? size(job.size) : "empty",
  });
  section.querySelector(".badge").className = `badge plain ${state}`;
  section.querySelector("[data-is=tube]").href = linkTo({ server: place.server, tube });
  const figures = { age: span(job.age), tries: count(job.tries), priority, "time to run": span(job.ttr), left: left(job), size: size(job.size) };
  pairs(section.querySelector(".figures"), Object.entries(figures));
  pairs(section.querySelector(".facts"), facts);
  // The body of a job never changes.
  const forms = section.querySelector(".forms");
  if (forms.childElementCount) return;
  list(forms, "form", formsOf(bytes), ([name]) => name, (one, [form, text]) => fill(one, { form, text }));
  forms.firstElementChild.open = true;
}
