// Asks the console that serves this page, shows the answers in the elements of
// index.html, and does so again. What is wanted is in the address, and nowhere else:
// links and forms change it. Whatever comes from a server becomes text here and never
// markup.

const INTERVAL = 1000;
/** Answers that took long are shown for as many times as long before the next question. */
const RESPITE = 4;
// The token came after the # of the first address. It stays in this tab: a cookie would
// be sent to every port of that machine.
const TOKEN = "beanpole-token";
const given = location.hash.match(/^#token=(.+)$/);
if (given) {
  sessionStorage.setItem(TOKEN, given[1]);
  history.replaceState(null, "", location.pathname + location.search);
}

/** What the address says about this. */
export const wanted = (name) => new URLSearchParams(location.search).get(name) ?? "";

/** The address that differs in these parameters; what is empty is left out. */
export function link(changes) {
  const parameters = new URLSearchParams(location.search);
  for (const [name, value] of new URLSearchParams(changes)) parameters.set(name, value);
  const query = new URLSearchParams([...parameters].filter(([, value]) => value));
  return `?${query}`;
}

/** The address of something else. */
export const linkTo = (place) => `?${new URLSearchParams(place)}`;

/** What this document is about. Another server, tube or job has a document of its own. */
const placeOf = (search) => ["server", "tube", "job"].map((name) => new URLSearchParams(search).get(name) ?? "");
const [server, tube, job] = placeOf(location.search);
export const place = { server, tube, job };

/** Why there is no answer. */
const refusal = (status, message) => Object.assign(new Error(message), { status });

async function request(path, options, read) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let answer;
  try {
    answer = await fetch(`api/${path}`, { ...options, headers });
    if (answer.ok) return await read(answer);
  } catch {
    throw refusal(0, options.signal.aborted ? "Stopped." : "The console does not answer.");
  }
  throw refusal(answer.status, (await answer.text()).trim());
}

/** Asks for what the address says, and these parameters. */
export async function ask(what, more = {}, stop = new AbortController()) {
  const late = setTimeout(() => stop.abort(), 20000);
  return request(what + link(more), { signal: stop.signal }, (answer) => answer.json()).finally(() => clearTimeout(late));
}

/**
 * Changes something, and resolves to what was done, however long it takes. The body is
 * that of a job, or the ids of jobs; everything else is in the parameters. Each line of the
 * answer but the last one says how many jobs are done.
 */
export async function change(parameters, body, signal, hear) {
  const path = `change${linkTo({ server, tube, ...parameters })}`;
  const { failure, ...done } = await request(path, { method: "POST", body, signal }, async (answer) => {
    const [reader, decoder, lines] = [answer.body.getReader(), new TextDecoder(), [""]];
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      lines.push(...(lines.pop() + decoder.decode(part.value, { stream: true })).split("\n"));
      if (lines.length > 1) hear(JSON.parse(lines.at(-2)).done);
    }
    return JSON.parse(lines.at(-1));
  });
  if (failure) throw refusal(502, failure);
  return done;
}

/** The parts of this document: a section each, and what shows it. */
const parts = [];
let running = new AbortController();
let timer = 0;
/** What a person wants of this page, kept in the browser. */
const settings = document.querySelectorAll("#settings input");
for (const one of settings) one.checked = localStorage.getItem(`beanpole-${one.name}`) !== "off";
export const wants = (name) => [...settings].some((one) => one.name === name && one.checked);

/** Begins to show these. */
export function begin(all) {
  for (const [name, show] of Object.entries(all)) parts.push([document.getElementById(name), show]);
  refresh();
}

/** Asks for everything that is shown, shows it, and does so again later. */
export async function refresh() {
  clearTimeout(timer);
  running.abort();
  const { signal } = (running = new AbortController());
  const [begun, answers] = [performance.now(), {}];
  // All parts share an answer.
  const asks = (what) => (answers[what] ??= ask(what, {}, running));
  const update = ([section, show]) => {
    section.ariaBusy = "true";
    const done = (failure) => {
      if (signal.aborted) return;
      section.ariaBusy = "false";
      section.classList.toggle("failed", Boolean(failure));
      return failure;
    };
    return show(section, asks).then(() => done(), done);
  };
  followAddress();
  const failures = await Promise.all(parts.map(update));
  // If it was aborted, the next question is on its way.
  if (signal.aborted) return;
  tell(failures.filter(Boolean));
  const rest = Math.max(INTERVAL, (performance.now() - begun) * RESPITE);
  if (!document.hidden && wants("renews")) timer = setTimeout(refresh, rest);
}

/** Says why something is not shown. */
function tell(failures) {
  const locked = failures.some(({ status }) => status === 401);
  const form = document.getElementById("token");
  if (locked && form.hidden) setTimeout(() => form.elements.token.focus());
  form.hidden = !locked;
  if (locked) say("locked", true);
  else if (failures.some(({ status }) => status === 0)) say("console is gone, trying again", true);
  const failure = failures.find(({ status }) => status !== 0 && status !== 401);
  const alarm = document.getElementById("alarm");
  alarm.hidden = !failure;
  setText(alarm, failure?.message ?? "");
}

/** Says in a few words how things are. */
export function say(text, isBad) {
  const state = document.getElementById("state");
  state.className = isBad ? "bad" : wants("renews") ? "" : "old";
  setText(state, wants("renews") ? text : `at ${new Date().toLocaleTimeString()}: ${text}`);
}

/** Lets links and fields say what the address says. */
function followAddress() {
  for (const one of document.querySelectorAll("[data-go]")) {
    const changes = [...new URLSearchParams(one.dataset.go)];
    one.href = link(changes);
    one.ariaCurrent = String(changes.every(([name, value]) => name === "from" || wanted(name) === value));
  }
  for (const head of document.querySelectorAll("[data-sort]")) {
    const { sort } = head.dataset;
    const [isSorted, isTurned] = [wanted("sort") === sort, wanted("turned") !== ""];
    head.firstElementChild.href = link({ sort, turned: isSorted && !isTurned ? 1 : "", from: "" });
    // By figures, the largest come first.
    const order = isTurned === (sort === "name") ? "descending" : "ascending";
    head.ariaSort = isSorted ? order : "none";
  }
  for (const field of document.querySelectorAll("section form input")) {
    if (field !== document.activeElement) field.value = wanted(field.name);
  }
}

/** Sets the text of an element, if it is another one. */
function setText(into, text) {
  if (into.textContent !== String(text)) into.textContent = text;
}

/**
 * Shows an element with these texts in the elements that have their names. What is empty
 * is hidden, and a dash stands for what nobody knows.
 */
export function fill(root, texts) {
  root.hidden = false;
  for (const one of root.querySelectorAll("[data-is]")) {
    const text = texts[one.dataset.is];
    if (text === undefined) continue;
    setText(one, text ?? "–");
    one.hidden = text === "";
  }
}

/**
 * Shows items, each with its key, by copies of a template. The copy of an item stays the
 * same as long as the item is there, so that it keeps the focus, and a click that has
 * begun ends on it.
 */
export function list(parent, template, items, keyOf, show) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const children = items.map((item) => {
    const key = keyOf(item);
    const child = known.get(key) ?? document.getElementById(template).content.firstElementChild.cloneNode(true);
    child.dataset.key = key;
    show(child, item);
    return child;
  });
  const isSame = children.length === parent.children.length && children.every((child, at) => child === parent.children[at]);
  if (isSame) return;
  const focused = document.activeElement;
  parent.replaceChildren(...children);
  if (parent.contains(focused)) focused.focus({ preventScroll: true });
}

/** Shows names with their values in a list of such pairs. */
export const pairs = (into, all) => list(into, "pair", all, ([key]) => key, (pair, [key, value]) => fill(pair, { key, value }));

document.getElementById("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, event.target.elements.token.value);
  refresh();
});
document.getElementById("settings").addEventListener("change", ({ target }) => {
  localStorage.setItem(`beanpole-${target.name}`, target.checked ? "on" : "off");
  refresh();
});
// Where the browser can do it, another address of the same place needs no new document.
window.navigation?.addEventListener("navigate", (event) => {
  const { pathname, search } = new URL(event.destination.url);
  const isHere = pathname === location.pathname && String(placeOf(search)) === String(placeOf(location.search));
  if (!isHere || !event.canIntercept || event.hashChange || event.navigationType === "reload") return;
  event.intercept({ handler: () => refresh(), focusReset: "manual", scroll: "manual" });
});
// A page that nobody sees asks nothing.
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
