// Which classes are taken for which: all cells while they can be read, else the pairs that matter most.

const MATRIX = 16; // classes, at most, for the whole table
const PAIRS = 20;

function confusionOf(walk, root) {
  const { facts } = walk, place = find("[data-confusion]", root), controls = find("[data-pairs]", root);
  controls.hidden = facts.classes <= MATRIX;
  return facts.classes <= MATRIX ? matrix(walk, place) : pairs(walk, place, controls);
}

function matrix(walk, place) {
  const { facts } = walk, size = facts.classes, cells = [];
  const order = facts.counts.map((_, c) => c).sort((a, b) => facts.counts[b] - facts.counts[a] || a - b);
  const name = (c) => element("bdi", { text: className(facts, c), title: className(facts, c) });
  const head = element("tr", {}, element("th", { scope: "col", class: "corner", text: "true class ↓  predicted →" }),
    ...order.map((c) => element("th", { scope: "col", class: "tilted" }, element("span", {}, name(c)))));
  const body = element("tbody");
  for (const t of order) {
    const line = element("tr", {}, element("th", { scope: "row" }, name(t)));
    for (const p of order) {
      cells[t * size + p] = element("td", t === p ? { class: "right" } : {});
      line.append(cells[t * size + p]);
    }
    body.append(line);
  }
  place.replaceChildren(element("table", { class: "matrix" },
    element("caption", { text: "Percent of each true class, a row each; the framed cells are right." }),
    element("thead", {}, head), body));
  const counts = new Float64Array(size * size), shown = new Float64Array(size * size).fill(-1);
  return {
    draw() {
      counts.fill(0);
      for (let i = 0; i < walk.cells.length; i++) counts[walk.truth[i] * size + walk.guess[i]] = walk.cells[i];
      for (let i = 0; i < counts.length; i++) {
        if (shown[i] === counts[i]) continue;
        shown[i] = counts[i];
        const n = walk.samples[Math.floor(i / size)], share = n ? counts[i] / n : 0;
        cells[i].textContent = n ? (counts[i] ? (100 * share + 1e-9).toFixed(1) : "0") : "";
        cells[i].title = `${whole(counts[i])} of ${whole(n)}`;
        cells[i].style.setProperty("--share", share.toFixed(3));
      }
    },
    remove() {},
  };
}

function pairs(walk, place, controls) {
  const { facts } = walk, search = find("input[type=search]", controls), sort = find("select", controls);
  const body = element("tbody"), rows = [];
  const head = element("tr", {}, ...["True class", "taken for", "now", "as trained"].map((text) =>
    element("th", { scope: "col", text })));
  place.replaceChildren(element("table", { class: "pairs" },
    element("caption", { text: `The ${PAIRS} pairs of classes that come first, in samples.` }),
    element("thead", {}, head), body));
  for (let i = 0; i < PAIRS; i++) {
    const cells = [element("bdi"), element("bdi"), element("td", { class: "n" }), element("td", { class: "n" })];
    const line = element("tr", {}, element("td", {}, cells[0]), element("td", {}, cells[1]), cells[2], cells[3]);
    rows.push({ line, cells });
    body.append(line);
  }
  const keys = {
    now: (i) => walk.cells[i], more: (i) => walk.cells[i] - walk.before.cells[i],
    less: (i) => walk.before.cells[i] - walk.cells[i],
  };
  let allowed = null;
  function filter() {
    const text = search.value.trim().toLowerCase();
    allowed = text ? facts.counts.map((_, c) => className(facts, c).toLowerCase().includes(text)) : null;
    draw();
  }
  function draw() {
    const key = keys[sort.value], top = [];
    let least = 0;
    for (let i = 0; i < walk.cells.length; i++) { // a sorted list of the best so far: most cells do not get in
      const value = key(i);
      if (value <= least || walk.hit[i]) continue;
      if (allowed && !allowed[walk.truth[i]] && !allowed[walk.guess[i]]) continue;
      let at = top.length;
      while (at > 0 && top[at - 1][0] < value) at--;
      top.splice(at, 0, [value, i]);
      if (top.length > PAIRS) top.pop();
      if (top.length === PAIRS) least = top[PAIRS - 1][0];
    }
    rows.forEach(({ line, cells }, r) => {
      line.hidden = r >= top.length;
      if (r >= top.length) return;
      const i = top[r][1];
      say(cells[0], className(facts, walk.truth[i]));
      say(cells[1], className(facts, walk.guess[i]));
      say(cells[2], whole(walk.cells[i]));
      say(cells[3], whole(walk.before.cells[i]));
    });
  }
  const signal = new AbortController(), options = { signal: signal.signal };
  search.addEventListener("input", filter, options);
  sort.addEventListener("change", draw, options);
  return { draw, remove: () => signal.abort() };
}
