// Reliability diagrams: how often the model is right (bars) at each level of its confidence (the diagonal).

function reliability(place, titled) {
  place.replaceChildren(...titled.map(([title, found]) => {
    const size = 320, edge = 40, scale = (v) => v * (size - edge - 8);
    const x = (v) => edge + scale(v), y = (v) => size - edge - scale(v);
    const bins = found.n.length, drawing = svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img",
      "aria-label": `${title}: calibration error ${percent(found.error)}` });
    drawing.append(svg("rect", { class: "frame", x: x(0), y: y(1), width: scale(1), height: scale(1) }));
    found.n.forEach((n, b) => {
      if (!n) return;
      const width = scale(1 / bins) - 1, sure = found.confidence[b], right = found.right[b];
      drawing.append(svg("rect", { class: "right", x: x(b / bins) + 0.5, y: y(right), width, height: scale(right) }),
        svg("rect", { class: sure > right ? "over" : "under", x: x(b / bins) + 0.5, y: y(Math.max(sure, right)), width,
          height: scale(Math.abs(sure - right)) }));
    });
    drawing.append(svg("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
      svg("text", { x: x(0.5), y: size - 2, "text-anchor": "middle", text: "confidence, %" }),
      svg("text", { x: -y(0.5), y: 11, transform: "rotate(-90)", "text-anchor": "middle", text: "right, %" }));
    for (const v of [0, 0.5, 1]) {
      drawing.append(svg("text", { x: x(v), y: size - 18, "text-anchor": "middle", text: `${100 * v}` }),
        svg("text", { x: edge - 5, y: y(v) + 4, "text-anchor": "end", text: `${100 * v}` }));
    }
    return element("figure", {}, drawing, element("figcaption", {}, element("b", { text: title }),
      element("span", { text: `off by ${(100 * found.error).toFixed(2)} points on average, log loss ${found.log_loss.toFixed(3)}` })));
  }));
}
