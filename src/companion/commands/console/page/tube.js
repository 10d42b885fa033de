// The view of one tube: why it stands still, its figures, curves and jobs.

import { tubeActions } from "./changes.js";
import { ask } from "./console.js";
import { Curves } from "./curves.js";
import { button, count, element, figures, jobLink, rate, setText, showItems, size, span, tabs } from "./elements.js";

const STATES = ["ready", "reserved", "delayed", "buried"];

export class TubeView {
  wanted = { state: "", text: "", from: "" };
  /** The ids from which the pages before this one began. */
  earlier = [];
  nextWhy = 0;

  constructor(world, server, tube) {
    Object.assign(this, { world, server, tube });
    this.why = element("p", { class: "why", role: "status" });
    this.badge = element("span", { class: "badge", hidden: true });
    this.figures = element("div");
    this.actions = element("div", { class: "actions" });
    this.curves = new Curves((of) => ask("curves", { server, tube, span: of }), ["put", "deleted"]);
    const head = element("div", { class: "head" }, element("h1", {}, tube), this.badge, this.actions);
    this.sheets = [head, this.why, this.figures, this.curves.sheet, this.jobs()];
    this.figures.className = "sheet pad";
  }

  jobs() {
    const states = [["", "All"], ...STATES.map((state) => [state, state[0].toUpperCase() + state.slice(1)])];
    this.search = element("input", {
      type: "search",
      placeholder: "Search the bodies of the jobs",
      onchange: () => this.want({ text: this.search.value }),
    });
    const titles = ["Job", "State", "Age", "Tries", "Left", "Priority", "Size", "Body"];
    const isText = (index) => index < 2 || index === 7;
    const head = titles.map((title, index) => element("th", { class: isText(index) && "left", scope: "col" }, title));
    this.body = element("tbody");
    this.empty = element("p", { class: "empty" }, "Asking …");
    this.note = element("p", { class: "faint", role: "status" });
    this.back = button("Previous", () => this.turn(false));
    this.on = button("Next", () => this.turn(true));
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), this.body);
    return element(
      "section",
      { class: "sheet", "aria-label": "Jobs" },
      element(
        "div",
        { class: "bar" },
        element("h2", {}, "Jobs"),
        tabs("State of the jobs", states, "", (state) => this.want({ state })),
        element("div", { class: "wide" }, this.search),
      ),
      element("div", { class: "scroll" }, table),
      this.empty,
      element("div", { class: "bar" }, this.back, this.on, this.note),
    );
  }

  want(changes) {
    Object.assign(this.wanted, { from: "" }, changes);
    this.earlier = [];
    this.refreshJobs().catch((error) => this.fail(error.message));
  }

  turn(isForwards) {
    if (isForwards) this.earlier.push(this.wanted.from);
    this.wanted.from = isForwards ? this.next : this.earlier.pop();
    this.refreshJobs().catch((error) => this.fail(error.message));
  }

  async refresh() {
    if (await this.refreshTube()) this.refreshWhy().catch(() => {});
    // A search may be long: it is not done again and again.
    const isSearch = this.wanted.text || (this.listed === false && this.wanted.from);
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
    const lost = this.world.servers[this.server].trouble;
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

  /** Asks now and then why the tube stands still. */
  async refreshWhy() {
    if (Date.now() < this.nextWhy) return;
    this.nextWhy = Date.now() + 4000;
    const { why } = await ask("why", { server: this.server, tube: this.tube });
    setText(this.why, why || "Nothing is in its way.");
  }

  async refreshJobs() {
    const asked = { ...this.wanted };
    if (asked.text) setText(this.note, "Searching …");
    const answer = await ask("jobs", { ...asked, server: this.server, tube: this.tube });
    if (Object.keys(asked).some((key) => asked[key] !== this.wanted[key])) return;
    this.listed = answer.listed;
    this.next = answer.next;
    const server = this.world.servers[this.server].name;
    showItems(this.body, answer.jobs, (job) => job.id, (job) => makeRow(server, job), showJob);
    this.empty.hidden = answer.jobs.length > 0;
    setText(this.empty, asked.text ? "No job here has this in its body." : asked.state ? `No job is ${asked.state}.` : "There are no jobs.");
    this.back.disabled = !this.earlier.length;
    this.on.disabled = answer.next == null;
    setText(this.on, answer.listed || asked.from ? "Next" : "Look through all ids");
    setText(this.note, this.noteOn(answer, asked));
  }

  noteOn({ jobs, looked, next, listed }, { text, from }) {
    if (!listed && !from) {
      return jobs.length ? "This server lists no jobs: these are the next ones and their neighbours." : "";
    }
    if (text || !listed) {
      const more = next == null ? "" : ", go on with Next";
      return `${count(jobs.length)} found among ${count(looked)} ${listed ? "jobs" : "ids"}${more}`;
    }
    return next == null && !from ? "" : `Page ${this.earlier.length + 1}`;
  }

  fail(message) {
    setText(this.note, message);
  }
}

function makeRow(server, job) {
  const link = element("a", { href: jobLink(server, job.id) }, job.id);
  const cell = (label) => element("td", { "data-label": label });
  return element(
    "tr",
    {},
    element("th", { class: "left", scope: "row" }, link),
    element("td", { class: "left" }, element("span")),
    ...["old", "tries", "left", "priority", ""].map(cell),
    element("td", { class: "left text mono" }),
  );
}

function showJob(line, job) {
  const [, state, age, tries, left, priority, bytes, body] = line.children;
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
