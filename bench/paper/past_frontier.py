"""Try to go past the recipe `frontier` on long-tailed CIFAR: longer, averaged, with other batch
statistics, mirrored.

    python -m bench.paper.past_frontier FOLDER_OF_THE_DATA_SETS OUT.json [COLUMN ...]

Networks are trained once for each method and weight decay, all at once (`try_all`). Everything else
is tried on trained networks: means of the weights of the last epochs (`Mean`), batch statistics
measured again on balanced images (`level_statistics_`), the mean of an image and its mirror image;
and of each, RS and the shift (`reached`).
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from levelhead.core.gamma_path import find_path_rule, gamma_path
from levelhead.core.unlabelled import tune_unlabelled
from levelhead.support import atomic
from levelhead_lab.lab.recipe import Recipe, find_recipe
from levelhead_lab.paper.post_hoc import RANGES, errors_at
from levelhead_lab.runs.spec import Spec

from .rule_epochs import make_job

if TYPE_CHECKING:
    from torch import Tensor

    from levelhead_lab.fast.job import Job
    from levelhead_lab.lab.data import Data
    from levelhead_lab.lab.nets import Net

TRIED_COLUMNS = ("cifar10:100", "cifar100:100")
EPOCHS = 800  # twice those of `frontier`
WEIGHT_DECAYS = (5e-4, 1e-3)  # of `frontier`, and twice that
TRIED_METHODS = ("baseline", "balanced-softmax")
# Shares of the epochs whose weights are averaged.
AVERAGED = {
    "last": 0.0,
    "mean of the last tenth": 0.1,
    "mean of the last quarter": 0.25,
}
Statistics = Literal["as trained", "balanced", "balanced, augmented"]
STATISTICS: tuple[Statistics, ...] = ("as trained", "balanced", "balanced, augmented")


@dataclass
class Mean:
    """The running mean of a network's weights and statistics over epochs."""

    count: int = 0
    values: "dict[str, Tensor] | None" = None

    def add(self, state: "dict[str, Tensor]") -> None:
        """Take in the state after another epoch; counters stay those of the first."""
        from levelhead_lab.lab.train import add_to_means_

        self.count += 1
        self.values = self.values or {name: x.detach().cpu().clone() for name, x in state.items()}
        numbers = [name for name, x in self.values.items() if x.is_floating_point()]
        add_to_means_(
            (self.values[name] for name in numbers),
            (state[name].cpu() for name in numbers),
            self.count,
        )


def longer_recipe(weight_decay: float, epochs: int = EPOCHS) -> Recipe:
    """Return `frontier` in other length and with another weight decay."""
    return replace(find_recipe("frontier").stretched_to(epochs), weight_decay=weight_decay)


def try_all(
    specs: Sequence[Spec], recipes: Sequence[Recipe], *, device: str = "cuda", slots: int = 16
) -> list[dict[str, Any]]:
    """Train each spec by each recipe, all at once; return what each network reaches in each variant of it.

    An entry has the method, the ratio, the seed, the recipe's numbers, the seconds that all took together, the sha256
    of the data, and in `tried` a row per variant: which weights, which statistics, how many views of a test image, the
    error as it is and after RS and the shift, with the strength that is best on test and that from unlabelled images.
    """
    import torch

    from levelhead_lab.fast.fit_many import fit_many
    from levelhead_lab.fast.precision import PRECISIONS
    from levelhead_lab.lab.train import State

    loaded = {spec.data_key: spec.load() for spec in specs}
    jobs = []
    facts = []
    for spec in specs:
        data = loaded[spec.data_key]
        for recipe in recipes:
            jobs.append(make_job(spec, data, recipe))
            facts.append(
                {
                    "data": spec.data,
                    "ratio": spec.ratio,
                    "method": spec.method,
                    "seed": spec.seed,
                    "epochs": recipe.epochs,
                    "weight_decay": recipe.weight_decay,
                    "data_sha256": {title: part.sha256 for title, part in data.splits.items()},
                }
            )
    means = [{title: Mean() for title, share in AVERAGED.items() if share} for _ in jobs]

    def keep(i: int, state: State) -> None:
        for title, mean in means[i].items():
            if state.epoch > (1 - AVERAGED[title]) * jobs[i].recipe.epochs:
                mean.add(state.weights)

    began = time.monotonic()
    dtype = PRECISIONS[specs[0].dtype]
    ends = fit_many(
        jobs,
        slots=slots,
        device=device,
        dtype=dtype,
        evaluate_early=False,
        on_save=keep,
        save_every=2.0,
    )
    seconds = round(time.monotonic() - began, 1)
    device_name = str(device)
    if torch.device(device).type == "cuda":
        device_name = torch.cuda.get_device_name(device)
    entries = []
    # The paths of a network are computed while the next one is looked at.
    with ThreadPoolExecutor() as pool:
        for job, end, mean, fact in zip(jobs, ends, means, facts, strict=True):
            weights = {"last": Mean(1, end.weights), **mean}
            labels = job.data.splits["test"].labels
            counts = job.data.counts
            rows = [
                pool.submit(
                    lambda row, logits, *rest: {**row, **reached(logits, *rest)},
                    row,
                    logits,
                    labels,
                    counts,
                )
                for row, logits in _variants(job, weights, device)
            ]
            entries.append(
                {
                    **fact,
                    "device": device_name,
                    "torch": torch.__version__,
                    "seconds_of_all": seconds,
                    "tried": rows,
                }
            )
        return [{**entry, "tried": [row.result() for row in entry["tried"]]} for entry in entries]


def _variants(
    job: "Job", weights: dict[str, Mean], device: str
) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Yield each variant of a trained network with the logits of the test images."""
    import torch

    from levelhead_lab.lab.nets import head_of
    from levelhead_lab.lab.preprocess import Preprocess, features

    net = deepcopy(job.net).to(device)
    test = job.data.splits["test"]
    preprocess = Preprocess(job.recipe, job.data, torch.float32)
    mirrored = replace(test, images=np.ascontiguousarray(test.images[..., ::-1]))
    for title, mean in weights.items():
        if mean.values is None:  # no epoch of so short a training was kept
            continue
        for statistics in STATISTICS:
            net.load_state_dict(mean.values)
            if statistics != "as trained":
                level_statistics_(
                    net, job.data, job.recipe, augmented=statistics != "balanced", seed=job.seed
                )
            head = head_of(net).numpy()
            logits = head.logits(features(net, test, preprocess, batch=2500))
            of_mirrored = head.logits(features(net, mirrored, preprocess, batch=2500))
            row = {"weights": title, "epochs_averaged": mean.count, "statistics": statistics}
            yield {**row, "views": 1}, logits
            yield {**row, "views": 2}, (logits + of_mirrored) / 2


def level_statistics_(
    net: "Net", data: "Data", recipe: Recipe, *, augmented: bool, seed: int = 0, batch: int = 500
) -> None:
    """Measure the batch statistics again, on training images drawn from all classes alike.

    Args:
        net: changed in place: the running means and variances of its batch norms, nothing else.
        data: its training images, each class drawn equally often, as many as there are.
        recipe: how images are prepared.
        augmented: vary the images as in training; otherwise they are as at test.
    """
    import torch

    from levelhead_lab.fast.fit_many import copy_to
    from levelhead_lab.lab.epoch_plan import draw_plan
    from levelhead_lab.lab.preprocess import Preprocess
    from levelhead_lab.methods import METHODS

    device = next(net.parameters()).device
    preprocess = Preprocess(recipe, data, torch.float32)
    images, _ = copy_to(device, data.train)
    norms = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
    net.train()
    plan = draw_plan(
        data.train.labels, METHODS["over-sample"], recipe, seed=seed, epoch=0, progress=0.0
    ).to(device)
    with torch.no_grad():
        for part in plan.batches(batch):
            if augmented:
                seen = preprocess.augmented(images, part)
            else:
                seen = preprocess.standardized(images[part.indices])
            net(seen)
    for norm in norms:
        norm.momentum = 0.1
    net.eval()


def reached(logits: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    """Return the error as it is and, for RS and the shift, at two strengths: matched to shares, and best on test."""
    errors: dict[str, Any] = {}
    for rule in ("rescale", "shift"):
        within = replace(find_path_rule(rule), range=RANGES[rule])
        path = gamma_path(logits, labels, counts, rule=within)
        matched = tune_unlabelled(logits, counts=counts, rule=within).strength or 0.0
        errors["error"] = round(path.at(0.0).error, 6)
        best = path.best("error").gamma
        errors[rule] = {
            "match_prior": errors_at(path, matched),
            "best_on_test": errors_at(path, best),
        }
    return errors


def write_tried(
    root: str, out: str, columns: Sequence[str] = TRIED_COLUMNS, *, unofficial: bool = False
) -> None:
    """Train the networks of the columns and write what was measured."""
    specs = [
        Spec(
            data,
            root=root,
            method=method,
            profile="long-tail",
            ratio=float(ratio),
            engine="fast",
            dtype="bfloat16",
            unofficial=unofficial,
        )
        for data, ratio in (column.split(":") for column in columns)
        for method in TRIED_METHODS
    ]
    rows = [
        json.dumps(run, separators=(",", ":"))
        for run in try_all(specs, [*map(longer_recipe, WEIGHT_DECAYS)])
    ]
    atomic.write(Path(out), "[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="folder of the data sets")
    parser.add_argument("out", help="file of results")
    parser.add_argument("columns", nargs="*", default=TRIED_COLUMNS, metavar="COLUMN")
    write_tried(**vars(parser.parse_args()))
