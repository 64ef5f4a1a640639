"""Is the stated gain the gain that comes, and do floors hold, on real sets? By how many samples are held out.

    python -m bench.decisions.real_gains --root DIR   # the study -> results/real-gains.json, docs/decisions.md
    python -m bench.decisions.real_gains              # the tables alone, from the results

A model is trained on a third of a set and never sees the rest, its pool. Of the pool some samples are drawn at random,
again and again: on these `tune` states a gain, and the others, at least twice as many, tell what comes. Their own
noise is allowed for where it is asked whether an interval holds. As in stated_gains.py, classes that no held-out
sample has are left out, and a shift that is not fitted shows what is due to the held-out samples alone. Draws of one
set are not independent, so every error is that of a mean over sets.

DIR has the wheels of the sets, as of `python -m bench.decisions`; trained scores are kept in it.
"""

import argparse
import json
import math
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import betabinom

import levelhead as lh
from levelhead.core.counts import long_tail
from levelhead.core.goal import Goal
from levelhead.core.judge import Outcomes, judge
from levelhead.core.metrics import METRICS as METRICS_OF_TABLES
from levelhead.support import atomic
from levelhead_lab.paper.markdown import fill, markdown_table
from levelhead_lab.paper.record import shipped_snapshots

from .models import Job, fit_scores
from .scores import LONG_TAILS, SHIPPED, read_features
from .sets import TABLES, WHEELS, scale_split
from .stated_gains import METRICS, PAGE, ROOT, SIZES

RESULTS = ROOT / "results" / "real-gains.json"
SEEDS = 2  # trainings of each model on each set
TRAINED = 1 / 3  # of a set, and at most
MOST_TRAINED = 1000
LEAST_TRAINED = 3  # samples of a class
LARGEST_SHIPPED = 1000  # test images of the most frequent class, of a network that is there
Z = NormalDist().inv_cdf(0.975)
FLOORS = (0.5, 0.7, 0.9)
BINS = ((0.0, 0.3), (0.3, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01))


class Pool(NamedTuple):
    """Samples that a model was not trained on."""

    counts: np.ndarray  # [K], of the training
    scores: np.ndarray  # [N, K]
    labels: np.ndarray  # [N]


class Draw(NamedTuple):
    """What some samples of a pool stated, and what came on the others; in points."""

    changed: bool
    came: float
    off: float  # stated minus what came
    unfitted: float  # the same, of a shift that no sample has a say in
    held: bool  # the interval, with room for the noise of the others


# ---- Models and their pools --------------------------------------------------------------------


def network_scores(epochs: int, job: Job) -> np.ndarray:
    """Train a network with 64 hidden units for some epochs; return its log-probabilities."""
    from sklearn.neural_network import MLPClassifier

    network = MLPClassifier(
        (64,),
        alpha=0.0,
        batch_size=64,
        learning_rate_init=2e-3,
        max_iter=epochs,
        n_iter_no_change=epochs,
        random_state=job.seed,
    )
    probability = network.fit(*job.train).predict_proba(job.parts[0])
    return np.log(np.maximum(probability, 1e-30))


# The first of the networks has not learned enough, the second knows its training samples by heart.
MODELS: dict[str, Callable[[Job], np.ndarray]] = {
    "logistic": lambda job: fit_scores("logistic", [job])[0][0],
    "forest": lambda job: fit_scores("forest", [job])[0][0],
    "network, 5 epochs": lambda job: network_scores(5, job),
    "network, 100 epochs": lambda job: network_scores(100, job),
}


def pools_of(root: Path, name: str) -> dict[tuple[str, int], Pool]:
    """Return {(model, seed): pool} of a set, trained once and kept in a file."""
    path = root / "scores" / "pools" / f"{name.split(',')[0].lower()}.npz"
    if not path.is_file():
        kept = {}
        for model, seed, pool in train_pools(root, name):
            for field, value in pool._asdict().items():
                kept[f"{model}/{seed}/{field}"] = value
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.atomic_open(path) as file:
            np.savez_compressed(file, **kept)
    pools: dict[tuple[str, int], Pool] = {}
    with np.load(path) as file:
        for key in file.files:
            model, seed, _ = key.split("/")
            if (model, int(seed)) not in pools:
                fields = [file[f"{model}/{seed}/{field}"] for field in Pool._fields]
                pools[model, int(seed)] = Pool(*fields)
    return pools


def train_pools(root: Path, name: str) -> Iterator[tuple[str, int, Pool]]:
    """Train every model on a part of a set; yield it with its scores of the rest."""
    if name == SHIPPED:
        for model, network in shipped_snapshots().items():
            logits = network.logits("test")
            labels = network.labels["test"]
            counts = np.array(network.counts)
            for seed in range(SEEDS):
                rows = cut_to_tail(labels, counts, LARGEST_SHIPPED, np.random.default_rng(seed))
                yield model, seed, Pool(counts, logits[rows], labels[rows])
        return
    features, labels = read_features(root, name)
    for seed in range(SEEDS):
        train, rest = split_rows(name, labels, np.random.default_rng(seed))
        split = scale_split(features, labels, train, rest, rest[:0])
        assert split.train is not None
        for model, scores_of in MODELS.items():
            scores = scores_of(Job("plain", split.train, (split.held_out[0],), seed))
            yield model, seed, Pool(split.counts, scores, split.held_out[1])


def split_rows(
    name: str, labels: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that are trained on, and those of the pool, which has the same mix."""
    sizes = np.bincount(labels)
    share = min(TRAINED, MOST_TRAINED / len(labels))
    counts = np.maximum(LEAST_TRAINED, np.round(share * sizes)).astype(int)
    if name in LONG_TAILS:
        largest, ratio = LONG_TAILS[name]
        counts = rng.permutation(long_tail(largest, len(sizes), ratio))
    train = []
    rest = []
    for c, count in enumerate(counts):
        rows = rng.permutation(np.flatnonzero(labels == c))
        train.append(rows[:count])
        rest.append(rows[count:])
    pool = np.concatenate(rest)
    if name in LONG_TAILS:
        most = int((sizes - counts).min())
        pool = pool[cut_to_tail(labels[pool], counts, most, rng)]
    return np.concatenate(train), pool


def cut_to_tail(
    labels: np.ndarray, counts: np.ndarray, largest: int, rng: np.random.Generator
) -> np.ndarray:
    """Return rows of a balanced set in the mix of some counts, `largest` of the most frequent class."""
    kept = np.maximum(LEAST_TRAINED, np.round(largest * counts / counts.max())).astype(int)
    rows = [rng.permutation(np.flatnonzero(labels == c))[:n] for c, n in enumerate(kept)]
    return np.concatenate(rows)


# ---- What is measured --------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="folder with the wheels; only the tables without")
    parser.add_argument("--draws", type=int, default=8, help="of each pool, for each metric")
    parser.add_argument("--floors", type=int, default=4, help="asked for of each pool")
    options = parser.parse_args()
    if options.root is not None:
        warnings.simplefilter("ignore")  # classes without a held-out sample, among others
        results = study(options.root, options.draws, options.floors)
        atomic.write(RESULTS, json.dumps(results) + "\n")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name, content in blocks(results).items():
        fill(PAGE, name, content)
        print(content)


def study(root: Path, draws: int, floors: int) -> dict[str, Any]:
    """Measure every set, model and size; return the cells with what they were measured on."""
    gains = []
    asked = []
    started = time.perf_counter()
    for name in (SHIPPED, *LONG_TAILS, *sorted(set(TABLES) - set(LONG_TAILS))):
        pools = pools_of(root, name)
        for size in SIZES:
            for (model, seed), pool in pools.items():
                if len(pool.labels) < 3 * size:
                    continue
                rng = np.random.default_rng([seed, size, *model.encode()])
                for metric in METRICS:
                    outcomes = []
                    for _ in range(draws):
                        outcome = draw_gain(pool, size, metric, rng)
                        if outcome is not None:
                            outcomes.append(outcome)
                    of = {"metric": metric, "set": name, "model": model, "seed": seed}
                    gains.append(of | {"held out": size} | summarize(outcomes))
                for _ in range(floors):
                    row = draw_floor(pool, size, rng)
                    if row is not None:
                        asked.append([name, size, *row])
        print(f"{name}: measured, {time.perf_counter() - started:.0f} s", flush=True)
    return {
        "wheels": [[wheel.package, wheel.sha256] for wheel in WHEELS],
        "draws": draws,
        "on": {"machine": platform.machine(), "numpy": np.__version__},
        "gains": gains,
        "floors": asked,
    }


def draw_gain(pool: Pool, size: int, metric: str, rng: np.random.Generator) -> Draw | None:
    """Hold out some of a pool; return what they stated and what came. None if all are of one class."""
    rows = rng.permutation(len(pool.labels))
    held_out = rows[:size]
    labels = pool.labels[held_out]
    classes = len(pool.counts)
    present = np.bincount(labels, minlength=classes) > 0
    if present.sum() < 2:
        return None
    others = rows[size:]
    others = others[present[pool.labels[others]]]
    tuned = lh.tune(pool.scores[held_out], labels, pool.counts, metric=metric)
    shift = METRICS_OF_TABLES[metric].usual * np.log(pool.counts.max() / pool.counts)
    before = pool.scores.argmax(axis=1)
    shifted = (pool.scores + shift).argmax(axis=1)
    adjusted = tuned.apply(pool.scores).argmax(axis=1)

    def evidence(rows: np.ndarray, after: np.ndarray) -> lh.Evidence:
        outcomes = Outcomes.of(pool.labels[rows], before[rows], after[rows], classes)
        return judge(outcomes, Goal(metric))

    unfitted = evidence(held_out, shifted).gain - evidence(others, shifted).gain
    came = evidence(others, adjusted)
    assert tuned.evidence is not None  # there were labels
    stated = tuned.evidence
    reach = Z * np.hypot(stated.standard_error, came.standard_error)
    if not stated.changed:  # it states 0, without an interval
        reach = 0.02 + Z * came.standard_error
    off = stated.gain - came.gain
    return Draw(
        changed=stated.changed > 0,
        came=100 * came.gain,
        off=100 * off,
        unfitted=100 * unfitted,
        held=bool(abs(off) <= reach + 1e-9),
    )


def summarize(outcomes: list[Draw]) -> dict[str, Any]:
    """Return the means over draws of one model and size; shares in percent."""
    columns = dict(zip(Draw._fields, np.array(outcomes, float).T, strict=True))
    return {
        "draws": len(outcomes),
        "changed": round(100 * float(columns["changed"].mean()), 1),
        "came": round(float(columns["came"].mean()), 3),
        "off": round(float(columns["off"].mean()), 3),
        "unfitted": round(float(columns["unfitted"].mean()), 3),
        "held": round(100 * float(columns["held"].mean()), 1),
    }


def draw_floor(pool: Pool, size: int, rng: np.random.Generator) -> list[float] | None:
    """Hold out some of a pool and ask for a recall of one class; return what was said and what came.

    The probability that was said, for samples without end; the same for as many as the others have of
    the class; and whether the floor holds on these. None if no offsets meet it.
    """
    rows = rng.permutation(len(pool.labels))
    held_out, others = rows[:size], rows[size:]
    labels = pool.labels[held_out]
    k = int(rng.choice(np.unique(labels)))
    least = float(rng.choice(FLOORS))
    goal = lh.Goal(floors={k: least})
    if len(np.unique(labels)) < 2 or not (pool.labels[others] == k).any():
        return None
    try:
        tuned = lh.tune(pool.scores[held_out], labels, pool.counts, metric=goal)
    except lh.LevelheadError:
        return None
    is_right = (tuned.apply(pool.scores).argmax(axis=1) == k)[pool.labels == k]
    in_hold_out = np.isin(np.flatnonzero(pool.labels == k), held_out)
    right, wrong = int(is_right[in_hold_out].sum()), int((~is_right[in_hold_out]).sum())
    there = is_right[~in_hold_out]
    needed = math.ceil(least * len(there) - 1e-9)
    # Of a recall that is known from the hold-out alone, under a uniform prior.
    on_others = betabinom.sf(needed - 1, len(there), right + 1, wrong + 1)
    said = tuned.floors[0].probability
    return [round(said, 4), round(float(on_others), 4), float(there.sum() >= needed)]


# ---- The tables --------------------------------------------------------------------------------


def blocks(results: dict[str, Any]) -> dict[str, str]:
    """Return the generated parts of the page by name."""
    return {"real gains": gains_table(results), "real floors": floors_table(results)}


def gains_table(results: dict[str, Any]) -> str:
    """Return a row for each metric and size, over all models and of each."""
    models = list(MODELS)
    rows = []
    for metric, title in METRICS.items():
        for size in SIZES:
            cells = [
                cell
                for cell in results["gains"]
                if cell["metric"] == metric and cell["held out"] == size
            ]
            of_sets = len({cell["set"] for cell in cells})
            came, _ = over_sets(cells, "came")
            held, _ = over_sets(cells, "held")
            numbers = [f"{came:.1f}", error_text(cells, "off"), error_text(cells, "unfitted")]
            numbers.append(f"{held:.0f} %")
            for model in models:
                mean, _ = over_sets([cell for cell in cells if cell["model"] == model], "off")
                numbers.append(f"{mean:+.1f}")
            rows.append((f"{title}, {size:,} held out, {of_sets} sets", numbers))
    head = ["", "gain that comes", "stated minus that", "of an unfitted shift", "interval holds"]
    table = markdown_table([*head, *models], rows)
    return f"{table}\n\n{results['draws']} draws of each pool, in points, ± over sets; intervals of 95 %."


def error_text(cells: list[dict[str, Any]], key: str) -> str:
    """Return a mean with its standard error over sets."""
    mean, error = over_sets(cells, key)
    return f"{mean:+.2f} ± {error:.2f}"


def over_sets(cells: list[dict[str, Any]], key: str) -> tuple[float, float]:
    """Return the mean over sets of a number, each the mean of its cells, and its standard error."""
    of_set: dict[str, list[float]] = {}
    for cell in cells:
        of_set.setdefault(cell["set"], []).append(cell[key])
    means = [np.mean(values) for values in of_set.values()]
    return float(np.mean(means)), float(np.std(means, ddof=1) / np.sqrt(len(means)))


def floors_table(results: dict[str, Any]) -> str:
    """Return how many floors hold, of those said to hold with about a probability."""
    sets = np.array([row[0] for row in results["floors"]])
    measured = np.array([row[2:] for row in results["floors"]], float)
    rows = []
    for low, high in BINS:
        within = (measured[:, 0] >= low) & (measured[:, 0] < high)
        said, on_others, held = measured[within].mean(axis=0)
        more = 100 * (measured[within, 2] - measured[within, 1])
        # Floors of one set are not independent: its sum is one draw.
        _, which = np.unique(sets[within], return_inverse=True)
        error = np.sqrt((np.bincount(which, more - more.mean()) ** 2).sum()) / len(more)
        numbers = [str(len(more)), f"{said:.1%}", f"{on_others:.1%}", f"{held:.1%}"]
        rows.append(
            (f"{low:.0%} to {min(high, 1.0):.0%}", [*numbers, f"{more.mean():+.1f} ± {error:.1f}"])
        )
    head = ["said to hold with", "floors", "said, in the mean", "said of such a test", "hold on it"]
    return markdown_table([*head, "more, ± over sets"], rows)


if __name__ == "__main__":
    main()
