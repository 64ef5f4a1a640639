"""What people wait for: `tune`, `compare`, `match_prior` and a report with intervals, as multiples of the path.

    python bench/waiting.py            # into results/waiting.json
    python bench/waiting.py --quick    # smaller sets, nothing written

Times of one run are taken in turn, and a ratio is of medians. The path is `gamma_path` with both error curves, of RS.
For the rule `auto`, the ratio is also given to the paths of all rules that it tries. Stages are the seconds of one more
call, by stage. Memory is the anonymous memory of a process of its own, at its peak, without the pages of the file that
it reads. A fit of `TunedRescaledClassifierCV` is compared with the plain fit and with `TunedThresholdClassifierCV` by
the same folds (asked: 1.3). The path itself is compared with a grid of 101 gammas, both on one core (bench/path.py).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _stages import shares, watched
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV

import levelhead as lh
from levelhead.hosts.sklearn import TunedRescaledClassifierCV
from levelhead.report import of_logits, write
from path import RESULTS, TARGETS, against_grid, data, machine, one_core, spread

ASKED = {
    (10_000, 10): (80, 30),
    (10_000, 100): (40, 20),
    (50_000, 1000): (8, 6),
}  # of all rules, and of one
MEMORY = """
import json, re, sys, threading, time, warnings
from pathlib import Path
import numpy as np
import levelhead as lh
from _stages import shares, watched
warnings.simplefilter("ignore")
peak, done = [0], threading.Event()

def watch():
    while not done.wait(0.005):
        peak[0] = max(peak[0], int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]))

watcher = threading.Thread(target=watch)
watcher.start()
logits = np.load(sys.argv[1], mmap_mode="r")
labels = np.load(sys.argv[2])
counts = np.load(sys.argv[3])
before = peak[0]
start = time.perf_counter()
with watched() as spent:
    tuned = lh.tune(logits, labels, counts)
took = time.perf_counter() - start
done.set()
watcher.join()
found = {"seconds": took, "peak_mb": peak[0] / 1024, "rule": tuned.rule, "gamma": tuned.gamma}
print(json.dumps({**found, "stages": shares(spent)}))
"""


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def curves(case: tuple[np.ndarray, np.ndarray, np.ndarray], **options: Any) -> np.ndarray:
    path = lh.gamma_path(*case, **options)
    return path.error + path.balanced_error


def against_path(n: int, classes: int, repeats: int) -> dict[str, Any]:
    """Time everything in turn, and return medians and ratios."""
    case, folder = data(n, classes), tempfile.TemporaryDirectory()
    works: dict[str, Callable[[], Any]] = {
        "path": lambda: curves(case),
        "path of the shift": lambda: curves(case, rule="shift", range=(0, 4)),
        "changes of predictions": lambda: lh.gamma_path(*case).envelope,
        "tune, rule rescale": lambda: lh.tune(*case, rule="rescale"),
        "tune": lambda: lh.tune(*case),
        "match_prior": lambda: lh.match_prior(case[0], case[2]),
        "compare": lambda: lh.compare(*case),
        "report": lambda: write(Path(folder.name) / "page.html", [of_logits(*case)]),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    works["path"]()
    for _ in range(repeats):
        for name, work in works.items():
            for _ in range(5 if "path" in name else 1):
                times[name].append(seconds(work))
    path, shift = (float(np.median(times[name])) for name in ("path", "path of the shift"))
    paths = (
        path + shift + (shift if n * classes <= 8_000_000 else 0.0)
    )  # shift, rescale, rescale+shift
    asked = dict(zip(("tune", "tune, rule rescale"), ASKED[n, classes], strict=True))
    row: dict[str, Any] = {
        "n": n,
        "classes": classes,
        "asked": asked,
        "seconds": {},
        "times_the_path": {},
    }
    for name, taken in times.items():
        row["seconds"][name] = spread(taken)
        row["times_the_path"][name] = float(np.median(taken)) / path
    row["tune_times_the_paths_of_its_rules"] = float(np.median(times["tune"])) / paths
    row["stages"] = {}
    for name in ("tune, rule rescale", "tune", "match_prior", "compare"):
        with watched() as spent:
            works[name]()
        row["stages"][name] = shares(spent)
    folder.cleanup()
    told = ", ".join(
        f"{name} {ratio:.1f}" for name, ratio in row["times_the_path"].items() if "path" not in name
    )
    print(
        f"{n} x {classes}: path {1e3 * path:.1f} ms; times the path: {told} (asked: {asked}); tune is "
        f"{row['tune_times_the_paths_of_its_rules']:.1f} times the paths of the rules that it tries",
        flush=True,
    )
    return row


def against_plain_fit(n: int, repeats: int) -> list[dict[str, Any]]:
    """Time fits of scikit-learn's classifiers: plain, with a tuned threshold, and adjusted, by the same five folds."""
    rows, rng = [], np.random.default_rng(0)
    for classes in (2, 4):
        shares = 20.0 ** -np.linspace(0, 1, classes)
        labels = rng.choice(classes, size=n, p=shares / shares.sum())
        X = rng.normal(size=(n, 20)) + 1.5 * np.eye(classes, 20)[labels]
        for model in (LogisticRegression(), HistGradientBoostingClassifier(random_state=0)):
            models = {"plain": model, "adjusted": TunedRescaledClassifierCV(model, cv=5)}
            models |= {"threshold": TunedThresholdClassifierCV(model, cv=5)} if classes == 2 else {}
            times: dict[str, list[float]] = {name: [] for name in models}
            for _ in range(repeats):
                for name, one in models.items():
                    times[name].append(seconds(partial(clone(one).fit, X, labels)))
            middle = {name: float(np.median(taken)) for name, taken in times.items()}
            row: dict[str, Any] = {"n": n, "classes": classes, "model": type(model).__name__}
            row["seconds"] = {name: spread(taken) for name, taken in times.items()}
            row["times_the_plain_fit"] = middle["adjusted"] / middle["plain"]
            row["times_the_tuned_threshold"] = (
                middle["adjusted"] / middle["threshold"] if classes == 2 else None
            )
            rows.append(row)
            over = (
                f", {row['times_the_tuned_threshold']:.2f} times that of a threshold"
                if classes == 2
                else ""
            )
            told = f"{middle['adjusted']:.2f} s, {row['times_the_plain_fit']:.1f} times the plain fit{over}"
            print(f"fit of {row['model']}, {n} rows, {classes} classes: {told}", flush=True)
    return rows


def memory(n: int, classes: int, **asked: float) -> dict[str, Any]:
    """Tune on a file in its own process, and return its time and the peak of its memory."""
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder) / f"{name}.npy" for name in ("logits", "labels", "counts")]
        rng, step = np.random.default_rng(0), max(1, 10_000_000 // classes)
        counts = np.maximum(5000 * 100 ** (-np.arange(classes) / (classes - 1)), 1).astype(int)
        labels = rng.integers(classes, size=n)
        file = np.lib.format.open_memmap(names[0], "w+", np.float32, (n, classes))
        for first in range(0, n, step):
            own = labels[first : first + step]
            block = 2 * rng.standard_normal((len(own), classes), np.float32)
            block += (0.5 * np.log(counts / counts.mean())).astype(np.float32)
            block[np.arange(len(own)), own] += 5
            file[first : first + step] = block
        file.flush()
        del file
        np.save(names[1], labels)
        np.save(names[2], counts)
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, *map(str, names)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},  # for the stages
        )
    found = {
        "n": n,
        "classes": classes,
        **json.loads(done.stdout),
        **{f"asked_{key}": x for key, x in asked.items()},
    }
    print(
        f"tune on {n} x {classes} ({4e-9 * n * classes:.1f} GB): {found['seconds']:.1f} s, {found['peak_mb']:.0f} MB "
        f"(asked: {asked})",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sets; write nothing")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    command = "python " + " ".join(["bench/waiting.py", *sys.argv[1:]])
    result: dict[str, Any] = {
        "machine": {**machine(), "threads": os.cpu_count()},
        "command": command,
    }
    result["ratios"] = [
        against_path(*size, given.repeats) for size in list(ASKED)[: 2 if given.quick else 3]
    ]
    result["fits"] = against_plain_fit(2000 if given.quick else 10_000, given.repeats)
    shrink = 20 if given.quick else 1
    result["memory"] = [
        memory(500_000 // shrink, 1000, peak_mb=600),
        memory(1_000_000 // shrink, 100, seconds=15),
        memory(2000 // shrink, 100_000, peak_mb=1000),
    ]
    sizes = list(TARGETS["numpy"])[: 2 if given.quick else None]
    with one_core():
        result["path_against_grid"] = against_grid(sizes, ["numpy"], given.repeats)
    if not given.quick:
        target = RESULTS / "waiting.json"
        target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"written to results/{target.name}")


if __name__ == "__main__":
    main()
