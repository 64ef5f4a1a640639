// The confusion matrix or, for many classes, its most important pairs.

const MAX_MATRIX = 16; // classes of a whole matrix, at most
const MAX_PAIRS = 20;

function confusionView(model, root) {
  const { facts } = model, place = find("[data-confusion]", root), controls = find("[data-pairs]", root);
  controls.hidden = facts.classes <= MAX_MATRIX;
  return facts.classes <= MAX_MATRIX ? matrix(model, place) : pairs(model, place, controls);
}

function matrix(model, place) {
  const { facts } = model, size = facts.classes, cells = [];
  const order = facts.counts.map((_, c) => c).sort((a, b) => facts.counts[a] - facts.counts[b] || a - b);
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
    element("caption", { text: "Percent of each true class, one per row; framed cells are correct predictions." }),
    element("thead", {}, head), body));
  const counts = new Float64Array(size * size), shown = new Float64Array(size * size).fill(-1);
  return {
    draw() {
      counts.fill(0);
      for (let i = 0; i < model.cells.length; i++) counts[model.truth[i] * size + model.guess[i]] = model.cells[i];
      for (let i = 0; i < counts.length; i++) {
        if (shown[i] === counts[i]) continue;
        shown[i] = counts[i];
        const n = model.samples[Math.floor(i / size)], share = n ? counts[i] / n : 0;
        cells[i].textContent = n ? (counts[i] ? (100 * share + 1e-9).toFixed(1) : "0") : "";
        cells[i].title = `${whole(counts[i])} of ${whole(n)}`;
        cells[i].style.setProperty("--share", share.toFixed(3));
      }
    },
    remove() {},
  };
}

function pairs(model, place, controls) {
  const { facts } = model, search = find("input[type=search]", controls), sort = find("select", controls);
  const body = element("tbody"), rows = [];
  const head = element("tr", {}, ...["True class", "predicted as", "now", "as trained"].map((text) =>
    element("th", { scope: "col", text })));
  place.replaceChildren(element("table", { class: "pairs" },
    element("caption", { text: `The first ${MAX_PAIRS} pairs of classes, in samples.` }),
    element("thead", {}, head), body));
  for (let i = 0; i < MAX_PAIRS; i++) {
    const cells = [element("bdi"), element("bdi"), element("td", { class: "n" }), element("td", { class: "n" })];
    const line = element("tr", {}, element("td", {}, cells[0]), element("td", {}, cells[1]), cells[2], cells[3]);
    rows.push({ line, cells });
    body.append(line);
  }
  const keys = {
    now: (i) => model.cells[i], more: (i) => model.cells[i] - model.before.cells[i],
    less: (i) => model.before.cells[i] - model.cells[i],
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
    for (let i = 0; i < model.cells.length; i++) { // a sorted list of the largest so far, which most cells do not enter
      const value = key(i);
      if (value <= least || model.hit[i]) continue;
      if (allowed && !allowed[model.truth[i]] && !allowed[model.guess[i]]) continue;
      let at = top.length;
      while (at > 0 && top[at - 1][0] < value) at--;
      top.splice(at, 0, [value, i]);
      if (top.length > MAX_PAIRS) top.pop();
      if (top.length === MAX_PAIRS) least = top[MAX_PAIRS - 1][0];
    }
    rows.forEach(({ line, cells }, r) => {
      line.hidden = r >= top.length;
      if (r >= top.length) return;
      const i = top[r][1];
      setText(cells[0], className(facts, model.truth[i]));
      setText(cells[1], className(facts, model.guess[i]));
      setText(cells[2], whole(model.cells[i]));
      setText(cells[3], whole(model.before.cells[i]));
    });
  }
  const signal = new AbortController(), options = { signal: signal.signal };
  search.addEventListener("input", filter, options);
  sort.addEventListener("change", draw, options);
  return { draw, remove: () => signal.abort() };
}
