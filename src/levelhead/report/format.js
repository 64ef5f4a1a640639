// Helpers: numbers as text, elements, the page's colors.

const data = JSON.parse(document.getElementById("data").textContent);

// Ties round up, as in the verdict: 1e-9 is more than any rounding of the sums and less than any digit shown.
const percent = (share) => Number.isFinite(share) ? `${(100 * share + 1e-9).toFixed(2)}\u00a0%` : "no sample";

function points(change) {
  if (!Number.isFinite(change)) return "";
  const text = (100 * change + 1e-9).toFixed(2);
  if (Number(text) === 0) return "±0.00";
  return text.startsWith("-") ? `−${text.slice(1)}` : `+${text}`;
}

// An arrow for the direction, a color for whether it is good; the text says so too.
function changeClass(text, lowerIsBetter) {
  const up = text.startsWith("+"), down = text.startsWith("−");
  return `change${up ? " up" : down ? " down" : ""}${up || down ? (up !== lowerIsBetter ? " good" : " bad") : ""}`;
}

const whole = (n) => n.toLocaleString("en-US");

const find = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function element(name, attributes = {}, ...children) {
  const made = name.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") made.textContent = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Sets a text only where it changed: writing the same text again costs a layout.
function setText(node, text) {
  if (node && node.textContent !== text) node.textContent = text;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const className = (facts, i) => facts.names ? facts.names[i] : String(i);

