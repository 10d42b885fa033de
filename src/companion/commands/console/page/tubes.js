// The first view: how everything is, the servers, and the table of their tubes.

import { fill, link, linkTo, list, pairs, place, say, wanted } from "./console.js";
import { drawSmall } from "./curves.js";
import { count, rate, short, span } from "./words.js";

/** How many tubes are in one answer. */
const PAGE = 100;
const STATES = ["ready", "reserved", "delayed", "buried"];

/** The line at the top: where this is, how the servers are, and what may be done. */
export async function top(header, ask) {
  const { servers, grave, changes } = await ask("known");
  const name = place.tube || (place.job && `job ${place.job}`);
  fill(header, { server: place.server, name });
  header.querySelector("nav a").href = linkTo({ server: place.server });
  document.title = [name, place.server, "beanpole"].filter(Boolean).join(" · ");
  document.body.classList.toggle("changes", changes);
  const lost = servers.filter((server) => server.lost);
  const refusing = servers.find((server) => server.refusal);
  if (lost.length) say(lost.length === 1 ? `${lost[0].name} does not answer` : `${lost.length} servers do not answer`, true);
  else if (refusing) say(`${refusing.name} takes no new jobs: ${refusing.refusal}`, true);
  else say(grave ? `live, ${grave === 1 ? "1 tube has" : `${grave} tubes have`} trouble` : "live");
}

/** The server that this document is about. Throws an error if there is none, or no answer from it. */
export function serverOf({ servers }) {
  const server = servers.find(({ name }) => name === place.server);
  if (!server) throw new Error(`There is no server “${place.server}” here.`);
  if (server.lost) throw new Error(`No answer from ${place.server}: ${server.lost}.`);
  return server;
}

export async function servers(section, ask) {
  const known = await ask("known");
  const shown = known.servers.filter(({ name }) => !place.server || name === place.server);
  section.hidden = false;
  list(section.querySelector("ul"), "card", shown, ({ name }) => name, showCard);
  if (place.server) serverOf(known);
}

function showCard(card, server) {
  const { name, address, version, known, lost, refusal, jobs, rates, colour } = server;
  card.style.borderInlineStart = colour ? `6px solid ${colour}` : "";
  card.classList.toggle("refusing", Boolean(refusal));
  card.classList.toggle("lost", Boolean(lost));
  card.classList.toggle("unknown", !known);
  card.querySelector("h2 a").href = linkTo({ server: name });
  const [put, reserves, deleted, timeouts] = rates.map(rate);
  const [all, puts, works, waits] = server.connections.map(count);
  fill(card, {
    name,
    refusal: refusal ? `takes no new jobs: ${refusal}` : "",
    lost: lost ? `No answer: ${lost}.` : "",
    asking: known || lost ? "" : "Asking …",
    rates: `A second: ${put} put, ${reserves} reserved, ${deleted} deleted, ${timeouts} timed out`,
    connections: `Connections: ${all}; ${puts} put, ${works} work, ${waits} wait`,
    facts: [name !== address && address, version && `version ${version}`, `up ${span(server.uptime)}`].filter(Boolean).join(" · "),
  });
  pairs(card.querySelector("dl"), STATES.map((state, at) => [state, short(jobs[at])]));
  drawSmall(card.querySelector("svg"), server.curve);
}

export async function clients(section, ask) {
  const { text, rows, more } = wanted("clients") ? await ask("clients") : { text: "", rows: [], more: "" };
  fill(section, { text, more });
  section.querySelector("pre").hidden = !text;
  list(section.querySelector(".rows"), "client", rows, ({ id }) => id, (one, { id, line }) => {
    fill(one, { line });
    Object.assign(one.querySelector("button"), { value: id, ariaLabel: `Close connection ${id}` });
  });
}

export async function tubes(section, ask) {
  const { rows, found, total } = (await ask("known")).table;
  const [search, from] = [wanted("search"), Number(wanted("from"))];
  list(section.querySelector("tbody"), "tube-row", rows, (row) => `${row.server}/${row.name}`, showRow);
  fill(section, {
    count: search || wanted("trouble") ? `${count(found)} of ${count(total)}` : count(total),
    empty: rows.length ? "" : search ? `No tube’s name fits “${search}”.` : wanted("trouble") ? "No tube has trouble." : "There are no tubes.",
    note: found > PAGE ? `${count(from + 1)} to ${count(from + rows.length)} of ${count(found)}` : "",
  });
  turn(section, "previous", from > 0 && { from: Math.max(0, from - PAGE) || "" });
  turn(section, "next", from + PAGE < found && { from: from + PAGE });
}

/** Lets a link lead to another page of a table, if there is one. */
export function turn(section, which, changes) {
  const one = section.querySelector(`[data-page=${which}]`);
  one.hidden = !changes;
  if (changes) one.href = link(changes);
}

/** The figures of a tube as texts, by their names. */
export function figuresOf(row) {
  const counts = [...STATES, "watching", "waiting"].map((name) => [name, count(row[name])]);
  const rates = { "put/s": rate(row.put), "deleted/s": rate(row.delete), "timeouts/s": rate(row.timeouts) };
  return { ...Object.fromEntries(counts), ...rates, age: span(row.age) };
}

function showRow(line, row) {
  const { name, server, trouble, grave, curve } = row;
  fill(line, { ...figuresOf(row), name, server: place.server ? "" : server, trouble: trouble ?? "" });
  for (const cell of line.querySelectorAll("td")) cell.classList.toggle("zero", /^[0–]$/.test(cell.textContent));
  const link = line.querySelector("a");
  Object.assign(link, { href: linkTo({ server, tube: name }), title: name });
  line.querySelector(".badge").classList.toggle("grave", grave);
  drawSmall(line.querySelector("svg"), curve);
}

// Enter opens the first tube that is found; the address follows what is typed.
const search = document.querySelector("#tubes form");
search.addEventListener("submit", (event) => {
  event.preventDefault();
  document.querySelector("#tubes tbody a")?.click();
});
search.addEventListener("input", ({ target }) => history.replaceState(null, "", link({ search: target.value.trim(), from: "" }) ));
