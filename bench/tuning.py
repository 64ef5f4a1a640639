"""How well each way of choosing gamma chooses: regret against the best gamma on a very large test set, and coverage.

    python bench/tuning.py                            # the study -> results/tuning.json
    python bench/tuning.py --snapshots A.safetensors  # the same on real networks, added to the file
    python bench/tuning.py --docs --plot              # tables and pictures of docs/which-gamma.md from the file

Regret is error(chosen gamma) - error(best gamma) on unseen, balanced data, in points.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from levelhead import Snapshot, gamma_path, tune
from levelhead.core import atomic
from levelhead.core.counts import long_tail
from levelhead.core.geometry import oracle_head
from levelhead.gamma.criterion import Grid, Objective, ShareMismatch
from levelhead.gamma.envelope import Envelope, compute_envelope
from levelhead.gamma.rule import make_rule

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "tuning.json"
STRENGTHS = (0.0, 5.0, 10.0, 20.0, 40.0, float("inf"))
Sample = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # samples per class [K] -> logits, labels, all unseen


@dataclass(frozen=True)
class Case:
    """A trained head, the counts it was trained on, a source of unseen samples, and a test set that no choice sees."""

    counts: np.ndarray
    draw: Sample
    logits: np.ndarray
    labels: np.ndarray
    room: np.ndarray | None = None  # how many unseen samples of each class there are, where that is a number


# -- cases ------------------------------------------------------------------------------------------------------------


def gaussians(seed: int, classes: int, ratio: float, largest: int, size: int, test: int) -> Case:
    """Gaussian classes of unequal spread, in groups of similar ones, and the softmax head of their long tail."""
    rng = np.random.default_rng([classes, int(ratio), largest, seed])
    group = rng.integers(max(2, classes // 4), size=classes)
    centers = 3 * (np.sqrt(0.6) * _units(rng, classes, size)[group] + np.sqrt(0.4) * _units(rng, classes, size))
    spread = np.exp(0.3 * rng.normal(size=classes))

    def features(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.arange(classes), sizes)
        return centers[labels] + spread[labels, None] * rng.normal(size=(len(labels), size)), labels

    counts = long_tail(largest, classes, ratio)
    decay = 10 ** rng.uniform(-3, -2)  # moves the best gamma about, so that no grid is lucky
    head = oracle_head(*features(counts), classes, decay=decay, steps=200, tolerance=1e-4).head

    def draw(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = features(sizes)
        return head.logits(x), y

    return Case(counts, draw, *draw(np.full(classes, test // classes)))


def digits(seed: int) -> Case:
    """A small network trained on a long tail of scikit-learn's digits by SGD; all other images are unseen."""
    import torch
    from sklearn.datasets import load_digits

    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    counts, order = long_tail(70, 10, 20), rng.permutation(len(labels))
    own = [order[labels[order] == c] for c in range(10)]
    train = np.concatenate([members[:n] for members, n in zip(own, counts, strict=True)])
    x, y = torch.tensor(images[train], dtype=torch.float32), torch.tensor(labels[train])
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10, bias=False))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for _ in range(60):
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    rest = np.concatenate([members[n:] for members, n in zip(own, counts, strict=True)])
    with torch.no_grad():
        logits = net(torch.tensor(images[rest], dtype=torch.float32)).numpy()
    return _split(counts, logits, labels[rest], rng, share=0.5)


def snapshot(seed: int, path: str) -> Case:
    """A real network: half of its test features, drawn anew for each seed, are unseen samples, the others test."""
    whole = Snapshot.load(path)
    return _split(whole.counts, whole.logits("test"), whole.labels["test"], np.random.default_rng(seed), share=0.5)


def _split(counts: np.ndarray, logits: np.ndarray, labels: np.ndarray, rng: np.random.Generator, share: float) -> Case:
    order = rng.permutation(len(labels))
    own = [order[labels[order] == c] for c in range(len(counts))]
    cut = [int(len(members) * share) for members in own]
    pool = [members[:n] for members, n in zip(own, cut, strict=True)]
    test = np.concatenate([members[n:] for members, n in zip(own, cut, strict=True)])

    def draw(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if any(n > len(members) for members, n in zip(pool, sizes, strict=True)):
            raise LookupError("the pool is too small")
        rows = np.concatenate([rng.choice(members, n, replace=False) for members, n in zip(pool, sizes, strict=True)])
        return logits[rows], labels[rows]

    return Case(counts, draw, logits[test], labels[test], np.array(cut))


def _units(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    x = rng.normal(size=(n, size))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


FAMILIES: dict[str, tuple[Callable[[int], Case], int]] = {
    "Gaussians, K = 10, ratio 100, n_1 = 5000": (partial(gaussians, classes=10, ratio=100, largest=5000, size=32,
                                                         test=50_000), 200),
    "Gaussians, K = 10, ratio 100, n_1 = 500": (partial(gaussians, classes=10, ratio=100, largest=500, size=32,
                                                        test=50_000), 200),
    "Gaussians, K = 10, ratio 10, n_1 = 500": (partial(gaussians, classes=10, ratio=10, largest=500, size=32,
                                                       test=50_000), 200),
    "Gaussians, K = 100, ratio 100, n_1 = 500": (partial(gaussians, classes=100, ratio=100, largest=500, size=64,
                                                         test=20_000), 60),
    "Digits, K = 10, ratio 20, n_1 = 70": (digits, 100),
}


# -- the study --------------------------------------------------------------------------------------------------------


def holdouts(counts: np.ndarray, room: np.ndarray | None) -> Iterator[tuple[str, np.ndarray]]:
    """Of a long tail, as many of each class as there are; a balanced hold-out is whole or is left out."""
    size = len(counts)
    for share in (10, 30):
        wanted = np.maximum(1, counts * share // 100)
        yield f"{share} % of the long tail", wanted if room is None else np.minimum(wanted, room)
    yield from ((f"{n:,} balanced", np.full(size, n // size)) for n in (200, 1000, 5000) if n >= size)


def match_shares(changes: Envelope, prior: np.ndarray) -> float:
    """Return what `match_prior` chooses."""
    mismatch = ShareMismatch(changes, prior, Grid.between(changes.gamma, changes.range))
    return mismatch.grid.choose(mismatch.values())[0]


def one(seed: int, make: Callable[[int], Case]) -> dict[str, dict[str, float]]:
    """Regret in points of every choice at every hold-out of one case; of the first 40, what the intervals are worth."""
    case = make(seed)
    classes = len(case.counts)
    uniform = np.full(classes, 1 / classes)
    truth = Objective(gamma_path(case.logits, case.labels, case.counts), uniform)
    curve = truth.grid.curve(truth.error())
    lowest, best = curve.values.min(), curve.plateau()
    error = lambda gamma: float(curve.at(gamma))  # noqa: E731
    result: dict[str, dict[str, float]] = {}
    for name, sizes in holdouts(case.counts, case.room):
        try:
            logits, labels = case.draw(sizes)
            free, _ = case.draw(np.full(classes, min(1000, len(case.labels) // 4) // classes))
        except LookupError:
            continue
        path = gamma_path(logits, labels, case.counts)
        own = Objective(path, uniform, path.envelope)
        changes = compute_envelope(free, make_rule("rescale", case.counts), (0.0, 2.0))
        other = Objective(path, uniform, changes, unlabelled=True)
        wrong = own.error()
        chosen = {f"strength {s:g}": own.grid.choose(own.values(wrong, strength=s))[0] for s in STRENGTHS}
        chosen["11-point grid"] = min(np.linspace(0, 1, 11), key=lambda g: float(own.grid.curve(wrong).at(g)))
        chosen["match_prior, hold-out"] = match_shares(path.envelope, sizes / sizes.sum())
        chosen["match_prior, unlabelled"] = match_shares(changes, uniform)
        chosen["default + unlabelled"] = other.grid.choose(other.values(other.error()))[0]
        chosen["gamma = 0"] = 0.0
        found = {key: 100 * (error(gamma) - lowest) for key, gamma in chosen.items()}
        if seed < 40:
            tuned = tune(logits, labels, case.counts, bootstrap=200, rng=seed)
            gain = error(0.0) - error(tuned.gamma)
            assert tuned.interval is not None
            assert tuned.gain_interval is not None
            assert tuned.gain is not None
            assert tuned.balanced_error is not None
            assert tuned.balanced_error_at_zero is not None
            found["gamma in interval"] = float(tuned.interval[0] <= best[1] and best[0] <= tuned.interval[1])
            found["gain in interval"] = float(tuned.gain_interval[0] <= gain <= tuned.gain_interval[1])
            found["bias of gain"] = 100 * (tuned.gain - gain)
            found["bias of naive gain"] = 100 * (tuned.balanced_error_at_zero - tuned.balanced_error - gain)
        result[name] = found
    return result


def study(make: Callable[[int], Case], draws: int, jobs: int) -> dict[str, dict[str, list[float]]]:
    """{hold-out: {choice: [mean, standard error]}} over the draws."""
    with ProcessPoolExecutor(jobs, initializer=warnings.simplefilter, initargs=("ignore",)) as pool:
        every = list(pool.map(partial(one, make=make), range(draws)))
    summary: dict[str, dict[str, list[float]]] = {}
    for name in every[0]:
        table = {key: np.array([found[name][key] for found in every if key in found[name]]) for key in every[0][name]}
        summary[name] = {key: [round(float(x.mean()), 4), round(float(x.std(ddof=1) / np.sqrt(len(x))), 4)]
                         for key, x in table.items()}
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", nargs="+", default=[], help="snapshot files with a `test` split")
    parser.add_argument("--draws", type=int, help="instead of each family's own number")
    parser.add_argument("--only", default="", help="families whose name holds this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/which-gamma.md from the results")
    parser.add_argument("--plot", action="store_true", help="draw its pictures")
    options = parser.parse_args()
    if options.docs or options.plot:
        import tuning_page

        tuning_page.write(json.loads(RESULTS.read_text()), pictures=options.plot, tables=options.docs)
        return
    families = FAMILIES if not options.snapshots else {
        Path(path).stem: (partial(snapshot, path=path), 40) for path in options.snapshots}
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, (make, draws) in families.items():
        if options.only not in name:
            continue
        started = time.perf_counter()
        draws = options.draws or draws
        found = study(make, draws, options.jobs)
        results[name] = {"draws": draws, "seconds": round(time.perf_counter() - started, 1), "jobs": options.jobs,
                         "machine": f"{platform.machine()}, {os.cpu_count()} cores", "numpy": np.__version__,
                         "command": " ".join(["python", "bench/tuning.py", *sys.argv[1:]]), "regret": found}
        RESULTS.parent.mkdir(exist_ok=True)
        atomic.write(RESULTS, json.dumps(results, indent=1) + "\n")
        print(name, f"{draws} draws, {results[name]['seconds']} s")
        for hold, table in found.items():
            print(f"  {hold:24}", "  ".join(f"{key} {mean:.2f}±{se:.2f}" for key, (mean, se) in table.items()))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
