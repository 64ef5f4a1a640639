// A uPlot chart in the page's colors, as wide as its container.

const charts = new Set();

function chart(place, { series, values, height = 260, x, y, label, hooks = {}, range }) {
  const axis = (label, more) => ({
    stroke: () => color("soft"), grid: { stroke: () => color("grid"), width: 1 }, ticks: { show: false }, label,
    labelSize: 22, labelFont: "13px system-ui, sans-serif", font: "12px system-ui, sans-serif", ...more,
  });
  const made = new uPlot({
    width: Math.max(240, place.clientWidth), height, legend: { live: false, markers: { width: 2, fill: () => "transparent",
      dash: (u, i) => u.series[i].dash?.length ? "dashed" : "solid", stroke: (u, i) => u.series[i].stroke(u, i) } },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: false, range }, y: { auto: true } },
    axes: [axis(x, { size: 34 }), axis(y, { size: 48 })],
    series: [{ label: x }, ...series], hooks,
  }, values, place);
  const canvas = find("canvas", place);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  const seen = new ResizeObserver(() => {
    const width = Math.max(240, place.clientWidth);
    if (width !== made.width) made.setSize({ width, height });
  });
  seen.observe(place);
  charts.add(made);
  made.remove = () => { seen.disconnect(); charts.delete(made); made.destroy(); };
  return made;
}

const redrawCharts = () => charts.forEach((made) => made.redraw(false, true));

const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];

// The style of line i: each has its own color and dash, so that color alone never tells lines apart.
const lineStyle = (i) => ({
  stroke: () => color(`line-${i % 6}`), width: 2, dash: DASHES[Math.floor(i / 6 + i) % DASHES.length],
});
