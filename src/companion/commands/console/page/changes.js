// Buttons that change something, and their questions. What destroys something asks
// first, and each action reports what it did.

import { bytesOf, textOf } from "./body.js";
import { change } from "./console.js";
import { button, count, element, notify, span } from "./elements.js";

/** The buttons for a tube; `row` is null if the tube does not exist. */
export function tubeActions(view, row) {
  const { server, tube } = view;
  const put = button("Put a job", () => askToPut(view, { tube, priority: 1024, delay: 0, ttr: 60 }, new Uint8Array()));
  if (!row) return [put];
  const pause = row.pause > 0
    ? button("Resume", () => act({ do: "pause", server, tube, time: "0" }))
    : button("Pause", () => askToPause(view));
  return [put, button("Kick", () => askToKick(view)), pause, button("Move", () => askToMove(view)), button("Clear", () => (view.wanted.text ? view.actOnMany("delete") : askToClear(view)), "danger")];
}

/** The buttons for a job: what the protocol allows in its state. */
export function jobActions(view, job) {
  const { server } = view;
  const { id, state } = job;
  const again = button("Edit and put again", () => askToPutAgain(view, job));
  // Only the connection that has reserved a job may act on it.
  if (state === "reserved") return [again];
  const kick = button("Kick", () => act({ do: "kick-job", server, body: id }));
  const bury = button("Bury", () => act({ do: "bury", server, body: id }));
  const release = button("Release", () => askToRelease(view, job));
  const remove = button("Delete", () => askToDelete(view, job), "danger");
  return [again, ...(state === "ready" ? [] : [kick]), ...(state === "buried" ? [] : [bury]), release, remove];
}

/** Does it, says what was done, and shows how things are now. */
async function act(request) {
  try {
    notify(await change(request));
  } catch (error) {
    notify(error.message, true);
  }
  dispatchEvent(new Event("refresh"));
}

/** A field of a form: its name, its title, and the attributes of its input. */
function field(name, title, attributes) {
  const input = element(attributes.rows ? "textarea" : "input", { name, spellcheck: "false", autocomplete: "off", ...attributes });
  if (attributes.value != null) input.value = attributes.value;
  return element("label", {}, element("span", {}, title), input);
}

const number = (name, title, value, least = 0) => field(name, title, { type: "number", min: least, max: 4294967295, required: true, value });

/**
 * Asks in a dialog. `requestOf` makes a request from the values of the fields, or
 * throws an error that says what is wrong with them.
 */
function askFor(title, parts, verb, requestOf, isDanger = false) {
  const error = element("p", { class: "error", role: "alert" });
  const submit = element("button", { class: `plain main ${isDanger ? "danger" : ""}` }, verb);
  const cancel = button("Cancel", () => dialog.close());
  const form = element("form", {}, element("h2", { id: "question" }, title), ...parts, error, element("div", { class: "actions" }, cancel, submit));
  const dialog = element("dialog", { "aria-labelledby": "question", onclose: () => dialog.remove() }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      notify(await change(requestOf(Object.fromEntries(new FormData(form)))));
      dialog.close();
      dispatchEvent(new Event("refresh"));
    } catch (failure) {
      error.textContent = failure.message;
    }
    submit.disabled = false;
  });
  document.body.append(dialog);
  dialog.showModal();
  // An accidental Enter destroys nothing.
  if (isDanger) cancel.focus();
}

function askToKick({ server, tube, row }) {
  const kind = row.buried ? "buried" : "delayed";
  const about = `A kick makes ${kind} jobs ready: ${count(row[kind])} of ${tube} are ${kind}.`;
  const parts = [element("p", { class: "faint" }, about), number("count", "How many at most", Math.max(1, row[kind]), 1)];
  askFor(`Kick jobs of ${tube}`, parts, "Kick", (values) => ({ do: "kick", server, tube, ...values }));
}

function askToPause({ server, tube }) {
  const about = "Until the pause is over, no worker gets a job of this tube.";
  const parts = [element("p", { class: "faint" }, about), field("time", "For how long: 90, 30m, 2h", { required: true, value: "10m" })];
  askFor(`Pause ${tube}`, parts, "Pause", ({ time }) => ({ do: "pause", server, tube, time }));
}

const FREE = ["buried", "delayed", "ready"];

/** A choice of the states in which there are jobs. */
function states(row) {
  const some = FREE.filter((state) => row[state]);
  const all = [["", `all ${count(jobsIn(row, ""))} that are not reserved`]];
  const choices = some.map((state) => [state, `${count(row[state])} ${state}`]);
  const choice = ([value, text], index) =>
    element("label", {}, element("input", { type: "radio", name: "state", value, checked: index === 0 }), ` ${text}`);
  const shown = some.length > 1 ? [...all, ...choices] : choices;
  return element("fieldset", { class: "choices", "aria-label": "Which jobs" }, ...shown.map(choice));
}

const jobsIn = (row, state) => (state ? row[state] : FREE.reduce((sum, one) => sum + row[one], 0));

function askToMove({ server, tube, row }) {
  if (!jobsIn(row, "")) return notify(`${tube} has no jobs but reserved ones.`, true);
  const to = field("to", "To which tube", { required: true, maxlength: 200 });
  const requestOf = (values) => ({ do: "move", server, tube, ...values, count: jobsIn(row, values.state) });
  askFor(`Move jobs of ${tube}`, [states(row), to], "Move", requestOf);
}

function askToClear({ server, tube, row }) {
  if (!jobsIn(row, "")) return notify(`${tube} has no jobs but reserved ones.`, true);
  const about = "They are deleted and cannot be brought back.";
  const requestOf = (values) => ({ do: "clear", server, tube, ...values, count: jobsIn(row, values.state) });
  askFor(`Delete jobs of ${tube}?`, [element("p", {}, about), states(row)], "Delete", requestOf, true);
}

function askToDelete({ server }, { id, tube, age }) {
  const about = `It was put into ${tube} ${span(age)} ago, and cannot be brought back.`;
  askFor(`Delete job ${id}?`, [element("p", {}, about)], "Delete", () => ({ do: "delete", server, body: id }), true);
}

/** What can be done to many jobs: the actions, and their names. */
export const ACTIONS = [["kick-job", "Kick"], ["bury", "Bury"], ["delete", "Delete"]];

/** Asks before it does something to these jobs; `which` says what they are. */
export function askAboutMany({ server }, ids, which, action) {
  const verb = ACTIONS.find(([name]) => name === action)[1];
  const isDanger = action === "delete";
  const about = isDanger ? [element("p", {}, "They are deleted and cannot be brought back.")] : [];
  askFor(`${verb} ${count(ids.length)} jobs ${which}?`, about, verb, () => ({ do: action, server, body: ids.join(" ") }), isDanger);
}

function askToRelease({ server }, { id, priority }) {
  const fields = element("div", { class: "fields" }, number("priority", "Priority", priority), field("delay", "Delay: 0, 30s, 10m", { required: true, value: "0" }));
  askFor(`Release job ${id}`, [fields], "Release", (values) => ({ do: "release", server, body: id, ...values }));
}

/** Puts a job like this one. */
function askToPutAgain(view, job) {
  const bytes = bytesOf(job);
  if (bytes.length < job.size) return notify("This body is too large to be edited here.", true);
  askToPut(view, { ...job, delay: 0 }, bytes);
}

function askToPut({ world, server }, { id, tube, priority, delay, ttr }, bytes) {
  const text = textOf(bytes);
  // A text field would change the ends of lines: such bodies are edited as numbers.
  const isText = text !== null && !text.includes("\r");
  const title = isText ? "Body" : "Body, as hexadecimal numbers";
  const value = isText ? text : [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const terms = element(
    "div",
    { class: "fields" },
    field("tube", "Tube", { required: true, maxlength: 200, value: tube }),
    number("priority", "Priority", priority),
    field("delay", "Delay", { required: true, value: String(delay) }),
    field("ttr", "Time to run", { required: true, value: String(ttr) }),
  );
  const requestOf = ({ body, ...values }) => {
    const edited = isText ? new TextEncoder().encode(body.replaceAll("\r\n", "\n")) : fromHex(body);
    return { do: "put", server, ...values, body: edited };
  };
  const heading = id ? `Put a job like job ${id}` : "Put a job";
  askFor(`${heading} on ${world.servers[server].name}`, [terms, field("body", title, { rows: 12, value })], "Put", requestOf);
}

function fromHex(text) {
  const digits = text.replace(/\s+/g, "");
  if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error("The body must be pairs of hexadecimal digits.");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}
