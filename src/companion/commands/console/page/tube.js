// A tube: what is wrong with it, its figures and its jobs.

import { ask as askOnce, fill, linkTo, list, pairs, place, wanted } from "./console.js";
import { figuresOf, serverOf, turn } from "./tubes.js";
import { count, left, size, span } from "./words.js";

export async function tube(section, ask) {
  const known = await ask("known");
  const { row, gone } = known.tube ?? {};
  const isThere = Boolean(row) && !gone;
  section.classList.toggle("missing", !isThere);
  section.classList.toggle("paused", isThere && row.pause > 0);
  section.querySelector(".badge").classList.toggle("grave", Boolean(row?.grave));
  const figures = section.querySelector("dl");
  figures.hidden = !row;
  fill(section, { name: place.tube, trouble: (isThere && row.trouble) || "" });
  if (row) {
    const { age, ...others } = figuresOf(row);
    pairs(figures, Object.entries({ ...others, "put so far": count(row.puts), "next job’s age": age }));
  }
  serverOf(known);
  const none = gone ? "The tube does not exist any more." : "There is no such tube yet.";
  fill(section, { why: isThere ? (await ask("why")).why || "Nothing is in its way." : none });
}

export async function jobs(section, ask) {
  serverOf(await ask("known"));
  const { jobs, looked, next, listed } = await ask("jobs");
  const [text, state, sort] = [wanted("text"), wanted("state"), wanted("sort")];
  list(section.querySelector("tbody"), "job-row", jobs, ({ id }) => id, showJob);
  const empty = text ? "No job here has this in its body." : state ? `No job is ${state}.` : "There are no jobs.";
  const notes = [listed ? "" : "This server lists no jobs: these are the next ones and their neighbours."];
  if (text) notes.unshift(`${count(jobs.length)} found among ${count(looked)} jobs${next ? ", go on with Next" : ""}.`);
  else if (sort) notes.unshift(`The first of ${count(looked)} jobs.`);
  fill(section, { empty: jobs.length ? "" : empty, note: notes.join(" ").trim() });
  turn(section, "next", next && { from: next });
  section.querySelector(".pages a").hidden = !wanted("from");
  showMany();
}

function showJob(line, job) {
  const { id, state, priority, begins } = job;
  Object.assign(line.querySelector("input"), { value: id, ariaLabel: `Job ${id}` });
  line.querySelector("a").href = linkTo({ server: place.server, job: id });
  line.querySelector(".badge").className = `badge plain ${state}`;
  fill(line, { id, state, old: span(job.age), tries: count(job.tries), left: left(job), priority, size: size(job.size), begins });
  line.querySelector("[data-is=begins]").title = begins;
}

/** Says what may be done to many jobs: to those that are ticked, or else to all that were searched for. */
function showMany() {
  const { length } = ticked();
  document.getElementById("many").hidden = !length && !wanted("text");
  fill(document.getElementById("jobs"), { which: length ? `${count(length)} ticked:` : "All that have this in their bodies:" });
}

const boxes = () => [...document.querySelectorAll("#jobs tbody input")];
const ticked = () => boxes().filter((box) => box.checked).map((box) => box.value);

/** The ids of the jobs that are meant, and which jobs these are. */
export async function meant() {
  const ids = ticked();
  const text = wanted("text");
  const jobs = (all) => (all.length === 1 ? "1 job with" : `${count(all.length)} jobs with`);
  if (ids.length || !text) return { ids, which: `${jobs(ids)} a tick` };
  const found = await askOnce("jobs", { ids: 1, from: "" });
  return { ids: found.jobs, which: `${jobs(found.jobs)} “${text}” in the body${found.next ? ", and perhaps others later" : ""}` };
}

document.getElementById("jobs").addEventListener("change", ({ target }) => {
  if (target.id === "all") for (const box of boxes()) box.checked = target.checked;
  showMany();
});
