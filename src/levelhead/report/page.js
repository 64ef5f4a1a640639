// The whole page: the slider, the readouts, and everything that follows them.

const STEP_KEY = 0.01, STEP_PAGE = 0.1;
let subject = 0, current = null;
const models = [];

function show(index) {
  subject = index;
  all("[data-subject]").forEach((node) => { node.hidden = Number(node.dataset.subject) !== index; });
  current?.parts.forEach((part) => part.remove?.());
  const facts = data.subjects[index], model = models[index];
  find("#explore").hidden = !model;
  current = { facts, model, parts: [], gamma: model ? null : facts.gamma };
  if (model) explore(facts, model);
  if (facts.norms) current.scatter = normScatter(facts, find("#norms"));
  find("#norms-card").hidden = !facts.norms;
  find("#training-card").hidden = !facts.log;
  if (facts.log) current.parts.push(normCurves(facts, find("#training")));
  calibrate(facts);
  if (model) setStop(model.nearest(Math.min(facts.gamma, facts.path.end)));
  else copyBoxes();
}

function explore(facts, model) {
  const slider = find("#gamma"), typed = find("#typed");
  slider.max = typed.max = facts.path.end;
  slider.step = 1 / data.step;
  setText(find("#end"), String(facts.path.end));
  all("[data-labelled]").forEach((node) => { node.hidden = (node.dataset.labelled === "yes") !== facts.labelled; });
  all("[data-group]").forEach((node) => { node.hidden = !(node.dataset.group in facts.groups) || !facts.labelled; });
  find("#best").hidden = facts.path.best == null || facts.chosen_on === "test";
  current.curve = gammaCurve(model, find("#curve"), (gamma) => setStop(model.nearest(gamma)));
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
  const gamma = model.gamma, exact = gamma === facts.gamma ? " (chosen)" : gamma === 0 ? " (as trained)" : "";
  find("#gamma").value = gamma;
  find("#gamma").setAttribute("aria-valuetext", facts.labelled
    ? `gamma ${gammaText(gamma)}${exact}, balanced error ${percent(model.balancedError())}`
    : `gamma ${gammaText(gamma)}${exact}`);
  if (document.activeElement !== find("#typed")) find("#typed").value = gammaText(gamma);
  setText(find("#where"), exact.trim().replace(/[()]/g, ""));
  find("#where").style.left = `${100 * gamma / facts.path.end}%`;
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
    setText(change, `${text}${way.includes("good") ? " better" : way.includes("bad") ? " worse" : ""}`);
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

// Writes the command and the code for the gamma shown; the chosen gamma has all its digits.
function copyBoxes() {
  const gamma = current.model ? current.model.gamma : current.facts.gamma;
  const text = gamma === current.facts.gamma ? String(gamma) : gammaText(gamma);
  setText(find("#command"), current.facts.code.command.replace("{gamma}", text));
  setText(find("#python"), current.facts.code.python.replace("{gamma}", text));
}

function calibrate(facts) {
  const found = facts.calibration;
  find("#calibration-card").hidden = !found;
  if (!found) return;
  reliability(find("#calibration"), [["As trained", found.before], ["Adjusted", found.after],
    [`Adjusted, temperature ${found.temperature.toFixed(2)}`, found.tempered]]);
  const apart = found.fitted_apart ? "held-out samples" : "of these samples";
  setText(find("#calibration-note"), `At the chosen gamma. The temperature was fitted on ${whole(found.fitted_on)} ${apart}.`);
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
  if (data.subjects.length) wireGamma();
}

function wireGamma() {
  const slider = find("#gamma"), typed = find("#typed");
  slider.addEventListener("input", () => setStop(current.model.nearest(Number(slider.value))));
  slider.addEventListener("keydown", (event) => {
    const { model } = current, gamma = model.stops[wanted], way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    const by = { PageUp: STEP_PAGE, PageDown: -STEP_PAGE }[event.key];
    if (way && event.shiftKey) setStop(model.nextChange(wanted, way));
    else if (way) setStop(model.nearest(gamma + way * STEP_KEY));
    else if (by) setStop(model.nearest(gamma + by));
    else return;
    event.preventDefault();
  });
  typed.addEventListener("change", () => {
    const gamma = Number(typed.value);
    if (typed.value !== "" && Number.isFinite(gamma)) setStop(current.model.nearest(Math.round(gamma * data.step) / data.step));
  });
  typed.addEventListener("blur", () => { if (current.model) typed.value = gammaText(current.model.gamma); });
  find("#zero").addEventListener("click", () => setStop(0));
  find("#chosen").addEventListener("click", () => setStop(current.model.nearest(current.facts.gamma)));
  find("#best").addEventListener("click", () => setStop(current.model.nearest(current.facts.path.best)));
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
      models.push(able && facts.path ? new Model(facts, await inflate(facts.path.data)) : null);
    }
    if (find("#overlay")) overlay(models, find("#overlay"));
    show(0);
  }
  document.documentElement.dataset.ready = "yes";
}

begin();
