// Shows the view that the address names, and keeps it up to date: it asks the
// console again and again, and says so if there is no answer.

import { ask, setToken } from "./console.js";
import { element } from "./elements.js";
import { JobView } from "./job.js";
import { TubeView } from "./tube.js";
import { TubesView } from "./tubes.js";

const INTERVAL = 1000;
const content = document.getElementById("content");
const state = document.getElementById("state");
const path = document.getElementById("path");

/** What all views know: the servers, and whether changes are allowed. */
const world = { servers: [], changes: false, grave: 0 };
let view = null;
let timer = 0;

/** The parts of the address after the #. */
const parts = () => location.hash.replace(/^#\/?/, "").split("?")[0].split("/").filter(Boolean).map(decode);

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The index of the server that an address names; -1 if there is none. */
const indexOf = (name) => world.servers.findIndex((server) => server.name === name);

function open() {
  const [server, kind, name] = parts();
  const index = indexOf(server);
  if (!server) view = new TubesView(world);
  else if (index < 0) view = new Missing(`There is no server '${server}' here.`);
  else if (kind === "tube" && name) view = new TubeView(world, index, name);
  else if (kind === "job" && name) view = new JobView(world, index, name);
  else view = new TubesView(world, index);
  const steps = server ? [element("span", {}, server)] : [];
  if (kind === "tube") steps.push(element("span", {}, name ?? ""));
  if (kind === "job") steps.push(element("span", {}, `job ${name}`));
  path.replaceChildren(...steps);
  document.title = [name, server, "beanpole"].filter(Boolean).join(" · ");
  content.replaceChildren(...view.sheets);
  window.scrollTo(0, 0);
}

/** Asks for everything that is shown, and does so again later. */
async function refresh() {
  clearTimeout(timer);
  const shown = view;
  try {
    const overview = await ask("servers");
    const isFirst = !world.servers.length;
    Object.assign(world, overview);
    if (isFirst) open();
    tell();
    if (shown === view || isFirst) await view.refresh();
  } catch (error) {
    if (error.status === 401) return askForToken();
    if (error.status === 0) say(true, "console is gone, trying again");
    else view?.fail?.(error.message);
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, INTERVAL);
}

/** Says in a sentence how the servers and their tubes are. */
function tell() {
  const { servers, grave } = world;
  const lost = servers.filter((server) => server.lost);
  const refusing = servers.filter((server) => server.refusal);
  if (lost.length) say(true, lost.length === 1 ? `${lost[0].name} does not answer` : `${lost.length} servers do not answer`);
  else if (refusing.length) say(true, `${refusing[0].name} takes no new jobs: ${refusing[0].refusal}`);
  else say(false, grave ? `live, ${grave === 1 ? "1 tube has" : `${grave} tubes have`} trouble` : "live");
}

function say(isLost, text) {
  if (state.textContent === text) return;
  state.className = isLost ? "lost" : "";
  state.textContent = text;
}

class Missing {
  constructor(text) {
    this.sheets = [element("p", { class: "sheet empty" }, text)];
  }
  async refresh() {}
}

function askForToken() {
  const input = element("input", { type: "password", autocomplete: "off", required: true });
  const form = element(
    "form",
    { class: "sheet pad" },
    element("h1", {}, "This console asks for a token"),
    element("label", {}, element("span", {}, "It was printed when the console was started, or is in a file."), input),
    element("button", { class: "plain main" }, "Enter"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(input.value);
    world.servers = [];
    refresh();
  });
  content.replaceChildren(form);
  say(true, "locked");
  input.focus();
}

addEventListener("hashchange", () => {
  if (!world.servers.length) return;
  open();
  content.focus({ preventScroll: true });
  refresh();
});
// A page that nobody sees asks nothing.
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
addEventListener("refresh", refresh);
addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("input[type=search]");
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
  }
});

refresh();
