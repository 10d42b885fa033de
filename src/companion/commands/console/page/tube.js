// The view of one tube: its trouble, figures, curves and jobs.

import { ACTIONS, askAboutMany, tubeActions } from "./changes.js";
import { ask } from "./console.js";
import { Curves } from "./curves.js";
import { button, count, element, figures, jobLink, keep, kept, notify, rate, setText, showItems, size, span, tabs } from "./elements.js";

const STATES = ["ready", "reserved", "delayed", "buried"];

export class TubeView {
  wanted = { state: "", text: "", sort: "", from: "", ...kept() };
  /** The ids from which the pages before this one began. */
  earlier = [];
  nextWhy = 0;

  constructor(world, server, tube) {
    Object.assign(this, { world, server, tube });
    this.why = element("p", { class: "why", role: "status" });
    this.badge = element("span", { class: "badge", hidden: true });
    this.figures = element("div");
    this.actions = element("div", { class: "actions" });
    this.curves = new Curves((of) => ask("curves", { server, tube, span: of }));
    const head = element("div", { class: "head" }, element("h1", {}, tube), this.badge, this.actions);
    this.sheets = [head, this.why, this.figures, this.curves.sheet, this.jobs()];
    this.figures.className = "sheet pad";
  }

  jobs() {
    const states = [["", "All"], ...STATES.map((state) => [state, state[0].toUpperCase() + state.slice(1)])];
    const { state, text } = this.wanted;
    this.search = element("input", {
      type: "search",
      value: text,
      placeholder: "Search the bodies of the jobs: Enter begins",
      onchange: () => this.want({ text: this.search.value }),
    });
    this.tickAll = element("input", { type: "checkbox", "aria-label": "All jobs of this page", onchange: () => this.tick() });
    const titles = ["", "Job", "State", "Age", "Tries", "Left", "Priority", "Size", "Body"];
    const sorts = { Age: () => (this.wanted.sort === "oldest" ? "newest" : "oldest"), Tries: () => (this.wanted.sort === "tries" ? "" : "tries") };
    const title = (name) => (sorts[name] ? element("button", { type: "button", onclick: () => this.want({ sort: sorts[name]() }) }, name) : name || this.tickAll);
    const isText = (index) => index < 3 || index === 8;
    this.head = element("tr", {}, ...titles.map((name, index) => element("th", { class: isText(index) && "left", scope: "col", "data-sort": name }, title(name))));
    this.head.firstChild.hidden = !this.world.changes;
    this.body = element("tbody", { onchange: () => this.showMany() });
    this.empty = element("p", { class: "empty" }, "Asking …");
    this.note = element("p", { class: "faint", role: "status" });
    this.back = button("Previous", () => this.turn(false));
    this.on = button("Next", () => this.turn(true));
    const actions = ACTIONS.map(([action, verb]) => button(verb, () => this.actOnMany(action), action === "delete" ? "danger" : ""));
    this.which = element("span");
    this.many = element("div", { class: "bar", hidden: true }, this.which, ...actions);
    const table = element("table", {}, element("thead", {}, this.head), this.body);
    return element(
      "section",
      { class: "sheet", "aria-label": "Jobs" },
      element(
        "div",
        { class: "bar" },
        element("h2", {}, "Jobs"),
        tabs("State of the jobs", states, state, (state) => this.want({ state })),
        element("div", { class: "wide" }, this.search),
      ),
      this.many,
      element("div", { class: "scroll" }, table),
      this.empty,
      element("div", { class: "bar" }, this.back, this.on, this.note),
    );
  }

  want(changes) {
    Object.assign(this.wanted, { from: "" }, changes);
    keep(this.wanted);
    this.earlier = [];
    this.refreshJobs().catch((error) => this.fail(error.message));
  }

  turn(isForwards) {
    if (isForwards) this.earlier.push(this.wanted.from);
    this.wanted.from = isForwards ? this.next : this.earlier.pop() ?? "";
    keep(this.wanted);
    this.refreshJobs().catch((error) => this.fail(error.message));
  }

  /** The ids of the jobs that are ticked. */
  ticked = () => [...this.body.querySelectorAll("input:checked")].map((box) => box.value);

  tick() {
    for (const box of this.body.querySelectorAll("input")) box.checked = this.tickAll.checked;
    this.showMany();
  }

  /** Says what may be done to many jobs: to those that are ticked, or else to all that were searched for. */
  showMany() {
    const { length } = this.ticked();
    this.many.hidden = !this.world.changes || (!length && !this.wanted.text);
    setText(this.which, length ? `${count(length)} ticked:` : "All that have this in their bodies:");
  }

  async actOnMany(action) {
    const ticked = this.ticked();
    if (ticked.length) return askAboutMany(this, ticked, "that are ticked", action);
    const { text, state } = this.wanted;
    setText(this.note, "Searching …");
    const found = await ask("jobs", { text, state, server: this.server, tube: this.tube, ids: 1 });
    setText(this.note, "");
    if (!found.jobs.length) return notify("No job has this in its body.", true);
    const which = `that have “${text}” in their bodies${found.next == null ? "" : ", and perhaps others later"}`;
    askAboutMany(this, found.jobs, which, action);
  }

  async refresh() {
    if (await this.refreshTube()) this.refreshWhy().catch(() => {});
    // A search may be long: it is not done again and again.
    const isSearch = this.wanted.text || this.wanted.sort;
    await Promise.all([this.curves.refresh(), isSearch ? null : this.refreshJobs()]);
  }

  async refreshTube() {
    let facts;
    try {
      facts = await ask("tube", { server: this.server, tube: this.tube });
    } catch (error) {
      if (error.status !== 404) throw error;
      setText(this.why, "There is no such tube yet.");
      this.figures.hidden = true;
      if (this.world.changes && !this.actions.childElementCount) this.actions.append(...tubeActions(this, null));
      return;
    }
    const { row } = facts;
    const { lost } = this.world.servers[this.server];
    if (lost) setText(this.why, `No answer: ${lost}. This is what was known before.`);
    if (facts.gone) setText(this.why, "The tube does not exist any more.");
    this.why.classList.toggle("alarm", Boolean(lost));
    this.badge.hidden = !row.trouble;
    this.badge.className = row.grave ? "badge grave" : "badge";
    setText(this.badge, row.trouble ?? "");
    this.figures.hidden = false;
    this.figures.replaceChildren(
      figures([
        ...STATES.map((state) => [state, count(row[state])]),
        ["watching", count(row.watching)],
        ["waiting", count(row.waiting)],
        ["put/s", rate(row.put)],
        ["deleted/s", rate(row.delete)],
        ["timeouts/s", rate(row.timeouts)],
        ["put so far", count(facts.total)],
        ["next job’s age", row.age == null ? "–" : span(row.age)],
      ]),
    );
    this.row = row;
    if (this.world.changes && this.actions.dataset.paused !== String(row.pause > 0)) {
      this.actions.dataset.paused = row.pause > 0;
      this.actions.replaceChildren(...tubeActions(this, row));
    }
    return true;
  }

  /** Asks from time to time what is wrong with the tube. */
  async refreshWhy() {
    if (Date.now() < this.nextWhy) return;
    this.nextWhy = Date.now() + 2000;
    const { why } = await ask("why", { server: this.server, tube: this.tube });
    setText(this.why, why || "Nothing is in its way.");
  }

  async refreshJobs() {
    const asked = { ...this.wanted };
    if (asked.text) setText(this.note, "Searching …");
    const answer = await ask("jobs", { ...asked, server: this.server, tube: this.tube });
    if (Object.keys(asked).some((key) => asked[key] !== this.wanted[key])) return;
    this.next = answer.next;
    const server = this.world.servers[this.server].name;
    showItems(this.body, answer.jobs, (job) => job.id, (job) => makeRow(server, job, this.world.changes), showJob);
    this.showMany();
    for (const head of this.head.children) {
      const isSorted = { oldest: "Age", newest: "Age", tries: "Tries" }[asked.sort] === head.dataset.sort;
      if (isSorted) head.setAttribute("aria-sort", asked.sort === "newest" ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
    this.empty.hidden = answer.jobs.length > 0;
    setText(this.empty, asked.text ? "No job here has this in its body." : asked.state ? `No job is ${asked.state}.` : "There are no jobs.");
    this.back.disabled = !this.earlier.length;
    this.on.disabled = answer.next == null;
    setText(this.note, this.noteOn(answer, asked));
  }

  noteOn({ jobs, looked, next, listed }, { text, sort, from }) {
    const which = listed ? "" : " This server lists no jobs: these are the next ones and their neighbours.";
    if (text) return `${count(jobs.length)} found among ${count(looked)} jobs${next == null ? "." : ", go on with Next."}${which}`;
    if (sort) return `The first of ${count(looked)} jobs.${which}`;
    if (which) return jobs.length ? which.trim() : "";
    return next == null && !from ? "" : `Page ${this.earlier.length + 1}`;
  }

  fail(message) {
    setText(this.note, message);
  }
}

function makeRow(server, job, changes) {
  const link = element("a", { href: jobLink(server, job.id) }, job.id);
  const cell = (label) => element("td", { "data-label": label });
  return element(
    "tr",
    {},
    element("td", { class: "left", hidden: !changes }, element("input", { type: "checkbox", value: job.id, "aria-label": `Job ${job.id}` })),
    element("th", { class: "left", scope: "row" }, link),
    element("td", { class: "left" }, element("span")),
    ...["old", "tries", "left", "priority", ""].map(cell),
    element("td", { class: "left text mono" }),
  );
}

function showJob(line, job) {
  const [, , state, age, tries, left, priority, bytes, body] = line.children;
  state.firstChild.className = `badge plain ${job.state}`;
  setText(state.firstChild, job.state);
  setText(age, span(job.age));
  setText(tries, count(job.tries));
  tries.className = job.tries ? "" : "zero";
  const hasLeft = job.state === "delayed" || job.state === "reserved";
  setText(left, hasLeft ? span(job.left) : "–");
  left.className = hasLeft ? "" : "zero";
  setText(priority, job.priority);
  setText(bytes, size(job.size));
  setText(body, job.begins);
  body.title = job.begins;
}
