// The first view: the servers, and the table of their tubes.

import { ask } from "./console.js";
import { Curves, RATES, smallCurve } from "./curves.js";
import { button, count, element, figures, keep, kept, rate, setText, short, showItems, span, tubeLink } from "./elements.js";

const PAGE = 100;
const STATES = ["ready", "reserved", "delayed", "buried"];
/** The columns after the name: the key of each, its title, and what a phone says. */
const COLUMNS = [
  ["ready", "Ready"],
  ["reserved", "Reserved"],
  ["delayed", "Delayed"],
  ["buried", "Buried"],
  ["watching", "Watching"],
  ["waiting", "Waiting"],
  ["put", "Put/s"],
  ["delete", "Deleted/s"],
  ["timeouts", "Timeouts/s"],
  ["age", "Next job’s age"],
];

export class TubesView {
  wanted = { search: "", sort: "", turned: "", from: 0, ...kept() };

  /** The tubes of all servers, or of the one with this index. */
  constructor(world, server = null) {
    this.world = world;
    this.server = server;
    this.servers = element("ul", { class: "servers", "aria-label": "Servers" });
    this.sheets = [element("h1", { class: "hidden" }, "Servers and tubes"), this.servers];
    if (server != null) {
      const load = (of) => ask("curves", { server, span: of });
      this.curves = new Curves(load);
      this.sheets.push(this.curves.sheet);
    }
    this.sheets.push(this.table());
  }

  table() {
    this.search = element("input", {
      type: "search",
      value: this.wanted.search,
      placeholder: "Search: part of a name, or a pattern with * and ?",
      oninput: () => this.want({ search: this.search.value.trim() }),
      onkeydown: (event) => this.keyInSearch(event),
    });
    this.troubleFirst = button("Trouble first", () => this.sortBy("", false));
    this.head = element("tr", {}, this.columnHead("name", "Tube", "left"));
    if (this.isMixed()) this.head.append(element("th", { class: "left", scope: "col" }, "Server"));
    this.head.append(element("th", { class: "left", scope: "col" }, "10 minutes"));
    this.head.append(...COLUMNS.map(([key, title]) => this.columnHead(key, title)));
    this.body = element("tbody");
    this.count = element("p", { class: "faint", role: "status" });
    this.empty = element("p", { class: "empty", hidden: true });
    this.back = button("Previous", () => this.want({ from: Math.max(0, this.wanted.from - PAGE) }));
    this.on = button("Next", () => this.want({ from: +this.wanted.from + PAGE }));
    this.note = element("span", { class: "faint" });
    this.pages = element("div", { class: "bar", hidden: true }, this.back, this.on, this.note);
    this.showSort();
    const table = element("table", {}, element("thead", {}, this.head), this.body);
    return element(
      "section",
      { class: "sheet", "aria-label": "Tubes" },
      element("div", { class: "bar" }, element("h2", {}, "Tubes"), this.count, element("div", { class: "wide" }, this.search), this.troubleFirst),
      element("div", { class: "scroll" }, table),
      this.empty,
      this.pages,
    );
  }

  /** Whether the table has tubes of several servers. */
  isMixed() {
    return this.server == null && this.world.servers.length > 1;
  }

  columnHead(key, title, kind = "") {
    const sort = () => this.sortBy(key, this.wanted.sort === key && !this.wanted.turned);
    return element("th", { class: kind, scope: "col", "data-sort": key }, element("button", { type: "button", onclick: sort }, title));
  }

  sortBy(sort, isTurned) {
    this.want({ sort, turned: isTurned ? 1 : "" });
    this.showSort();
  }

  showSort() {
    const { sort, turned } = this.wanted;
    for (const head of this.head.children) {
      // By figures, the largest come first.
      const isDown = (sort === "name") === Boolean(turned);
      if (sort && head.dataset.sort === sort) head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    this.troubleFirst.hidden = !sort;
  }

  /** Shows another part of the table. */
  want(changes) {
    Object.assign(this.wanted, { from: 0 }, changes);
    keep(this.wanted);
    this.refreshTable().catch(() => {});
  }

  async refresh() {
    this.showServers();
    await Promise.all([this.refreshTable(), this.curves?.refresh()]);
  }

  async refreshTable() {
    const asked = { ...this.wanted };
    const answer = await ask("tubes", { ...asked, server: this.server, count: PAGE });
    // A later question may have been answered already.
    if (Object.keys(asked).some((key) => asked[key] !== this.wanted[key])) return;
    this.showRows(answer);
  }

  showServers() {
    const { servers } = this.world;
    const shown = servers.map((server, index) => [server, index]).filter(([, index]) => this.server == null || index === this.server);
    showItems(
      this.servers,
      shown,
      ([, index]) => String(index),
      ([server]) => makeCard(server),
      (card, [server]) => showCard(card, server),
    );
  }

  showRows({ rows, found, total }) {
    const { search } = this.wanted;
    const from = +this.wanted.from;
    setText(this.count, search ? `${count(found)} of ${count(total)}` : count(total));
    showItems(
      this.body,
      rows,
      (row) => `${row.server}/${row.name}`,
      () => element("tr"),
      (line, row) => this.showRow(line, row),
    );
    this.empty.hidden = rows.length > 0;
    setText(this.empty, search ? `No tube’s name fits “${search}”.` : "There are no tubes.");
    this.pages.hidden = found <= PAGE;
    this.back.disabled = from === 0;
    this.on.disabled = from + PAGE >= found;
    setText(this.note, `${count(from + 1)} to ${count(from + rows.length)} of ${count(found)}`);
  }

  showRow(line, row) {
    const { name: server, lost } = this.world.servers[row.server];
    line.className = lost ? "lost" : "";
    if (!line.childElementCount) {
      const link = element("a", { class: "name", href: tubeLink(server, row.name) }, row.name);
      line.append(element("th", { class: "left", scope: "row" }, link));
      if (this.isMixed()) line.append(element("td", { class: "left faint host" }, server));
      line.append(element("td", { class: "left curve" }), ...COLUMNS.map(([, title]) => element("td", { "data-label": title.toLowerCase() })));
    }
    const [link, badge] = line.firstChild.children;
    showBadge(line.firstChild, badge, row);
    const cells = [...line.children].slice(-COLUMNS.length);
    cells[0].previousSibling.replaceChildren(...(row.curve.length > 1 ? [smallCurve(row.curve)] : []));
    COLUMNS.forEach(([key], index) => {
      const value = row[key];
      const text = value == null ? "–" : key === "age" ? span(value) : index > 5 ? rate(value) : count(value);
      setText(cells[index], text);
      cells[index].className = !value ? "zero" : key === "buried" ? "buried" : "";
    });
    link.title = row.name;
  }

  keyInSearch(event) {
    if (event.key === "Escape") {
      this.search.value = "";
      this.want({ search: "" });
    } else if (event.key === "Enter") this.body.querySelector("a")?.click();
  }
}

/** The words of a trouble after the name. */
function showBadge(cell, badge, row) {
  if (!row.trouble) badge?.remove();
  else {
    const shown = badge ?? cell.appendChild(element("span"));
    shown.className = row.grave ? "badge grave" : "badge";
    setText(shown, row.trouble);
  }
}

function makeCard({ name }) {
  const isOnly = location.hash.split("?")[0].includes(encodeURIComponent(name));
  const title = isOnly ? name : element("a", { href: `#/${encodeURIComponent(name)}` }, name);
  const head = element("div", { class: "head" }, element("h2", {}, title), element("span", { class: "badge grave" }), element("div"));
  return element("li", { class: "sheet server" }, head, element("div"));
}

function showCard(card, server) {
  const { name, address, known, lost, refusal } = server;
  card.classList.toggle("care", server.care);
  card.classList.toggle("lost", Boolean(lost));
  const [head, body] = card.children;
  head.children[1].hidden = !refusal;
  setText(head.children[1], `takes no new jobs: ${refusal}`);
  head.children[2].replaceChildren(smallCurve(server.curve));
  const parts = [];
  if (lost) parts.push(element("p", { class: "alarm", role: "alert" }, `No answer: ${lost}.`));
  else if (!known) parts.push(element("p", {}, "Asking …"));
  if (known) {
    const rates = RATES.map((title, index) => `${rate(server.rates[index])} ${title}`);
    const { connections, producers, workers, waiting } = server;
    parts.push(
      figures(server.jobs.map((number, index) => [STATES[index], short(number)])),
      element("p", {}, `A second: ${rates.join(", ")}`),
      element("p", { class: "faint" }, `Connections: ${count(connections)}; ${count(producers)} put, ${count(workers)} work, ${count(waiting)} wait`),
    );
  }
  const facts = [name !== address && address, server.version && `version ${server.version}`, known && `up ${span(server.uptime)}`];
  parts.push(element("p", { class: "faint" }, facts.filter(Boolean).join(" · ")));
  body.replaceChildren(...parts);
}
