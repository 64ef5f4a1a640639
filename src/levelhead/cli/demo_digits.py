"""The demo's own training: long-tailed digits, plainly and with WVN, and what RS makes of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..lab.data import digits, hold_out, imbalance
from ..lab.features import View, snapshot
from ..lab.nets import build
from ..lab.recipe import recipe
from ..lab.train import fit
from ..methods import METHODS
from ..runs.evaluate import Evaluation, evaluate
from ..runs.spec import check_seed

RATIO, HOLD_OUT = 50, 0.2


def demo(*, seed: int = 0, report: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """Train the baseline and WVN; choose gamma for each on held-out samples; judge all four heads on the test set.

    Args:
        seed: of initial weights, batches and crops.
        report: called after every epoch with its record, for progress.
    """
    check_seed(seed)
    torch.set_num_threads(1)  # for a network this small a second thread costs more than it gives
    began, schedule = time.monotonic(), recipe("digits")
    data = hold_out(imbalance(digits(), "long-tail", ratio=RATIO), HOLD_OUT)
    rows, view = [], View(schedule, data)
    for method in (METHODS["baseline"], METHODS["wvn"]):
        net = build("digits", data.classes, head=method.head, shape=data.shape, seed=seed)

        def on_epoch(_: Any, record: dict[str, Any], title: str = method.title) -> None:
            if report is not None:
                report({**record, "title": title, "of": schedule.epochs})

        fit(net, data, schedule, method, seed=seed, on_epoch=on_epoch)
        rows += rows_of(method.title, evaluate(snapshot(net, data, view)))
    return {"data": "digits", "ratio": RATIO, "counts": data.counts.tolist(), "held_out": len(data.splits["held-out"]),
            "test": len(data.test), "seed": seed, "seconds": round(time.monotonic() - began, 1), "rows": rows}


def text(result: dict[str, Any]) -> str:
    """The demo's table, and what it is of."""
    return "\n".join([
        f"Digits with a long tail, {result['counts'][0]} to {result['counts'][-1]} training samples a class, trained "
        f"here with seed {result['seed']} in {result['seconds']} s.",
        f"gamma chosen on {result['held_out']} held-out samples; measured on {result['test']} test samples, as many of "
        "each class. (lr and epochs were chosen with these in view: read the differences, not the levels.)",
        "",
        *table(result["rows"]),
    ])


def table(rows: Sequence[dict[str, Any]], more: dict[str, Callable[[dict[str, Any]], str]] | None = None) -> list[str]:
    """Lines of a table of leveled heads, with more columns by their titles."""
    more = more or {}
    head = f"{'':14}{'gamma':>7}{'error':>10}{'balanced error':>17}{'worst class, found':>22}"
    lines = [head + "".join(f"{title:>14}" for title in more)]
    for row in rows:
        worst = f"{row['worst_class']}: {100 * row['worst_recall']:.0f} %"
        line = (f"{row['method']:14}{row['gamma']:>7.2f}{100 * row['error']:>8.1f} %"
                f"{100 * row['balanced_error']:>15.1f} %{worst:>22}")
        lines.append((line + "".join(f"{say(row):>14}" for say in more.values())).rstrip())
    return lines


def rows_of(title: str, found: Evaluation) -> list[dict[str, Any]]:
    """The two rows of a network in the table: as trained, and after RS."""
    return [{"method": name, "gamma": gamma, "error": m.error, "balanced_error": m.balanced_error,
             "worst_class": found.names[m.worst_class], "worst_recall": m.worst_recall}
            for name, gamma, m in ((title, 0.0, found.before), (f"{title}+RS", found.gamma, found.after))]
