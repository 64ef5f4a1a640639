// Classes as bars. Only the rows in view exist, so a thousand classes cost no more than twenty.

const ROW = 46; // px, as in page.css

function classBars(model, root) {
  const { facts } = model, labelled = facts.labelled, view = find("[data-rows]", root), note = find("[data-note]", root);
  const search = find("input[type=search]", root), sort = find("select", root);
  const now = (c) => labelled ? model.recall(c) : model.share(c);
  const was = (c) => labelled ? model.recall(c, model.before) : model.share(c, model.before);
  const mark = (c) => labelled ? was(c) : model.target(c);
  const full = labelled ? 1 : Math.max(...facts.counts.map((_, c) => Math.max(model.target(c), was(c)))) * 1.25;
  const orders = {
    frequent: (a, b) => facts.counts[b] - facts.counts[a] || a - b,
    rare: (a, b) => facts.counts[a] - facts.counts[b] || a - b,
    low: (a, b) => low(now(a)) - low(now(b)) || a - b,
    gain: (a, b) => low(now(b) - was(b)) - low(now(a) - was(a)) || a - b,
    loss: (a, b) => low(now(a) - was(a)) - low(now(b) - was(b)) || a - b,
    name: (a, b) => className(facts, a).localeCompare(className(facts, b), "en", { numeric: true }) || a - b,
  };
  const low = (x) => Number.isFinite(x) ? x : 2;
  const tall = element("div", { class: "tall", role: "presentation" });
  const body = element("div", { class: "rows", role: "rowgroup" });
  tall.append(body);
  view.replaceChildren(tall);
  const rows = [];
  let shown = [], printing = false;

  function choose() {
    const text = search.value.trim().toLowerCase();
    shown = facts.counts.map((_, c) => c).filter((c) => className(facts, c).toLowerCase().includes(text));
    shown.sort(orders[sort.value]);
    tall.style.height = `${shown.length * ROW}px`;
    view.setAttribute("aria-rowcount", shown.length);
    setText(note, shown.length === facts.classes ? `${whole(facts.classes)} classes`
      : `${whole(shown.length)} of ${whole(facts.classes)} classes`);
    draw();
  }

  function draw() {
    const first = printing ? 0 : Math.max(0, Math.floor(view.scrollTop / ROW) - 2);
    const last = printing ? Math.min(shown.length, 100)
      : Math.min(shown.length, Math.ceil((view.scrollTop + view.clientHeight) / ROW) + 2);
    const more = !printing && view.scrollTop + view.clientHeight < shown.length * ROW - 1; // below the last one in view
    root.classList.toggle("more", more);
    find("[data-more]", root).hidden = !more;
    body.style.transform = `translateY(${first * ROW}px)`;
    while (rows.length < last - first) {
      rows.push(makeRow());
      body.append(rows.at(-1).root);
    }
    rows.forEach((row, i) => {
      row.root.hidden = first + i >= last;
      if (first + i < last) fill(row, shown[first + i], first + i);
    });
  }

  function fill(row, c, index) {
    const value = now(c), before = was(c);
    if (row.c !== c || row.index !== index) {
      row.c = c;
      row.index = index;
      row.root.setAttribute("aria-rowindex", index + 1);
      setText(row.name, className(facts, c));
      row.name.title = className(facts, c);
      setText(row.count, `${whole(facts.counts[c])} in training`);
      row.tick.style.left = `${100 * Math.min(1, mark(c) / full || 0)}%`;
      row.root.dataset.class = c;
    }
    row.fill.style.width = `${100 * Math.min(1, value / full || 0)}%`;
    setText(row.value, percent(value));
    setText(row.change, points(value - before));
    row.change.className = labelled ? changeClass(row.change.textContent, false) : "change";
  }

  function makeRow() {
    const parts = {
      name: element("bdi", { class: "name" }), count: element("span", { class: "count" }),
      value: element("span", { class: "value" }), change: element("span", { class: "change" }),
      fill: element("i", { class: "fill" }), tick: element("i", { class: "tick" }),
    };
    parts.root = element("div", { class: "row", role: "row" },
      element("span", { role: "rowheader", class: "who" }, parts.name),
      element("span", { role: "cell", class: "many" }, parts.count),
      element("span", { role: "cell", class: "figures" }, parts.value, " ", parts.change),
      element("span", { "aria-hidden": "true", class: "bar" }, parts.fill, parts.tick));
    return parts;
  }

  const signal = new AbortController(), options = { signal: signal.signal };
  search.addEventListener("input", choose, options);
  sort.addEventListener("change", () => { view.scrollTop = 0; choose(); }, options);
  view.addEventListener("scroll", () => requestAnimationFrame(draw), options);
  addEventListener("beforeprint", () => { printing = true; draw(); }, options);
  addEventListener("afterprint", () => { printing = false; draw(); }, options);
  addEventListener("resize", () => requestAnimationFrame(draw), options);
  const settled = () => { if (["low", "gain", "loss"].includes(sort.value)) choose(); };
  choose();
  return { draw, settled, remove: () => signal.abort() };
}
