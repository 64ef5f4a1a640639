"""Effect of adjusting a plainly trained network by RS: errors of three seeds, and the recall of each class of one.

    python -m bench.decisions.snapshots [--plot docs/images/before-after.png] [--readme]

Gamma is chosen on a tenth of the training images, which a companion run held out. Errors are those of the records of
CIFAR-10 at ratio 100; recall is that of the network in results/networks, the first of them. Seconds on a CPU.
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from levelhead.core.measure import recall
from levelhead.show.plot import headless, save
from levelhead.show.style import ACCENT
from levelhead_lab.methods.rs import rescale_head
from levelhead_lab.paper.cells import HELD_OUT, LAST_EPOCH, cell, companion_gamma, load_records
from levelhead_lab.paper.markdown import fill
from levelhead_lab.paper.record import SHIPPED_COLUMN, whole_snapshots

RESULT = Path("results/snapshots.json")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plot", help="draw recall before and after")
    parser.add_argument("--readme", action="store_true", help="write the result into README.md")
    args = parser.parse_args()
    measured = measure(Path("results"))
    RESULT.write_text(json.dumps(measured, indent=1) + "\n")
    print(sentence(measured))
    if args.plot:
        draw(measured, args.plot)
    if args.readme:
        fill(Path("README.md"), "before and after", sentence(measured))


def measure(results: Path) -> dict[str, Any]:
    """Return errors of all seeds and recalls of the stored network, before and after RS at the hold-out's gamma."""
    records = load_records(results / "records")
    gamma = companion_gamma(records, SHIPPED_COLUMN, "baseline")
    if gamma is None:
        raise SystemExit(f"no record of {SHIPPED_COLUMN}:baseline with a hold-out")
    network = whole_snapshots(results / "networks")["baseline"]
    labels = network.labels["test"]
    adjusted = rescale_head(network.head, network.counts, gamma)
    errors = {}
    recalls = {}
    for when, reading, logits in (
        ("before", LAST_EPOCH, network.logits("test")),
        ("after", HELD_OUT, network.logits("test", adjusted)),
    ):
        errors[when] = [
            round(e, 2) for e in cell(records, SHIPPED_COLUMN, "baseline", reading).errors
        ]
        recalls[when] = np.round(100 * recall(logits, labels), 2).tolist()
    return {
        "command": "python -m bench.decisions.snapshots --plot docs/images/before-after.png --readme",
        "column": SHIPPED_COLUMN,
        "gamma": gamma,
        "gamma is from": "a tenth of the training images, held out by a companion run",
        "counts": network.counts.tolist(),
        "names": [str(name) for name in network.head.names or ()],
        "errors of all seeds, %": errors,
        "recall of the network in results/networks, %": recalls,
    }


def sentence(measured: dict[str, Any]) -> str:
    """Return the result in words."""
    errors = measured["errors of all seeds, %"]
    recalls = measured["recall of the network in results/networks, %"]
    counts = measured["counts"]
    before = recalls["before"]
    after = recalls["after"]
    return (
        f"ResNet-32 on CIFAR-10 with a long tail of {counts[0]} to {counts[-1]} images per class "
        f"({len(errors['before'])} seeds): error **{_spread(errors['before'])} % before, "
        f"{_spread(errors['after'])} % after**. In the first of them the recall of the rarest class goes from "
        f"{before[-1]:.0f} % to {after[-1]:.0f} %, that of the most frequent from {before[0]:.0f} % to "
        f"{after[0]:.0f} %. Only the lengths of {len(counts)} weight vectors changed; the strength was chosen on "
        "training images that were held out."
    )


def _spread(values: list[float]) -> str:
    """Return the mean of several seeds, with their standard deviation."""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{mean(values):.1f} ± {stdev(values):.1f}"


def draw(measured: dict[str, Any], path: str) -> None:
    """Draw the recall of each class before and after, most frequent class first."""
    recalls = measured["recall of the network in results/networks, %"]
    counts = measured["counts"]
    figure, axes = headless().subplots(figsize=(8.6, 3.4), layout="constrained")
    place = np.arange(len(counts))
    axes.bar(place - 0.2, recalls["before"], 0.38, color="#9aa5b1", label="as trained")
    axes.bar(place + 0.2, recalls["after"], 0.38, color=ACCENT, label="adjusted")
    names = measured["names"] or place
    axes.set_xticks(
        place, [f"{name}\n{n:,}" for name, n in zip(names, counts, strict=True)], fontsize=9
    )
    axes.set(xlabel="class, and its training images", ylabel="recall, %", ylim=(0, 100))
    axes.legend(
        frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2
    )
    save(figure, path)


if __name__ == "__main__":
    main()
