"""Measure RS and the shift after every epoch of a training, on the test set: what the choice of the
epoch is worth.

    python -m bench.paper.rule_epochs FOLDER_OF_THE_DATA_SETS OUT.json [COLUMN ...]

The fast engine hands out the weights after every epoch (`save_every=0`), and a copy of each network
is measured with them while the training goes on.
"""

import argparse
import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from levelhead.core.gamma_path import gamma_path
from levelhead.core.rules import Rescale, Shift
from levelhead.support import atomic
from levelhead_lab.paper.post_hoc import RESCALE_STRENGTHS
from levelhead_lab.runs.spec import Spec

if TYPE_CHECKING:
    from levelhead_lab.fast.job import Job
    from levelhead_lab.lab.data import Data
    from levelhead_lab.lab.recipe import Recipe

COLUMNS = ("cifar10:100", "cifar10:10")
# Plainly, and by the two orders of WVN's step.
TRAINED = ("baseline", "wvn", "wvn-released")
STRENGTHS: dict[str, np.ndarray] = {
    Rescale.name: RESCALE_STRENGTHS,
    Shift.name: np.linspace(0.0, 4.0, 21),
}


def measure_epochs(
    specs: Sequence[Spec], *, device: str = "cuda", slots: int = 16
) -> list[dict[str, Any]]:
    """Train specs at once; return for each its errors after every epoch, from the first decay of its rate on.

    Each entry has the method, the ratio, the seed, the sha256 of the data, and in `epochs` a row each: its number, the
    test error as trained, and for each rule the lowest error, the strength of that, and the errors at `STRENGTHS`.
    """
    import torch

    from levelhead_lab.fast.fit_many import fit_many
    from levelhead_lab.fast.precision import PRECISIONS
    from levelhead_lab.lab import nets
    from levelhead_lab.lab.preprocess import Preprocess, features
    from levelhead_lab.lab.train import State

    loaded = {spec.data_key: spec.load() for spec in specs}
    datas = [loaded[spec.data_key] for spec in specs]
    jobs = [
        make_job(spec, data, spec.resolve_recipe()) for spec, data in zip(specs, datas, strict=True)
    ]
    runs = [
        {
            "data": spec.data,
            "ratio": spec.ratio,
            "method": spec.method,
            "seed": spec.seed,
            "data_sha256": {title: part.sha256 for title, part in data.splits.items()},
            "epochs": [],
        }
        for spec, data in zip(specs, datas, strict=True)
    ]
    copies = [deepcopy(job.net).to(device) for job in jobs]

    def measure(i: int, state: State) -> None:
        if state.epoch <= jobs[i].recipe.first_decay_epoch:
            return
        copies[i].load_state_dict(state.weights)
        test = datas[i].splits["test"]
        seen = features(
            copies[i], test, Preprocess(jobs[i].recipe, datas[i], torch.float32), batch=2500
        )
        logits = nets.head_of(copies[i]).numpy().logits(seen)
        runs[i]["epochs"].append(
            {"epoch": state.epoch, **errors_by_rule(logits, test.labels, datas[i].counts)}
        )

    dtype = PRECISIONS[specs[0].dtype]
    fit_many(
        jobs,
        slots=slots,
        device=device,
        dtype=dtype,
        evaluate_early=False,
        on_save=measure,
        save_every=0.0,
    )
    return runs


def make_job(spec: Spec, data: "Data", recipe: "Recipe") -> "Job":
    """Return the training of a spec from its first step, by this recipe."""
    from levelhead_lab.fast.job import Job
    from levelhead_lab.lab import nets

    method = spec.resolve_method()
    net = nets.build(
        spec.resolve_net(), data.classes, head=method.head, shape=data.shape, seed=spec.seed
    )
    return Job(net, data, recipe, method, spec.seed)


def errors_by_rule(logits: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    """Return the error as trained and, for each rule, the lowest, its strength, and the errors at `STRENGTHS`."""
    errors: dict[str, Any] = {}
    for rule, strengths in STRENGTHS.items():
        path = gamma_path(logits, labels, counts, rule=rule, range=(0.0, float(strengths[-1])))
        best = path.best("error")
        errors["error"] = round(path.at(0.0).error, 4)
        errors[rule] = {
            "gamma": round(best.gamma, 3),
            "error": round(best.error, 4),
            "curve": [round(path.at(float(strength)).error, 4) for strength in strengths],
        }
    return errors


def main(
    root: str, out: str, columns: Sequence[str] = COLUMNS, *, unofficial: bool = False
) -> None:
    """Train the networks of the columns and write what was measured."""
    specs = [
        Spec(
            column.split(":")[0],
            root=root,
            method=method,
            profile="long-tail",
            ratio=float(column.split(":")[1]),
            engine="fast",
            dtype="bfloat16",
            unofficial=unofficial,
        )
        for column in columns
        for method in TRAINED
    ]
    rows = [json.dumps(run, separators=(",", ":")) for run in measure_epochs(specs)]
    atomic.write(Path(out), "[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="folder of the data sets")
    parser.add_argument("out", help="file of results")
    parser.add_argument("columns", nargs="*", default=COLUMNS, metavar="COLUMN")
    main(**vars(parser.parse_args()))
