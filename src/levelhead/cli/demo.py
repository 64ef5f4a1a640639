"""The demo: a real network leveled within seconds, one trained here and now, and a page to look at."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.warnings import LevelheadWarning
from ..gamma.tune import match_prior
from ..io.snapshot import Snapshot
from ..methods import METHODS
from ..paper.record import SHIPPED_COLUMN, shipped_snapshots
from ..paper.trainings import tables
from ..report import of_snapshot, write
from ..runs.evaluate import evaluate
from .demo_digits import demo as on_digits
from .demo_digits import rows_of, table
from .demo_digits import text as text_of_digits


def demo(
    page: str | Path, *, seed: int = 0, progress: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Level the networks that come with the package, write a page on the first, then train on digits and level those.

    Args:
        page: where to write, as .html.
        seed: of the training on digits.
        progress: called after every epoch of it with its record.
    """
    began, networks = time.monotonic(), shipped_snapshots()
    published = {row["method"]: row["published"][tables()["table1"]["columns"].index(SHIPPED_COLUMN)]
                 for row in tables()["table1"]["rows"]}
    rows = [{**row, "published": published.get(row["key"])}
            for method, snapshot in networks.items() for row in _leveled(method, snapshot)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelheadWarning)  # the page shows them
        subject = of_snapshot(networks["baseline"], title="ResNet-32 on long-tailed CIFAR-10",
                              facts={"made by": "levelhead demo"})
        written = write(page, [subject], command=f"levelhead demo --report {page}")
    counts = networks["baseline"].counts
    real = {"data": "cifar10", "counts": counts.tolist(), "test": len(networks["baseline"].labels["test"]),
            "seconds": round(time.monotonic() - began, 1), "rows": rows}
    return {"cifar10": real, "digits": on_digits(seed=seed, report=progress), "page": str(written)}


def text(result: dict[str, Any]) -> str:
    """Both tables, and where the page is."""
    real = result["cifar10"]
    lines = [
        f"CIFAR-10 with a long tail, {real['counts'][0]} to {real['counts'][-1]} training images a class: ResNet-32 "
        f"networks trained as in the paper, leveled here in {real['seconds']} s.",
        f"gamma chosen without a label, by making the predicted shares of the {real['test']:,} test images equal.",
        "",
        *table(real["rows"], {"in the paper": lambda row: f"{row['published']:.1f} %" if row["published"] else ""}),
    ]
    return "\n".join([*lines, "", text_of_digits(result["digits"]), "", f"Look at it: {result['page']}"])


def _leveled(method: str, snapshot: Snapshot) -> list[dict[str, Any]]:
    """A network as it is, and after RS with gamma from unlabelled images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelheadWarning)
        gamma = match_prior(snapshot.logits("test"), snapshot.counts, bootstrap=0).gamma
    found = rows_of(METHODS[method].title, evaluate(snapshot, gamma=gamma))
    return [{"key": key, **row} for key, row in zip((method, f"{method}+rs"), found, strict=True)]
