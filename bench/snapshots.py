"""Effect of adjusting trained networks, from their snapshots: errors and recall before and after.

    python bench/snapshots.py FILES... --hardware NAME [--plot docs/images/before-after.png] [--readme]

gamma is chosen without labels, by `tune_unlabelled` on the test images as unlabelled data. The gamma that
is best on the test set is recorded next to it, as such. The snapshots are in the runs that
`levelhead reproduce table1` leaves.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

import levelhead as lh
from levelhead.show.plot import headless, save
from levelhead.show.style import ACCENT
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.paper.markdown import fill
from levelhead_lab.paper.record import shipped_snapshots

RESULT = Path("results/snapshots.json")
COMMAND = (
    "levelhead reproduce table1 --root DIR --only cifar10:100:baseline; "
    "python bench/snapshots.py runs/cifar10-lt100-baseline-*/snapshot.safetensors"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="snapshots of one kind of network, a seed each")
    parser.add_argument("--hardware", help="what they were trained on, for the record")
    parser.add_argument("--plot", help="draw recall before and after, from the result")
    parser.add_argument("--readme", action="store_true", help="write the result into README.md")
    args = parser.parse_args()
    warnings.simplefilter("ignore", lh.warnings.LevelheadWarning)
    if args.files:
        if args.hardware is None:
            parser.error("say with --hardware what the networks were trained on")
        found = {
            "hardware": args.hardware,
            "command": COMMAND,
            "runs": [measure_snapshot(Snapshot.load(file)) for file in args.files],
        }
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
    if not RESULT.is_file():
        raise SystemExit("no snapshots given and no results/snapshots.json; nothing to do")
    found = json.loads(RESULT.read_text())
    print(sentence(found["runs"]))
    if args.plot:
        draw(found["runs"], args.plot)
    if args.readme:
        fill(Path("README.md"), "before and after", sentence(found["runs"]))


def measure_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Return the numbers of one network before and after RS."""
    logits, labels = snapshot.logits("test"), snapshot.labels["test"]
    path = lh.gamma_path(logits, labels, snapshot.counts)
    matched = lh.tune_unlabelled(logits, counts=snapshot.counts, rule="rescale")
    gamma = matched.strength or 0.0
    before, after, best = path.at(0.0), path.at(gamma), path.best("error")
    facts = snapshot.meta["spec"]
    return {
        **{key: facts[key] for key in ("data", "method", "ratio", "seed")},
        "counts": snapshot.counts.tolist(),
        "n_test": len(labels),
        "gamma": round(gamma, 4),
        "error": [round(before.error, 4), round(after.error, 4)],
        "recall": [np.round(point.class_accuracy, 4).tolist() for point in (before, after)],
        "best_on_test": {"gamma": round(best.gamma, 4), "error": round(best.error, 4)},
    }


def sentence(runs: list[dict[str, Any]]) -> str:
    """Return the result in words."""
    before, after = ([100 * run["error"][i] for run in runs] for i in (0, 1))
    rare = [mean(run["recall"][i][-1] for run in runs) for i in (0, 1)]
    frequent = [mean(run["recall"][i][0] for run in runs) for i in (0, 1)]
    n = runs[0]["counts"]
    return " ".join(
        [
            f"ResNet-32 on CIFAR-10 with a long tail of {n[0]} to {n[-1]} images per class ({len(runs)} seeds): error "
            f"**{_spread(before)} % before, {_spread(after)} % after**.",
            f"The recall of the rarest class goes from {100 * rare[0]:.0f} % to {100 * rare[1]:.0f} %, that of the "
            f"most frequent from {100 * frequent[0]:.0f} % to {100 * frequent[1]:.0f} %.",
            f"Only the lengths of {len(n)} weight vectors changed; the strength was chosen without labels.",
        ]
    )


def _spread(values: list[float]) -> str:
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def draw(runs: list[dict[str, Any]], path: str) -> None:
    """Draw the recall of each class before and after, as means over seeds, most frequent class first."""
    recall = np.mean([run["recall"] for run in runs], axis=0) * 100
    names = shipped_snapshots()["baseline"].head.names if runs[0]["data"] == "cifar10" else None
    figure, axes = headless().subplots(figsize=(8.6, 3.4), layout="constrained")
    place = np.arange(recall.shape[1])
    axes.bar(place - 0.2, recall[0], 0.38, color="#9aa5b1", label="as trained")
    axes.bar(place + 0.2, recall[1], 0.38, color=ACCENT, label="adjusted")
    axes.set_xticks(
        place,
        [f"{name}\n{n:,}" for name, n in zip(names or place, runs[0]["counts"], strict=True)],
        fontsize=9,
    )
    axes.set(xlabel="class, and its training images", ylabel="recall, %", ylim=(0, 100))
    axes.legend(
        frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2
    )
    save(figure, path)


if __name__ == "__main__":
    main()
