"""Time of the exact path, compared with a grid of 101 gammas, scikit-learn's tuned threshold and a read of the logits.

    python -m bench.speed.path            # on the CPU, one thread, into results/path.json
    python -m bench.speed.path --quick    # smaller sets, nothing written
    python -m bench.speed.path_gpu        # the same path on a GPU

Ratios compare times taken in turn in one run: the median of all repeats, with the lowest and the highest. Both give the
error and the balanced error over gamma: the path at every gamma, the grid at 101.
"""

import os

THREADS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"
os.environ.update(dict.fromkeys(THREADS, "1"))  # before numpy is loaded

import argparse  # noqa: E402
import cProfile  # noqa: E402
import json  # noqa: E402
import platform  # noqa: E402
import pstats  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from importlib.metadata import PackageNotFoundError, version  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from levelhead import gamma_path  # noqa: E402
from levelhead.core.counts import long_tail  # noqa: E402

RESULTS = Path(__file__).parents[2] / "results"
# Added to the logit of the true class. At gamma 0, 71, 38, 42 and 62 % are right, about as many as for networks trained
# plainly on CIFAR-10-LT, CIFAR-100-LT, ImageNet-LT and iNaturalist 2018.
SIGNAL = {10: 4.62, 100: 4.6, 1000: 6.35, 8142: 8.68}
GRID = np.linspace(0, 2, 101)
TARGETS = {(10_000, 10): 7, (10_000, 100): 7, (50_000, 1000): 7}  # times as fast as the grid


@contextmanager
def one_core() -> Iterator[None]:
    """Bind this process to one core while the block runs: both sides of a ratio then have the same one."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def data(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits like those of a network trained on a long tail of ratio 100, with labels and counts."""
    rng = np.random.default_rng(seed)
    counts = long_tail(5000, classes, 100)
    labels = rng.integers(0, classes, n)
    logits = rng.standard_normal((n, classes), np.float32)
    logits *= 2
    logits += (0.5 * np.log(counts / counts.mean())).astype(np.float32)
    logits[np.arange(n), labels] += SIGNAL[classes]
    return logits, labels, counts


def grid(
    logits: np.ndarray, labels: np.ndarray, counts: np.ndarray, gammas: np.ndarray = GRID
) -> np.ndarray:
    """Compute the usual grid without waste: one buffer for the scores, one argmax and one count per gamma."""
    scores = np.empty_like(logits)
    sizes = np.bincount(labels, minlength=len(counts))
    curve = np.empty((len(gammas), 2))
    for i, gamma in enumerate(gammas):
        np.multiply(logits, ((counts.max() / counts) ** gamma).astype(logits.dtype), out=scores)
        right = scores.argmax(axis=1) == labels
        recall = np.bincount(labels, right, len(counts)) / np.maximum(sizes, 1)
        curve[i] = 1 - right.mean(), 1 - recall[sizes > 0].mean()
    return curve


def path(
    logits: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return error and balanced error at every gamma at which a prediction changes."""
    whole = gamma_path(logits, labels, counts)
    return whole.error, whole.balanced_error


def seconds(work: Callable[..., object], *arguments: object, at_least: float = 0.05) -> float:
    """Return the seconds of one call: the mean of as many in a row as take 50 ms together."""
    start = time.perf_counter()
    calls = 0
    while calls == 0 or time.perf_counter() - start < at_least:
        work(*arguments)
        calls += 1
    return (time.perf_counter() - start) / calls


def spread(times: list[float]) -> dict[str, float]:
    """Return median, least and most of some times, as records have them."""
    return {
        "median_s": float(np.median(times)),
        "min_s": min(times),
        "max_s": max(times),
        "repeats": len(times),
    }


def against_grid(sizes: list[tuple[int, int]], repeats: int) -> list[dict[str, Any]]:
    """Time the path, the grid and one read of the logits in turn, at each size.

    Of the largest sizes not every gamma of the grid is timed: the others would take as long.

    Args:
        sizes: (samples, classes) of each.
        repeats: of each time.

    Returns:
        A row of the record for each size; with a profile of the path where it is slower than asked.
    """
    rows = []
    for n, classes in sizes:
        case = data(n, classes)
        every = 1  # so many gammas of the grid are timed
        rounds = repeats
        if n * classes >= 10**7:
            every = 10
        if n * classes >= 10**8:
            every = 50
            rounds = 3
        times: dict[str, list[float]] = {"path": [], "grid": [], "read": []}
        path(*case)  # fill caches
        timed = GRID[::every]
        for _ in range(rounds):
            times["grid"].append(seconds(grid, *case, timed) * len(GRID) / len(timed))
            times["read"].append(seconds(case[0].max))
            times["path"].append(seconds(path, *case))
        check(case)
        ours = float(np.median(times["path"]))
        ratio = float(np.median(times["grid"])) / ours
        asked = TARGETS[n, classes]
        row = {
            "n": n,
            "classes": classes,
            "path": spread(times["path"]),
            "grid": spread(times["grid"]),
            "grid_gammas_timed": len(timed),
            "times_faster": ratio,
            "asked": asked,
            "reads_of_the_logits": ours / float(np.median(times["read"])),
        }
        rows.append(row)
        if ratio < asked:
            row["profile"] = profile(case)
            shares = ", ".join(f"{name} {share:.0%}" for name, share in row["profile"])
            print(f"       left: {shares}")
        print(
            f"{n:6d} x {classes:5d} {ours * 1e3:9.2f} ms, {ratio:6.1f} times faster than the grid "
            f"(asked: {asked}), {row['reads_of_the_logits']:.1f} reads of the logits",
            flush=True,
        )
    return rows


def profile(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> list[tuple[str, float]]:
    """Return the functions that take most of the path's time by themselves, with their shares of it."""
    watch = cProfile.Profile()
    for _ in range(20):
        watch.runcall(path, *case)
    stats = pstats.Stats(watch).stats.items()  # type: ignore[attr-defined]
    whole = sum(own_time for _, (_, _, own_time, _, _) in stats)
    most = sorted(stats, key=lambda item: -item[1][2])[:8]
    return [
        (f"{Path(file).stem}.{name}".removeprefix("~."), round(own_time / whole, 3))
        for (file, _, name), (_, _, own_time, _, _) in most
    ]


def check(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Check that path and grid agree, except for samples whose two best scores float32 cannot tell apart."""
    gammas = GRID[::25]
    curve = gamma_path(*case).error_curve.at(gammas)
    assert np.abs(curve - grid(*case, gammas)[:, 0]).max() <= 2e-4, "the grid and the path differ"


def against_sklearn(n: int, repeats: int) -> dict[str, Any] | None:
    """Compare TunedThresholdClassifierCV (cv="prefit", 100 thresholds) with the exact path of the shift."""
    try:
        from sklearn.frozen import FrozenEstimator
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import balanced_accuracy_score
        from sklearn.model_selection import TunedThresholdClassifierCV
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    labels = (rng.random(2 * n) < 0.05).astype(int)
    features = rng.normal(size=(2 * n, 10)) + labels[:, None] * np.linspace(0, 1, 10)
    model = LogisticRegression().fit(features[:n], labels[:n])
    held = features[n:]
    truth = labels[n:]
    counts = np.bincount(labels[:n])

    def theirs() -> float:
        tuned = TunedThresholdClassifierCV(
            FrozenEstimator(model),
            scoring="balanced_accuracy",
            cv="prefit",
            refit=False,
            thresholds=100,
        ).fit(held, truth)
        return 1 - balanced_accuracy_score(truth, tuned.predict(held))

    def ours() -> float:
        odds = model.decision_function(held)
        logits = np.column_stack([np.zeros_like(odds), odds])
        return gamma_path(logits, truth, counts, rule="shift").best().balanced_error

    their_error = theirs()
    our_error = ours()
    their_times = []
    our_times = []
    for _ in range(repeats):
        their_times.append(seconds(theirs))
        our_times.append(seconds(ours))
    their = np.median(their_times)
    our = np.median(our_times)
    print(
        f"scikit-learn's tuned threshold, n = {n}: {their * 1e3:.1f} ms and balanced error {their_error:.5f}; "
        f"ours {our * 1e3:.1f} ms and {our_error:.5f}: {their / our:.1f} times faster (asked: 10)",
        flush=True,
    )
    return {
        "n": n,
        "thresholds": 100,
        "theirs": spread(their_times),
        "ours": spread(our_times),
        "their_balanced_error": their_error,
        "our_balanced_error": our_error,
        "times_faster": float(their / our),
        "asked": 10,
    }


# The process that reads the file: the highest mark of its memory (VmHWM) is all that it had at
# once.
STREAM = """
import re, sys, time
from pathlib import Path
import numpy as np
from levelhead import gamma_path
logits = np.load(sys.argv[1], mmap_mode="r")
start = time.perf_counter()
path = gamma_path(logits, np.arange(len(logits)) % logits.shape[1], np.arange(1, logits.shape[1] + 1))
most = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(time.perf_counter() - start, most / 1024, path.error.min())
"""


def stream(gigabytes: float) -> dict[str, Any]:
    """Read a file of logits in its own process, and return the peak memory of that process."""
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder) / "logits.npy"
        rows = int(gigabytes * 1e9 / 4 / 1000)
        file = np.lib.format.open_memmap(name, "w+", np.float32, (rows, 1000))
        block = data(10_000, 1000)[0]
        for first in range(0, rows, 10_000):
            file[first : first + 10_000] = block[: rows - first]
        file.flush()
        del file
        done = subprocess.run(
            [sys.executable, "-c", STREAM, str(name)], check=True, capture_output=True, text=True
        )
    took, memory, _ = map(float, done.stdout.split())
    print(
        f"{gigabytes:g} GB from disk: {took:.1f} s, at most {memory:.0f} MB of memory (asked: 300)",
        flush=True,
    )
    return {"gigabytes": gigabytes, "seconds": took, "peak_mb": memory, "asked_mb": 300}


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    versions = {}
    for name in ("numpy", "torch", "scikit-learn"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    # Linux says which processor it is; on others the kind must do.
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":")[1].strip()
                break
    return {
        "cpu": model,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": 1,
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        **versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sets; write nothing")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    result: dict[str, Any] = {
        "machine": machine(),
        "command": "python -m bench.speed.path",
    }
    sizes = list(TARGETS)
    samples = 50_000
    gigabytes = 4.0
    if options.quick:
        sizes = sizes[:2]
        samples = 5000
        gigabytes = 0.2
    result["against_grid"] = against_grid(sizes, options.repeats)
    result["against_sklearn"] = against_sklearn(samples, options.repeats)
    result["stream"] = stream(gigabytes)
    if not options.quick:
        target = RESULTS / "path.json"
        target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"written to results/{target.name}")


if __name__ == "__main__":
    main()
