// The curves of every rule over its strength: the chosen one bold, marks of the one looked at, and a line at the strength.

function gammaCurve(rules, model, place, onGamma) {
  const { facts } = model, labelled = facts.labelled, stepped = uPlot.paths.stepped({ align: 1 });
  const end = Math.max(model.rule.end, ...rules.filter(({ rule }) => rule.end < 4 * model.rule.end).map(({ rule }) => rule.end));
  const lines = rules.map((one, i) => ({
    name: one.rule.title + chosenMark(one.rule, i, rules), values: [one.curve.gammas, one.curve.balanced],
    style: { ...lineStyle(i), width: one === model || i === 0 ? 3 : 1.5, dash: i === 0 ? [] : lineStyle(i).dash },
  }));
  facts.drawn.forEach(({ title, gammas, values }, i) => lines.push({ name: `${title}, share of it`, values: [gammas, values],
    style: { ...lineStyle(rules.length + i), width: 1.5 } }));
  if (labelled) {
    lines.push({ name: `plain error, ${model.rule.title}`, values: [model.curve.gammas, model.curve.error],
      style: { width: 1.5, dash: [6, 4], stroke: () => color("before") } });
  }
  const titles = ["as trained", "chosen"].map((text) => element("span", { class: "mark-label", text, hidden: "" }));
  const what = labelled ? "balanced error" : "predicted shares off target", now = element("div", { class: "now-line" });
  place.replaceChildren();
  const made = chart(place, {
    series: lines.map(({ name, style }) => ({ label: name, paths: stepped, spanGaps: true, points: { show: false }, ...style })),
    values: uPlot.join(lines.map(({ values }) => values)),
    x: "strength of the rule", y: labelled ? "error, %" : "off target, %",
    label: `${what} by every rule over its strength; by ${model.rule.title} from ${
      model.curve.balanced[0].toFixed(2)} % as trained to ${model.curve.balanced.at(-1).toFixed(2)} % at ${model.rule.end}`,
    height: 300, range: [0, end],
    hooks: {
      drawAxes: [(u) => interval(u, model.rule)], draw: [(u) => marks(u, model, titles)], setSize: [() => follow()],
      ready: [(u) => { u.over.append(now, ...titles); follow(u); marks(u, model, titles); }],
    },
  });
  function follow(u = made) {
    if (u) now.style.transform = `translateX(${u.valToPos(model.gamma, "x")}px)`;
  }
  const drag = (event) => {
    if (event.buttons !== 1) return;
    onGamma(made.posToVal(event.clientX - made.over.getBoundingClientRect().left, "x"));
  };
  made.over.addEventListener("pointerdown", drag);
  made.over.addEventListener("pointermove", drag);
  return { follow, remove: made.remove };
}

function interval(u, rule) {
  if (!rule.interval) return;
  const { ctx, bbox } = u, [a, b] = rule.interval.map((g) => u.valToPos(Math.min(g, rule.end), "x", true));
  ctx.save();
  ctx.fillStyle = color("band");
  ctx.fillRect(a, bbox.top, Math.max(b - a, 2), bbox.height);
  ctx.restore();
}

// Titles are elements above the chart, on a ground of their own, so that no line strikes through them.
function marks(u, model, titles) {
  const { ctx, bbox } = u, ratio = devicePixelRatio, { rule, curve } = model;
  const at = (gamma) => {
    let i = 0;
    while (i + 1 < curve.gammas.length && curve.gammas[i + 1] <= gamma) i++;
    return curve.balanced[i];
  };
  ctx.save();
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([]);
  const wanted = [0];
  if (rule.gamma != null && rule.gamma <= rule.end && rule.gamma > 0) wanted.push(rule.gamma);
  wanted.forEach((gamma, i) => {
    const x = u.valToPos(gamma, "x", true), y = u.valToPos(at(gamma), "y", true);
    ctx.strokeStyle = color("ink");
    ctx.fillStyle = color("card");
    if (gamma > 0) {
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.setLineDash([]);
    }
    ctx.beginPath();
    if (gamma > 0) { // a diamond; the model as trained is a ring
      const r = 6 * ratio;
      ctx.moveTo(x, y - r); ctx.lineTo(x + r, y); ctx.lineTo(x, y + r); ctx.lineTo(x - r, y); ctx.closePath();
    } else ctx.arc(x, y, 5 * ratio, 0, 7);
    ctx.fill();
    ctx.stroke();
    const [across, down] = [(x - bbox.left) / ratio, (y - bbox.top) / ratio], title = titles[i];
    title.hidden = false;
    const { offsetWidth: wide, offsetHeight: high } = title, room = u.over.clientWidth;
    const below = down - high - 10 < high + 4; // above the ring, unless the title of what was chosen is there
    const top = gamma > 0 ? 2 : below ? Math.min(down + 10, u.over.clientHeight - high) : down - high - 10;
    title.style.transform = `translate(${across + 10 + wide > room ? across - wide - 10 : across + 10}px, ${top}px)`;
  });
  ctx.restore();
}
