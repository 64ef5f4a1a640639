// What the page does: sort and search tables, show one of several models, copy code, change the theme.
(() => {
"use strict";

const find = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function sortable(table) {
  const body = table.tBodies[0], buttons = all("thead button", table);
  buttons.forEach((button, column) => button.addEventListener("click", () => {
    const head = button.closest("th"), down = head.getAttribute("aria-sort") === "ascending";
    buttons.forEach((other) => other.closest("th").removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const order = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if ((x === "") !== (y === "")) return (x === "") === down ? -1 : 1; // what is not known comes last
      const numeric = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
      return numeric ? x - y : x.localeCompare(y, "en", { numeric: true });
    });
    body.append(...(down ? order.reverse() : order));
  }));
}

function searchable(field) {
  const rows = all("tbody tr", document.getElementById(field.dataset.search));
  const note = find("output", field.parentNode);
  field.addEventListener("input", () => {
    const text = field.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(text);
      shown += !row.hidden;
    }
    note.textContent = text ? `${shown.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")}` : "";
  });
}

function show(index) {
  all("[data-subject]").forEach((node) => { node.hidden = node.dataset.subject !== index; });
}

async function copy(button) {
  const block = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(block.textContent);
  } catch { // some browsers have no clipboard for pages from disk: select the text, and copy the old way
    getSelection().selectAllChildren(block);
    document.execCommand("copy");
  }
  find("#said").textContent = button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  find("#theme").textContent = name === "dark" ? "Light theme" : "Dark theme";
  try { localStorage.setItem("levelhead-theme", name); } catch { /* a page from disk may have no storage */ }
}

let kept = null;
try { kept = localStorage.getItem("levelhead-theme"); } catch { /* as above */ }
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
if (kept === "dark" || kept === "light") theme(kept);
else find("#theme").textContent = dark ? "Light theme" : "Dark theme";
find("#theme").addEventListener("click", () =>
  theme(getComputedStyle(document.documentElement).colorScheme === "dark" ? "light" : "dark"));
all("table.sortable").forEach(sortable);
all("[data-search]").forEach(searchable);
all("[data-copy]").forEach((button) => button.addEventListener("click", () => copy(button)));
const choice = find("#subject");
if (choice) {
  choice.addEventListener("change", () => show(choice.value));
  show(choice.value);
}
document.documentElement.dataset.ready = "yes";
})();
