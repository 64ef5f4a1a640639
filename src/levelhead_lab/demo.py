"""The demo: level two real networks, train two small ones, and write a page."""

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from levelhead.choice.tune import match_prior
from levelhead.core.rules import Rescale, Shift
from levelhead.methods import METHODS
from levelhead.report import of_snapshot, write
from levelhead.support.extras import install_command
from levelhead.support.warnings import quiet

from .lab.data import hold_out, imbalance
from .lab.load import digits
from .lab.progress import EpochProgress
from .lab.recipe import find_recipe
from .paper.record import SHIPPED_COLUMN, shipped_snapshots
from .paper.tables import tables
from .runs.evaluate import Evaluation, evaluate
from .runs.spec import check_seed

RATIO, HOLD_OUT = 50, 0.2  # of the digits
ENDINGS = {
    Rescale.name: "+RS",
    Shift.name: "+shift",
}  # the rules that are shown, in the names of rows
Row = dict[str, Any]


def run_demo(
    page: str | Path, *, seed: int = 0, progress: EpochProgress | None = None
) -> dict[str, Any]:
    """Level the networks that come with the package, write a page about the first; train two on digits, if possible."""
    real = level_shipped(page)
    trained = None if missing_to_train() else train_on_digits(seed, progress)
    return {"cifar10": real, "digits": trained, "page": str(page)}


def missing_to_train() -> list[str]:
    return [extra for extra in ("torch", "sklearn") if find_spec(extra) is None]


def level_shipped(page: str | Path) -> dict[str, Any]:
    start, networks = time.monotonic(), shipped_snapshots()
    column = tables()["table1"]["columns"].index(SHIPPED_COLUMN)
    published = {row["method"]: row["published"][column] for row in tables()["table1"]["rows"]}
    rows, first = [], networks["baseline"]
    with quiet():  # the page shows the warnings
        for method, network in networks.items():
            found = [
                evaluate(
                    network,
                    rule=rule,
                    gamma=match_prior(
                        network.logits("test"), network.counts, rule=rule, bootstrap=0
                    ).gamma,
                )
                for rule in ENDINGS
            ]
            rows += _rows(method, *found)
        subject = of_snapshot(
            first, title="ResNet-32 on long-tailed CIFAR-10", facts={"made by": "levelhead demo"}
        )
        write(page, [subject], command=f"levelhead demo --report {page}")
    return {
        "data": "cifar10",
        "counts": first.counts.tolist(),
        "test": len(first.labels["test"]),
        "seconds": round(time.monotonic() - start, 1),
        "rows": [{**row, "published": published.get(row["key"])} for row in rows],
    }


def train_on_digits(seed: int = 0, progress: EpochProgress | None = None) -> dict[str, Any]:
    import torch

    from .lab.nets import build
    from .lab.preprocess import Preprocess, snapshot
    from .lab.train import fit

    check_seed(seed)
    torch.set_num_threads(1)  # for a network this small a second thread costs more than it gains
    start, schedule, rows = time.monotonic(), find_recipe("digits"), []
    data = hold_out(imbalance(digits(), "long-tail", ratio=RATIO), HOLD_OUT)
    for name in ("baseline", "wvn"):
        method = METHODS[name]
        net = build("digits", data.classes, head=method.head, shape=data.shape, seed=seed)

        def on_epoch(_: Any, record: dict[str, Any], title: str = method.title) -> None:
            if progress is not None:
                progress({**record, "title": title, "of": schedule.epochs})

        fit(net, data, schedule, method, seed=seed, on_epoch=on_epoch)
        rows += _rows(name, evaluate(snapshot(net, data, Preprocess(schedule, data))))
    return {
        "data": "digits",
        "ratio": RATIO,
        "counts": data.counts.tolist(),
        "held_out": len(data.splits["held-out"]),
        "test": len(data.test),
        "seed": seed,
        "seconds": round(time.monotonic() - start, 1),
        "rows": rows,
    }


def demo_text(result: Mapping[str, Any]) -> str:
    real, small = result["cifar10"], result["digits"]
    lines = [
        f"CIFAR-10 with a long tail, {real['counts'][0]} to {real['counts'][-1]} training images per class: ResNet-32 "
        f"networks trained as in the paper, adjusted here in {real['seconds']} s.",
        f"gamma was chosen without labels: it makes the predicted shares of the {real['test']:,} test images equal.",
        "",
        *_table(real["rows"]),
        "RS scales the weight vectors, the shift adds to the logits. WVN makes RS's curve over gamma so flat that",
        "shares alone choose badly: use the shift on such a head.",
        "",
    ]
    return "\n".join(
        [
            *lines,
            *(_training(small) if small else _no_training()),
            "",
            f"Look at it: {result['page']}",
        ]
    )


def _training(small: Mapping[str, Any]) -> list[str]:
    return [
        f"Digits with a long tail, {small['counts'][0]} to {small['counts'][-1]} training samples per class, trained "
        f"here with seed {small['seed']} in {small['seconds']} s.",
        f"gamma was chosen on {small['held_out']} held-out samples; the errors are those of {small['test']} test "
        "samples, equally many per class. (lr and epochs were chosen on these too: read differences, not levels.)",
        "",
        *_table(small["rows"]),
    ]


def _no_training() -> list[str]:
    commands = [install_command(extra).removeprefix("pip install ") for extra in missing_to_train()]
    return ["To train and level two small networks as well:", f"  pip install {' '.join(commands)}"]


def _rows(key: str, *found: Evaluation) -> list[Row]:
    measured = [
        ("", 0.0, found[0].before),
        *((ENDINGS[one.rule], one.gamma, one.after) for one in found),
    ]
    return [
        {
            "key": key + end.lower(),
            "method": METHODS[key].title + end,
            "gamma": gamma,
            "error": m.error,
            "balanced_error": m.balanced_error,
            "worst_class": found[0].names[m.worst_class],
            "worst_recall": m.worst_recall,
        }
        for end, gamma, m in measured
    ]


def _table(rows: Sequence[Row]) -> list[str]:
    head = f"{'':15}{'gamma':>7}{'error':>10}{'balanced error':>17}{'worst class, recall':>22}"
    lines = [head + f"{'in the paper':>14}" * ("published" in rows[0])]
    for row in rows:
        published = f"{row['published']:.1f} %" if row.get("published") else ""
        worst = f"{row['worst_class']}: {100 * row['worst_recall']:.0f} %"
        line = (
            f"{row['method']:15}{row['gamma']:>7.2f}{100 * row['error']:>8.1f} %"
            f"{100 * row['balanced_error']:>15.1f} %{worst:>22}"
        )
        lines.append(f"{line}{published:>14}".rstrip())
    return lines
