// The head: the norm of each class's weight vector against its training samples.

const svg = (name, attributes, ...children) => element(`svg:${name}`, attributes, ...children);

// Returns round values between two powers of ten: 1, 2, 5, 10, ... or only 1, 10, ... over a wide range.
function decades(low, high) {
  const steps = high - low > 2.2 ? [1] : high - low > 0.25 ? [1, 2, 5] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];
  const found = [];
  for (let power = Math.floor(low); power <= high; power++) {
    for (const step of steps) {
      const value = Number((step * 10 ** power).toPrecision(3)), at = Math.log10(value);
      if (at >= low - 1e-9 && at <= high + 1e-9) found.push(value);
    }
  }
  return found;
}

function normScatter(facts, { rule, gamma: most_gamma }, place) {
  place.replaceChildren();
  const width = 460, height = 300, left = 60, bottom = 40, top = 12, right = 12;
  const most = Math.max(...facts.counts);
  const after = (c, gamma) => rule === "rescale" ? facts.norms[c] * (most / facts.counts[c]) ** gamma
    : rule === "tau" ? facts.norms[c] ** (1 - gamma) : facts.norms[c];
  const every = [...facts.norms, ...facts.counts.map((_, c) => after(c, most_gamma ?? 0))].filter((n) => n > 0);
  const [low, high] = [Math.log10(Math.min(...every)) - 0.05, Math.log10(Math.max(...every)) + 0.05];
  const [few, many] = [Math.log10(Math.min(...facts.counts)), Math.log10(most)];
  const x = (n) => left + (many > few ? (Math.log10(n) - few) / (many - few) : 0.5) * (width - left - right - 16) + 8;
  const y = (norm) => height - bottom - (Math.min(Math.max(Math.log10(norm), low), high) - low) / (high - low)
    * (height - bottom - top);
  const was = svg("path", { class: "was" }), now = svg("path", { class: "now" });
  const frame = svg("g", { class: "axes" });
  for (const tick of decades(low, high)) {
    frame.append(svg("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end", text: String(tick) }));
  }
  for (const tick of decades(few, many)) {
    frame.append(svg("text", { x: x(tick), y: height - bottom + 18, "text-anchor": "middle", text: whole(tick) }));
  }
  frame.append(svg("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle",
    text: "training samples of the class; both axes logarithmic" }),
  svg("text", { x: -(height - bottom + top) / 2, y: 12, transform: "rotate(-90)", "text-anchor": "middle",
    text: "norm of the weight vector" }));
  const r = facts.classes > 200 ? 2 : 4;
  was.setAttribute("d", facts.norms.map((norm, c) =>
    `M${(x(facts.counts[c]) - r).toFixed(1)} ${y(norm).toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`
  ).join(""));
  place.append(svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "Norm of each class's weight vector against its training samples, as trained and at the gamma shown" },
  frame, was, now));
  return {
    draw(gamma) {
      let d = "";
      for (let c = 0; c < facts.classes; c++) {
        d += `M${x(facts.counts[c]).toFixed(1)} ${(y(after(c, gamma)) - r - 1).toFixed(1)}l${r + 1} ${r + 1}l${-r - 1} ${
          r + 1}l${-r - 1} ${-r - 1}z`;
      }
      now.setAttribute("d", d);
    },
  };
}

function normCurves(facts, place) {
  place.replaceChildren();
  const { epochs, classes, norms } = facts.log;
  return chart(place, {
    series: classes.map((c, i) => ({
      label: `${className(facts, c)} (${whole(facts.counts[c])})`, ...lineStyle(i), points: { show: false },
    })),
    values: [epochs, ...norms], x: "epoch", y: "norm of the weight vector", height: 300,
    label: "Norms of the weight vectors over the epochs of training",
    range: [epochs[0], epochs.at(-1)],
  });
}
