// The curve over gamma: errors, marks at 0 and at the chosen gamma, its interval, and a line at the gamma shown.

function gammaCurve(model, place, onGamma) {
  const { facts, curve } = model, labelled = facts.labelled;
  const stepped = uPlot.paths.stepped({ align: 1 });
  const series = [{
    label: labelled ? "balanced error" : "predicted shares off target", paths: stepped, width: 2.5,
    stroke: () => color("after"), points: { show: false },
  }];
  if (labelled) {
    series.push({ label: "error", paths: stepped, width: 1.5, dash: [6, 4], stroke: () => color("before"),
      points: { show: false } });
  }
  const now = element("div", { class: "now-line" });
  place.replaceChildren();
  const made = chart(place, {
    series, values: labelled ? [curve.gammas, curve.balanced, curve.error] : [curve.gammas, curve.balanced],
    x: "gamma", y: labelled ? "error, %" : "off target, %", label: `${series.map((one) => one.label).join(" and ")} over gamma, from ${
      curve.balanced[0].toFixed(2)} % as trained to ${curve.balanced.at(-1).toFixed(2)} % at gamma ${facts.path.end}`,
    height: 280, range: [0, facts.path.end],
    hooks: {
      drawAxes: [(u) => interval(u, facts)], draw: [(u) => marks(u, model)], setSize: [() => follow()],
      ready: [(u) => { u.over.append(now); follow(u); }],
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

function interval(u, facts) {
  if (!facts.interval) return;
  const { ctx, bbox } = u, [a, b] = facts.interval.map((g) => u.valToPos(Math.min(g, facts.path.end), "x", true));
  ctx.save();
  ctx.fillStyle = color("band");
  ctx.fillRect(a, bbox.top, Math.max(b - a, 2), bbox.height);
  ctx.restore();
}

function marks(u, model) {
  const { ctx, bbox } = u, ratio = devicePixelRatio, { facts, curve } = model;
  const at = (gamma) => {
    let i = 0;
    while (i + 1 < curve.gammas.length && curve.gammas[i + 1] <= gamma) i++;
    return curve.balanced[i];
  };
  ctx.save();
  ctx.font = `${12 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([]);
  const wanted = [[0, "as trained"]];
  if (facts.gamma <= facts.path.end && facts.gamma > 0) wanted.push([facts.gamma, "chosen"]);
  for (const [gamma, title] of wanted) {
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
    const wide = ctx.measureText(title).width, left = x + 10 * ratio + wide > bbox.left + bbox.width;
    const next = wanted.length > 1 && u.valToPos(facts.gamma, "x", true) < x + wide + 20 * ratio; // no room next to it
    ctx.fillStyle = color("ink");
    ctx.fillText(title, left ? x - wide - 10 * ratio : x + 10 * ratio,
      gamma > 0 ? bbox.top + 14 * ratio : y + (next ? -12 : 4) * ratio);
  }
  ctx.restore();
}
