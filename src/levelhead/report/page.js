// What belongs together: the slider, the readouts, and everything that follows them.

const STEP_KEY = 0.01, STEP_PAGE = 0.1;
let subject = 0, current = null;
const walks = [];

function show(index) {
  subject = index;
  all("[data-subject]").forEach((node) => { node.hidden = Number(node.dataset.subject) !== index; });
  current?.parts.forEach((part) => part.remove?.());
  const facts = data.subjects[index], walk = walks[index];
  find("#explore").hidden = !walk;
  current = { facts, walk, parts: [], gamma: walk ? null : facts.gamma };
  if (walk) explore(facts, walk);
  if (facts.norms) current.scatter = normScatter(facts, find("#norms"));
  find("#norms-card").hidden = !facts.norms;
  find("#training-card").hidden = !facts.log;
  if (facts.log) current.parts.push(normCurves(facts, find("#training")));
  calibrate(facts);
  if (walk) setStop(walk.nearest(Math.min(facts.gamma, facts.path.end)));
  else copyBoxes();
}

function explore(facts, walk) {
  const slider = find("#gamma"), typed = find("#typed");
  slider.max = typed.max = facts.path.end;
  slider.step = 1 / data.step;
  say(find("#end"), String(facts.path.end));
  all("[data-labelled]").forEach((node) => { node.hidden = (node.dataset.labelled === "yes") !== facts.labelled; });
  all("[data-group]").forEach((node) => { node.hidden = !(node.dataset.group in facts.groups) || !facts.labelled; });
  find("#best").hidden = facts.path.best == null || facts.chosen_on === "test";
  current.curve = curveOf(walk, find("#curve"), (gamma) => setStop(walk.nearest(gamma)));
  current.bars = classBars(walk, find("#classes"));
  current.confusion = facts.labelled ? confusionOf(walk, find("#confusion-card")) : null;
  find("#confusion-card").hidden = !facts.labelled;
  current.parts.push(current.curve, current.bars, ...(current.confusion ? [current.confusion] : []));
}

let frame = 0, settle = 0, wanted = 0;

// Ask for a stop; it is drawn with the next frame, once, however many were asked for.
function setStop(stop) {
  wanted = Math.max(0, Math.min(current.walk.stops.length - 1, stop));
  frame ||= requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  const { walk, facts } = current;
  if (walk.stop !== wanted) walk.goTo(wanted);
  const gamma = walk.gamma, exact = gamma === facts.gamma ? " (chosen)" : gamma === 0 ? " (as trained)" : "";
  find("#gamma").value = gamma;
  find("#gamma").setAttribute("aria-valuetext", facts.labelled
    ? `gamma ${gammaText(gamma)}${exact}, balanced error ${percent(walk.balancedError())}`
    : `gamma ${gammaText(gamma)}${exact}`);
  if (document.activeElement !== find("#typed")) find("#typed").value = gammaText(gamma);
  say(find("#where"), exact.trim().replace(/[()]/g, ""));
  find("#where").style.left = `${100 * gamma / facts.path.end}%`;
  readouts(walk, facts);
  current.curve.follow();
  current.bars.draw();
  current.confusion?.draw();
  current.scatter?.draw(gamma);
  copyBoxes();
  clearTimeout(settle);
  settle = setTimeout(() => current.bars.settled(), 250);
}

function readouts(walk, facts) {
  const put = (key, now, before, lower) => {
    const node = find(`[data-read="${key}"]`);
    say(find("[data-now]", node), percent(now));
    say(find("[data-was]", node), percent(before));
    const change = find("[data-change]", node), text = points(now - before), way = changeClass(text, lower);
    say(change, `${text}${way.includes("good") ? " better" : way.includes("bad") ? " worse" : ""}`);
    change.className = way;
  };
  if (!facts.labelled) {
    put("mismatch", walk.mismatch(), walk.mismatch(walk.before), true);
    return;
  }
  put("error", walk.error(), walk.error(walk.before), true);
  put("balanced", walk.balancedError(), walk.balancedError(walk.before), true);
  for (const [name, members] of Object.entries(facts.groups)) {
    put(name, walk.meanRecall(members), walk.meanRecall(members, walk.before), false);
  }
}

// The command and the code, for the gamma that is shown; the chosen one to its last digit.
function copyBoxes() {
  const gamma = current.walk ? current.walk.gamma : current.facts.gamma;
  const text = gamma === current.facts.gamma ? String(gamma) : gammaText(gamma);
  say(find("#command"), current.facts.code.command.replace("{gamma}", text));
  say(find("#python"), current.facts.code.python.replace("{gamma}", text));
}

function calibrate(facts) {
  const found = facts.calibration;
  find("#calibration-card").hidden = !found;
  if (!found) return;
  reliability(find("#calibration"), [["As trained", found.before], ["Adjusted", found.after],
    [`Adjusted, temperature ${found.temperature.toFixed(2)}`, found.tempered]]);
  const apart = found.fitted_apart ? "held-out samples" : "of these very samples";
  say(find("#calibration-note"), `At the chosen gamma. The temperature was fitted on ${whole(found.fitted_on)} ${apart}.`);
}

async function copy(button) {
  const text = find(`#${button.dataset.copy}`).textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no clipboard for pages from disk in some browsers: select it, and copy the old way
    const range = document.createRange();
    range.selectNodeContents(find(`#${button.dataset.copy}`));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  say(find("#said"), "Copied");
  say(button, "Copied");
  setTimeout(() => say(button, "Copy"), 1500);
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  say(find("#theme"), name === "dark" ? "Light theme" : "Dark theme");
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
  slider.addEventListener("input", () => setStop(current.walk.nearest(Number(slider.value))));
  slider.addEventListener("keydown", (event) => {
    const { walk } = current, gamma = walk.stops[wanted], way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    const by = { PageUp: STEP_PAGE, PageDown: -STEP_PAGE }[event.key];
    if (way && event.shiftKey) setStop(walk.nextChange(wanted, way));
    else if (way) setStop(walk.nearest(gamma + way * STEP_KEY));
    else if (by) setStop(walk.nearest(gamma + by));
    else return;
    event.preventDefault();
  });
  typed.addEventListener("change", () => {
    const gamma = Number(typed.value);
    if (typed.value !== "" && Number.isFinite(gamma)) setStop(current.walk.nearest(Math.round(gamma * data.step) / data.step));
  });
  typed.addEventListener("blur", () => { if (current.walk) typed.value = gammaText(current.walk.gamma); });
  find("#zero").addEventListener("click", () => setStop(0));
  find("#chosen").addEventListener("click", () => setStop(current.walk.nearest(current.facts.gamma)));
  find("#best").addEventListener("click", () => setStop(current.walk.nearest(current.facts.path.best)));
}

// On paper the page is light: charts are drawn again for it, and then as they were.
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
  else say(find("#theme"), dark ? "Light theme" : "Dark theme");
  wire();
  if (data.subjects.length) {
    const able = "DecompressionStream" in window;
    find("#old").hidden = able;
    for (const facts of data.subjects) {
      walks.push(able && facts.path ? new Walk(facts, await inflate(facts.path.data)) : null);
    }
    if (find("#overlay")) overlay(walks, find("#overlay"));
    show(0);
  }
  document.documentElement.dataset.ready = "yes";
}

begin();
