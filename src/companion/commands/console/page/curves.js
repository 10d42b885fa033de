// Curves: the small one of a row, and the large ones with scales.

import { fill, list } from "./console.js";
import { short } from "./words.js";

const SLOTS = 300;
const FIGURES = [
  { key: "Jobs", from: 0, names: ["ready", "reserved", "delayed", "buried"] },
  { key: "Per second", from: 4, names: ["put", "reserved", "deleted", "timed out"] },
];

/** A line through these values, which ends at the right; `null` is a gap. */
function lineOf(values, width, height, top) {
  const point = (value, index) => `${width - values.length + index + 0.5} ${(height - (value * height) / top).toFixed(1)}`;
  const step = (value, index) => (value == null ? "" : `${values[index - 1] == null ? "M" : "L"}${point(value, index)}h.1`);
  return values.map(step).join("");
}

/** The same as bars, down to the ground. */
function barsOf(values, width, height, top) {
  const bar = (value, index) => (value ? `M${width - values.length + index} ${height}v${-((value * height) / top).toFixed(1)}h1.05V${height}z` : "");
  return values.map(bar).join("");
}

/** The small curve of a row: all jobs in the last ten minutes. */
export function drawSmall(drawing, values) {
  const top = Math.max(1, ...values) * 1.1;
  const [bars, line] = drawing.children;
  bars.setAttribute("d", barsOf(values, 60, 24, top));
  line.setAttribute("d", lineOf(values, 60, 24, top));
}

/** Two figures, of the backlog and of the rates. */
export async function curves(section, ask) {
  const { curves } = await ask("known");
  const { slots, seconds, counted } = curves;
  section.hidden = false;
  list(section.querySelector(".curves"), "figure", FIGURES, ({ key }) => key, (figure, { key, from, names }) => {
    const isKnown = (index) => !from || counted[index];
    const lines = names.map((_, index) => slots.map((slot) => (isKnown(index) ? slot?.[from + index] : null)));
    const top = scale(Math.max(0, ...lines.flat().filter((value) => value != null)));
    const legend = names.map((name, index) => `${name} ${short(lines[index].at(-1))}`);
    const times = [0, 1, 2, 3, 4].map((quarter) => [`time${quarter}`, clock(seconds * (1 - quarter / 4), seconds)]);
    fill(figure, { key, high: short(top), middle: short(top / 2), ...legend, ...Object.fromEntries(times) });
    const drawing = figure.querySelector("svg");
    drawing.ariaLabel = `${key}, up to ${top}. Now: ${legend.join(", ")}.`;
    const [gap, ...paths] = drawing.children;
    gap.setAttribute("d", barsOf(slots.map((slot) => (slot ? 0 : 1)), SLOTS, 100, 1));
    // The first line is drawn last, on top of the others.
    paths.reverse().forEach((path, index) => path.setAttribute("d", lineOf(lines[index], SLOTS, 100, top)));
  });
}

/** The next round number for the top of a scale. */
function scale(most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, most)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= most);
}

/** The time of day this number of seconds ago. */
const clock = (ago, span) =>
  new Date(Date.now() - ago * 1000).toLocaleTimeString("en-GB", { timeStyle: span <= 600 ? "medium" : "short" });
