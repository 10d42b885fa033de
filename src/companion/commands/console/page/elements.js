// Makes elements, numbers and times. Whatever comes from a server becomes text
// here and never markup: nothing in this page writes HTML.

/** An element with these attributes and children; texts become text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** The same for SVG. */
export function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A button that does this. */
export const button = (text, onclick, kind = "") =>
  element("button", { type: "button", class: `plain ${kind}`, onclick }, text);

/** Buttons of which one is chosen. */
export function tabs(label, choices, chosen, choose) {
  const group = element("div", { class: "tabs", role: "group", "aria-label": label });
  for (const [value, text] of choices) {
    const one = element("button", { type: "button", "aria-pressed": String(value === chosen) }, text);
    one.addEventListener("click", () => {
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === one));
      choose(value);
    });
    group.append(one);
  }
  return group;
}

/**
 * Shows items as the children of an element. The child of an item stays the
 * same as long as the item is there, so that it keeps the focus, and a click
 * that has begun ends on it.
 */
export function showItems(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const children = items.map((item) => {
    const name = key(item);
    const child = known.get(name) ?? make(item);
    child.dataset.key = name;
    update(child, item);
    return child;
  });
  const isSame = children.length === parent.children.length && children.every((child, at) => child === parent.children[at]);
  if (!isSame) {
    const focused = document.activeElement;
    parent.replaceChildren(...children);
    if (parent.contains(focused)) focused.focus({ preventScroll: true });
  }
}

/** Sets the text of an element, if it is another one. */
export function setText(into, text) {
  if (into.textContent !== String(text)) into.textContent = text;
}

/** A list of figures, each with its name. */
export function figures(pairs) {
  const pair = ([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value));
  return element("dl", { class: "figures" }, ...pairs.map(pair));
}

export const count = (number) => number.toLocaleString("en");

/** A rate per second. */
export function rate(number) {
  if (number == null) return "–";
  return number && number < 10 ? number.toFixed(1) : count(Math.round(number));
}

/** A number of seconds in its largest unit. */
export function span(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${count(Math.floor(seconds / 86400))} d`;
}

/** A number of bytes. */
export function size(bytes) {
  return bytes < 10000 ? `${count(bytes)} B` : `${count(Math.round(bytes / 1024))} KiB`;
}

/** What is wanted of a table: it is after the ? of the address, so that the address can be shared. */
export const kept = () => Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] ?? ""));
export function keep(wanted) {
  const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value)).toString();
  history.replaceState(null, "", (location.hash.split("?")[0] || "#/") + (query && `?${query}`));
}

/** A number in a few characters. */
export function short(number) {
  if (number >= 1e6) return `${+(number / 1e6).toFixed(1)}M`;
  if (number >= 1e4) return `${+(number / 1e3).toFixed(1)}k`;
  return String(+number.toFixed(number < 10 ? 1 : 0));
}

/** Addresses of this page, which one can paste. */
const part = encodeURIComponent;
export const tubeLink = (server, tube) => `#/${part(server)}/tube/${part(tube)}`;
export const jobLink = (server, id) => `#/${part(server)}/job/${part(id)}`;

/** Says what was done, or why not, in a corner of the page. */
export function notify(text, isError = false) {
  const notice = element("p", { class: isError ? "error" : "" }, text);
  document.getElementById("notices").append(notice);
  setTimeout(() => notice.remove(), isError ? 12000 : 6000);
}
