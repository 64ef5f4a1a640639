// The whole page: the slider, the readouts, and everything that follows them.

const STEPS_KEY = 100, STEPS_PAGE = 1000; // stops of the slider: 0.01 and 0.1 of gamma, unless scores have another scale
let current = null;
const models = []; // of each subject, a model for each rule, the chosen one first

function show(index) {
  all("[data-subject]").forEach((node) => { node.hidden = Number(node.dataset.subject) !== index; });
  const facts = data.subjects[index];
  find("#training-card").hidden = !facts.log;
  calibrate(facts);
  find("#explore").hidden = !models[index].length;
  find("#rule-field").hidden = models[index].length < 2;
  find("#rule").replaceChildren(...models[index].map(({ rule }, i) =>
    element("option", { value: i, text: rule.title + chosenMark(rule, i, models[index]) })));
  showRule(index, 0);
}

// The chosen rule is the first, unless the model as trained was chosen: that is any rule at 0.
const chosenMark = (rule, i, every) => i === 0 && every.length > 1 && rule.gamma !== 0 ? " (chosen)" : "";

// Shows a subject by one of its rules: everything below the slider follows that rule.
function showRule(index, which) {
  const facts = data.subjects[index], model = models[index][which], before = current;
  before?.parts.forEach((part) => part.remove?.());
  current = { index, facts, model, parts: [] };
  if (model) explore(facts, model);
  const scaled = facts.norms && model && ["rescale", "tau"].includes(model.rule.rule); // a shift leaves norms alone
  find("#norms-card").hidden = !scaled;
  if (scaled) current.scatter = normScatter(facts, model.rule, find("#norms"));
  if (facts.log) current.parts.push(normCurves(facts, find("#training")));
  if (model) setStop(model.nearest(Math.min(model.rule.gamma ?? model.rule.best, model.rule.end)));
}

function explore(facts, model) {
  const slider = find("#gamma"), typed = find("#typed"), { rule } = model;
  slider.max = typed.max = rule.end;
  slider.step = typed.step = 1 / rule.step;
  setText(find("#end"), String(rule.end));
  setText(find("#gamma-label"), rule.share ? "share" : "gamma");
  find("#share-note").hidden = !rule.share;
  find("#chosen").hidden = rule.gamma == null;
  all("[data-labelled]").forEach((node) => { node.hidden = (node.dataset.labelled === "yes") !== facts.labelled; });
  all("[data-group]").forEach((node) => { node.hidden = !(node.dataset.group in facts.groups) || !facts.labelled; });
  find("#best").hidden = rule.best == null || facts.chosen_on === "test";
  current.curve = gammaCurve(models[current.index], model, find("#curve"), (gamma) => setStop(model.nearest(gamma)));
  current.bars = classBars(model, find("#classes"));
  current.confusion = facts.labelled ? confusionView(model, find("#confusion-card")) : null;
  find("#confusion-card").hidden = !facts.labelled;
  current.parts.push(current.curve, current.bars, ...(current.confusion ? [current.confusion] : []));
}

let frame = 0, settle = 0, wanted = 0;

// Asks for a stop; only the last one asked for is drawn, with the next frame.
function setStop(stop) {
  wanted = Math.max(0, Math.min(current.model.stops.length - 1, stop));
  frame ||= requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  const { model, facts } = current;
  if (model.stop !== wanted) model.goTo(wanted);
  const { rule, gamma } = model, exact = gamma === rule.gamma ? " (chosen)" : gamma === 0 ? " (as trained)" : "";
  find("#gamma").value = gamma;
  find("#gamma").setAttribute("aria-valuetext", facts.labelled
    ? `gamma ${model.text(gamma)}${exact}, balanced error ${percent(model.balancedError())}`
    : `gamma ${model.text(gamma)}${exact}`);
  if (document.activeElement !== find("#typed")) find("#typed").value = model.text(gamma);
  setText(find("#where"), exact.trim().replace(/[()]/g, ""));
  find("#where").style.left = `${100 * gamma / rule.end}%`;
  readouts(model, facts);
  current.curve.follow();
  current.bars.draw();
  current.confusion?.draw();
  current.scatter?.draw(gamma);
  copyBoxes();
  clearTimeout(settle);
  settle = setTimeout(() => current.bars.settled(), 250);
}

function readouts(model, facts) {
  const put = (key, now, before, lower) => {
    const node = find(`[data-read="${key}"]`);
    setText(find("[data-now]", node), percent(now));
    setText(find("[data-was]", node), percent(before));
    const change = find("[data-change]", node), text = points(now - before), way = changeClass(text, lower);
    setText(change, `${text} points${way.includes("good") ? ", better" : way.includes("bad") ? ", worse" : ""}`);
    change.className = way;
  };
  if (!facts.labelled) {
    put("mismatch", model.mismatch(), model.mismatch(model.before), true);
    return;
  }
  put("error", model.error(), model.error(model.before), true);
  put("balanced", model.balancedError(), model.balancedError(model.before), true);
  for (const [name, members] of Object.entries(facts.groups)) {
    put(name, model.meanRecall(members), model.meanRecall(members, model.before), false);
  }
}

// Writes the command and the code for the rule and the strength shown; what was chosen is next to the verdict.
function copyBoxes() {
  const { model } = current, { code } = model.rule;
  find("#shown-code").hidden = !code || model.gamma === 0;
  if (!code) return;
  const text = model.text(model.gamma, true);
  setText(find("#command"), code.command.replace("{gamma}", text));
  setText(find("#python"), code.python.replace("{gamma}", text));
}

function calibrate(facts) {
  const found = facts.calibration;
  find("#calibration-card").hidden = !found;
  if (!found) return;
  reliability(find("#calibration"), [["As trained", found.before], ["Adjusted", found.after],
    [`Adjusted, temperature ${found.temperature.toFixed(2)}`, found.tempered]]);
  const apart = found.fitted_apart ? "held-out samples" : "of these samples";
  setText(find("#calibration-note"), found.own
    ? `By what was chosen. ${found.weighed}, here and where the temperature was fitted: ${found.temperature.toPrecision(4)}, which belongs to the choice. Divide the adjusted scores by it.`
    : `By what was chosen. ${found.weighed}, here and where the temperature was fitted, on ${whole(found.fitted_on)} ${apart}.`);
}

async function copy(button) {
  const text = find(`#${button.dataset.copy}`).textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // some browsers have no clipboard for pages from disk: select the text, and copy the old way
    const range = document.createRange();
    range.selectNodeContents(find(`#${button.dataset.copy}`));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  setText(find("#said"), "Copied");
  setText(button, "Copied");
  setTimeout(() => setText(button, "Copy"), 1500);
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  setText(find("#theme"), name === "dark" ? "Light theme" : "Dark theme");
  try { localStorage.setItem("levelhead-theme", name); } catch { /* a page from disk may have no storage */ }
  redrawCharts();
}

function wire() {
  find("#theme").addEventListener("click", () =>
    theme(getComputedStyle(document.documentElement).colorScheme === "dark" ? "light" : "dark"));
  all("table.sortable").forEach(sortable);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
  all("[data-copy]").forEach((button) => button.addEventListener("click", () => copy(button)));
  find("#subject")?.addEventListener("change", (event) => show(Number(event.target.value)));
  find("#rule")?.addEventListener("change", (event) => showRule(current.index, Number(event.target.value)));
  if (data.subjects.length) wireGamma();
}

function wireGamma() {
  const slider = find("#gamma"), typed = find("#typed");
  slider.addEventListener("input", () => setStop(current.model.nearest(Number(slider.value))));
  slider.addEventListener("keydown", (event) => {
    const { model } = current, gamma = model.stops[wanted], way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    const by = { PageUp: 1, PageDown: -1 }[event.key], unit = 1 / model.rule.step;
    if (way && event.shiftKey) setStop(model.nextChange(wanted, way));
    else if (way) setStop(model.nearest(gamma + way * STEPS_KEY * unit));
    else if (by) setStop(model.nearest(gamma + by * STEPS_PAGE * unit));
    else return;
    event.preventDefault();
  });
  typed.addEventListener("change", () => {
    const gamma = Number(typed.value);
    if (typed.value !== "" && Number.isFinite(gamma)) setStop(current.model.nearest(Math.round(gamma * current.model.rule.step) / current.model.rule.step));
  });
  typed.addEventListener("blur", () => { if (current.model) typed.value = current.model.text(current.model.gamma); });
  find("#zero").addEventListener("click", () => setStop(0));
  find("#chosen").addEventListener("click", () => setStop(current.model.nearest(current.model.rule.gamma)));
  find("#best").addEventListener("click", () => setStop(current.model.nearest(current.model.rule.best)));
}

// The page prints in its light theme: charts are drawn again before printing, and after it.
addEventListener("beforeprint", () => {
  document.documentElement.dataset.before = document.documentElement.dataset.theme ?? "";
  document.documentElement.dataset.theme = "light";
  redrawCharts();
});
addEventListener("afterprint", () => {
  const { before } = document.documentElement.dataset;
  if (before) document.documentElement.dataset.theme = before;
  else delete document.documentElement.dataset.theme;
  redrawCharts();
});

async function begin() {
  let kept = null;
  try { kept = localStorage.getItem("levelhead-theme"); } catch { /* as above */ }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (kept === "dark" || kept === "light") theme(kept);
  else setText(find("#theme"), dark ? "Light theme" : "Dark theme");
  wire();
  if (data.subjects.length) {
    const able = "DecompressionStream" in window;
    find("#old").hidden = able;
    for (const facts of data.subjects) {
      models.push(able ? await Promise.all([facts.path, ...facts.others].filter(Boolean).map(async (rule) => new Model(facts, rule, await inflate(rule.data)))) : []);
    }
    if (find("#overlay")) overlay(models, find("#overlay"));
    show(0);
  }
  document.documentElement.dataset.ready = "yes";
}

begin();
