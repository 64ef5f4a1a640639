// Several models side by side: a table that sorts by any column, and their curves in one chart.

function sortable(table) {
  const body = table.tBodies[0], buttons = all("th button", table);
  buttons.forEach((button, column) => button.addEventListener("click", () => {
    const head = button.closest("th"), down = head.getAttribute("aria-sort") === "ascending";
    buttons.forEach((other) => other.closest("th").removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const order = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)], numeric = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
      return numeric ? x - y : x.localeCompare(y, "en", { numeric: true });
    });
    body.append(...(down ? order.reverse() : order));
  }));
}

function overlay(models, place) {
  place.replaceChildren();
  const shown = models.map(([model]) => model).filter((model) => model && model.facts.labelled);
  if (shown.length < 2) return;
  const joined = uPlot.join(shown.map(({ curve }) => [curve.gammas, curve.balanced]));
  const stepped = uPlot.paths.stepped({ align: 1 });
  chart(place, {
    series: shown.map(({ facts, rule }, i) => ({
      label: `${facts.title}: ${rule.title}`, ...lineStyle(i), paths: stepped, spanGaps: true, points: { show: false },
    })),
    values: joined, x: "strength of the rule", y: "balanced error, %", height: 280,
    label: "Balanced error of every model over the strength of its rule",
    range: [0, Math.max(...shown.map(({ rule }) => rule.end))],
  });
}
