// Numbers and times as people read them. A dash stands for what nobody knows.

export const count = (number) => (number == null ? "–" : number.toLocaleString("en"));

/** A number in a few characters. */
export const short = (number) =>
  !(number >= 10000) ? count(number) : number.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });

/** A rate per second. */
export const rate = (number) => (number && number < 10 ? number.toFixed(1) : count(number && Math.round(number)));

const unit = (number, unit, more) => number.toLocaleString("en", { style: "unit", unitDisplay: "narrow", unit, ...more });
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

/** A number of seconds in its largest unit. */
export function span(seconds) {
  if (seconds == null) return "–";
  const [name, length] = UNITS.find(([, length]) => seconds >= 2 * length) ?? UNITS.at(-1);
  return unit(Math.floor(seconds / length), name);
}

/** A number of bytes. */
export const size = (bytes) => unit(bytes, "byte", { notation: "compact", maximumFractionDigits: 1 });

/** The time that a delayed or reserved job has left. */
export const left = ({ state, left }) => (state === "delayed" || state === "reserved" ? span(left) : null);
