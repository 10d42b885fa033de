// The view of one job: its statistics, and its body in several forms.

import { bytesOf, formsOf } from "./body.js";
import { jobActions } from "./changes.js";
import { ask } from "./console.js";
import { count, element, figures, setText, size, span, tabs, tubeLink } from "./elements.js";

export class JobView {
  constructor(world, server, id) {
    Object.assign(this, { world, server, id });
    this.badge = element("span", { class: "badge plain", hidden: true });
    this.actions = element("div", { class: "actions" });
    this.where = element("p", { class: "faint", role: "status" }, "Asking …");
    this.figures = element("div", { class: "sheet pad", hidden: true });
    this.text = element("pre", { class: "body", tabindex: 0, "aria-label": "Body" });
    this.bodyHead = element("div", { class: "bar" });
    this.facts = element("dl", { class: "facts" });
    this.bodySheet = element("section", { class: "sheet", "aria-label": "Body of the job", hidden: true }, this.bodyHead, this.text);
    this.factsSheet = element("section", { class: "sheet pad", "aria-label": "Statistics", hidden: true }, element("h2", {}, "Statistics"), this.facts);
    const head = element("div", { class: "head" }, element("h1", {}, `Job ${id}`), this.badge, this.actions);
    this.sheets = [head, this.where, this.figures, this.bodySheet, this.factsSheet];
  }

  async refresh() {
    let job;
    try {
      job = await ask("job", { server: this.server, id: this.id });
    } catch (error) {
      if (error.status !== 404) throw error;
      this.fail("There is no such job, or it has been deleted.");
      this.actions.replaceChildren();
      return;
    }
    const isFirst = !this.job;
    const isOther = this.job?.state !== job.state;
    this.job = job;
    this.tube = job.tube;
    this.show(job, isFirst);
    if (this.world.changes && isOther) this.actions.replaceChildren(...jobActions(this, job));
  }

  show(job, isFirst) {
    const server = this.world.servers[this.server].name;
    this.where.className = "faint";
    this.where.replaceChildren("in tube ", element("a", { href: tubeLink(server, job.tube) }, job.tube), ` of ${server}`);
    this.badge.hidden = false;
    this.badge.className = `badge plain ${job.state}`;
    setText(this.badge, job.state);
    const left = { delayed: "delay left", reserved: "time to run left" }[job.state];
    const some = [["age", span(job.age)], ["tries", count(job.tries)], ["priority", job.priority], ["time to run", span(job.ttr)]];
    if (left) some.push([left, span(job.left)]);
    this.figures.replaceChildren(figures([...some, ["size", size(job.size)]]));
    const fact = ([key, value]) => element("div", {}, element("dt", {}, key), element("dd", {}, value));
    this.facts.replaceChildren(...job.facts.map(fact));
    for (const sheet of [this.figures, this.bodySheet, this.factsSheet]) sheet.hidden = false;
    if (isFirst) this.showBody(bytesOf(job), job.size);
  }

  /** The body of a job never changes. */
  showBody(bytes, whole) {
    const forms = formsOf(bytes);
    const show = (index) => setText(this.text, forms[index][1]);
    const note = bytes.length < whole ? `the first ${size(bytes.length)} of ${size(whole)}` : whole ? size(whole) : "empty";
    this.bodyHead.replaceChildren(
      element("h2", {}, "Body"),
      element("span", { class: "faint" }, note),
      tabs("Form of the body", forms.map(([name], index) => [index, name]), 0, show),
    );
    show(0);
  }

  fail(message) {
    this.where.className = "alarm";
    setText(this.where, message);
  }
}
