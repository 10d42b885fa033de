// Buttons that change something, and their questions. What destroys something or acts on
// many jobs asks first, and each action reports what it did.

import { textOf } from "./body.js";
import { ask, change, fill, linkTo, place, refresh, wants } from "./console.js";
import { bytesOf, shown } from "./job.js";
import { meant } from "./tube.js";
import { count, span } from "./words.js";

const GONE = "They are deleted and cannot be brought back.";
const FREE = ["buried", "delayed", "ready"];
const jobsIn = (row, state) => (state ? row[state] : FREE.reduce((sum, one) => sum + row[one], 0));

/**
 * The questions, by the names of the buttons: the title, the verb, perhaps what it is
 * about, the values of fields, and more parameters. Other buttons ask nothing.
 */
const TUBE = {
  put: () => ({ title: `Put a job on ${place.server}`, verb: "Put", values: { tube: place.tube } }),
  pause: () => ({ title: `Pause ${place.tube}`, about: "Until the pause is over, no worker gets a job of this tube." }),
  resume: () => ({ more: { do: "pause", time: 0 } }),
  kick: (row) => ({
    title: `Kick jobs of ${place.tube}`,
    about: `A kick makes ${row.buried ? "buried" : "delayed"} jobs ready: ${count(row.buried || row.delayed)} of ${place.tube} are ${row.buried ? "buried" : "delayed"}.`,
    values: { count: Math.max(1, row.buried || row.delayed) },
  }),
  move: (row) => ({ title: `Move jobs of ${place.tube}`, row }),
  clear: (row) => ({ title: `Delete jobs of ${place.tube}?`, about: GONE, verb: "Delete", row }),
};
const JOB = {
  delete: ({ tube, age }) => ({ title: `Delete job ${place.job}?`, about: `It was put into ${tube} ${span(age)} ago, and cannot be brought back.` }),
  release: ({ priority }) => ({ title: `Release job ${place.job}`, values: { priority } }),
  edit: (job) => ({
    title: `Edit job ${place.job}`,
    about: "It is put again as a new job, with a new id, and this one is deleted.",
    verb: "Replace",
    values: { tube: job.tube, priority: job.priority, delay: job.state === "delayed" ? job.left : 0, ttr: job.ttr, body: editable(job) },
    more: { job: place.job },
  }),
};

/** The body of a job, if a text field can have it: that changes the ends of lines. */
function editable(job) {
  const bytes = bytesOf(job);
  const text = bytes.length < job.size ? null : textOf(bytes);
  if (text === null || text.includes("\r")) throw new Error("This body is no text, or too large: “beanpole edit” can edit it.");
  return text;
}

/** What is asked before the action of this button. */
async function questionOf({ dataset: { do: name }, value }, verb) {
  if (name === "close") {
    const about = "Jobs that it has reserved are ready again, and one may be done twice. Its program may connect again.";
    return { title: `Close connection ${value}?`, about, more: { connection: value } };
  }
  if (place.job) return { ids: place.job, ...JOB[name]?.(shown) };
  if (TUBE[name]) return TUBE[name]((await ask("known")).tube?.row);
  const { ids, which } = await meant();
  if (!ids.length) throw new Error("No job has this in its body.");
  return { ids: ids.join(" "), title: `${verb} ${which}?`, about: name === "delete" ? GONE : "" };
}

const dialog = document.getElementById("dialog");
const form = dialog.firstElementChild;
/** What to do with the form when it is sent. */
let send = null;

addEventListener("click", async ({ target }) => {
  const button = target.closest?.("[data-do]");
  if (!button) return;
  const { textContent: verb, dataset } = button;
  try {
    const question = { verb, ...(await questionOf(button, verb)) };
    if (question.title) open(dataset.do, question);
    else await act({ do: dataset.do, ...question.more }, question.ids);
  } catch (error) {
    notify(error.message);
  }
});

/** Opens the dialog with the fields of this question. */
function open(name, { title, about = "", verb, values = {}, row, more, ids }) {
  if (row && !jobsIn(row)) throw new Error(`${place.tube} has no jobs but reserved ones.`);
  form.reset();
  for (const label of form.querySelectorAll("label")) {
    label.hidden = label.control.disabled = !label.dataset.for.split(" ").includes(name);
  }
  fill(form, { title, about, verb, error: "", progress: "", cancel: "Cancel" });
  form.querySelector(".main").classList.toggle("danger", ["Delete", "Close"].includes(verb));
  for (const [field, value] of Object.entries(values)) form.elements[field].value = value;
  if (row) {
    const states = FREE.filter((state) => row[state]).map((state) => new Option(`${count(row[state])} ${state}`, state));
    form.elements.state.replaceChildren(new Option(`all ${count(jobsIn(row))} that are not reserved`, ""), ...states);
  }
  send = async ({ body, ...fields }) => {
    const counted = row && { count: jobsIn(row, fields.state) };
    await act({ do: name, ...more, ...counted, ...fields }, body?.replaceAll("\r\n", "\n") ?? ids);
  };
  dialog.showModal();
}

/** Ends the change that runs, if one does. */
let running = null;
dialog.addEventListener("close", () => running?.abort());
addEventListener("beforeunload", (event) => running && event.preventDefault());

form.addEventListener("submit", async (event) => {
  // The browser closes the dialog.
  if (event.submitter.value === "cancel") return;
  event.preventDefault();
  event.submitter.disabled = true;
  try {
    await send(Object.fromEntries(new FormData(form)));
    dialog.close();
  } catch (failure) {
    fill(form, { error: failure.message });
  }
  event.submitter.disabled = false;
});

/** Does it, says what was done, and shows how things are now. */
async function act(parameters, body) {
  let heard = 0;
  const stop = (running = new AbortController());
  fill(form, { cancel: "Stop" });
  const hear = (done) => fill(form, { progress: `${count((heard = done))} jobs so far …` });
  try {
    const { said, job } = await change(parameters, body, stop.signal, hear);
    running = null;
    // The old job is gone.
    if (parameters.do === "edit") return location.assign(linkTo({ server: place.server, job }));
    notify(said, job);
  } catch (failure) {
    if (!stop.signal.aborted) throw failure;
    notify(`Stopped: ${count(heard)} jobs are done, or a few more.`);
  } finally {
    running = null;
    fill(form, { cancel: "Cancel", progress: "" });
  }
  for (const box of document.querySelectorAll("#jobs :checked")) box.checked = false;
  refresh();
}

/** Says in a corner of the page what was done to a job, or why not. */
function notify(text, job = null) {
  const notice = document.createElement("p");
  notice.textContent = text;
  if (job) notice.append(" ", Object.assign(document.createElement("a"), { href: linkTo({ server: place.server, job }), textContent: "Show it" }));
  document.getElementById("notices").append(notice);
  setTimeout(() => notice.remove(), 10000);
}

addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  const search = document.querySelector("section:not([hidden]) [type=search]");
  if (event.key !== "/" || !wants("slash") || isTyping || !search || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  search.focus();
});
