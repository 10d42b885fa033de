// Curves as SVG: the small one of a row, and the large ones with scales.

import { element, rate, shape, short, tabs } from "./elements.js";

const [HEIGHT, LEFT, TOP, BOTTOM] = [190, 44, 8, 22];
/** How many slots a span has. */
const SLOTS = 300;
const SPANS = [[0, "10 minutes"], [1, "1 hour"], [2, "1 day"]];
const BACKLOG = ["ready", "reserved", "delayed", "buried"];
export const RATES = ["put", "reserved", "deleted", "timed out"];

/** The small curve of a row: all jobs in the last ten minutes. */
export function smallCurve(values, slots = 60) {
  const most = Math.max(1, ...values);
  const lines = [];
  values.forEach((value, index) => {
    if (value == null) return;
    const point = `${(((slots - values.length + index) * 100) / (slots - 1)).toFixed(1)} ${(23 - (value * 20) / most).toFixed(1)}`;
    if (index === 0 || values[index - 1] == null) lines.push([point]);
    else lines.at(-1).push(point);
  });
  const attributes = { class: "small", viewBox: "0 0 100 25", preserveAspectRatio: "none", "aria-hidden": "true" };
  const drawing = shape("svg", attributes, shape("path", { class: "base", d: "M0 24H100" }));
  for (const points of lines) {
    const [first, last] = [points[0], points.at(-1)].map((point) => point.split(" ")[0]);
    drawing.append(shape("path", { class: "area", d: `M${first} 24L${points.join("L")}L${last} 24Z` }));
    drawing.append(shape("path", { d: `M${points.join("L")}` }));
  }
  return drawing;
}

/** Two figures, of the backlog and of the rates, and a choice of their span. */
export class Curves {
  span = 0;
  sheet = element("section", { class: "sheet pad", "aria-label": "Curves" });

  /** `load` resolves to the slots of a span. */
  constructor(load) {
    this.load = load;
    const choose = (span) => {
      this.span = span;
      this.refresh().catch(() => {});
    };
    this.figures = element("div", { class: "curves" });
    this.sheet.append(
      element("div", { class: "head" }, element("h2", {}, "Curves"), tabs("Span of the curves", SPANS, 0, choose)),
      this.figures,
    );
  }

  async refresh() {
    const { slots, seconds } = await this.load(this.span);
    const rates = RATES.map((name, index) => [name, (slot) => slot[4 + index]]);
    const backlog = BACKLOG.map((name, index) => [name, (slot) => slot[index]]);
    if (!this.figures.childElementCount) this.figures.append(element("figure"), element("figure"));
    const [jobs, perSecond] = this.figures.children;
    draw(jobs, "Jobs", backlog, slots, seconds);
    draw(perSecond, "Per second", rates, slots, seconds);
  }
}

/** Draws lines into a figure, as wide as it is. */
function draw(figure, title, lines, slots, seconds) {
  const width = Math.max(240, figure.clientWidth);
  const values = lines.map(([, value]) => slots.map((slot) => slot && value(slot)));
  const top = scale(Math.max(0, ...values.flat().filter((value) => value != null)));
  const x = (index) => LEFT + ((SLOTS - slots.length + index) * (width - LEFT)) / (SLOTS - 1);
  const y = (value) => HEIGHT - BOTTOM - (value * (HEIGHT - BOTTOM - TOP)) / top;
  const drawing = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  const last = lines.map(([name], index) => `${name} ${rate(values[index].at(-1))}`);
  drawing.append(shape("title", {}, `${title}, up to ${top}. Now: ${last.join(", ")}.`));
  for (const share of [0, 0.5, 1]) {
    const height = y(top * share);
    const label = shape("text", { x: LEFT - 8, y: height + 4, "text-anchor": "end" }, short(top * share));
    drawing.append(shape("line", { x1: LEFT, x2: width, y1: height, y2: height }), label);
  }
  for (const share of width > 420 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1]) {
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    const place = { x: LEFT + share * (width - LEFT), y: HEIGHT - 3, "text-anchor": anchor };
    drawing.append(shape("text", place, clock(seconds * (1 - share), seconds)));
  }
  for (const [from, to] of gaps(slots)) {
    drawing.append(shape("rect", { class: "gap", x: x(from) - 1, y: y(top), width: x(to) - x(from) + 2, height: y(0) - y(top) }));
  }
  // The first line is drawn last, on top of the others.
  values.map((line, index) => strokes(line, index, x, y)).reverse().forEach((line) => drawing.append(...line));
  const caption = element("figcaption", {}, element("b", {}, title));
  lines.forEach(([name], index) => {
    const now = values[index].at(-1);
    caption.append(element("span", { class: `c${index}` }, `${name} ${now == null ? "–" : short(now)}`));
  });
  figure.replaceChildren(caption, drawing);
}

/** The lines between gaps. */
function strokes(line, index, x, y) {
  const made = [];
  let points = [];
  const end = () => {
    if (points.length === 1) points.unshift(points[0].replace(/[^,]+/, (at) => at - 3));
    if (points.length) made.push(shape("polyline", { class: `c${index}`, points: points.join(" ") }));
    points = [];
  };
  line.forEach((value, at) => (value == null ? end() : points.push(`${x(at).toFixed(1)},${y(value).toFixed(1)}`)));
  end();
  return made;
}

/** Where gaps begin and end. */
function gaps(slots) {
  const found = [];
  slots.forEach((slot, index) => {
    if (slot) return;
    if (found.length && found.at(-1)[1] === index - 1) found.at(-1)[1] = index;
    else found.push([index, index]);
  });
  return found;
}

/** The next round number for the top of a scale. */
function scale(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= most);
}

/** The time of day this number of seconds ago. */
function clock(ago, span) {
  const time = new Date(Date.now() - ago * 1000);
  const digits = { hour: "2-digit", minute: "2-digit", hour12: false };
  return time.toLocaleTimeString("en-GB", span <= 600 ? { ...digits, second: "2-digit" } : digits);
}
