"""Cost of the page of 1,000 classes and 50,000 samples: to write it, to send it and to open it.

    python -m bench.speed.report [--rounds 5] [--out results/page.json]

`levelhead report` is timed as a whole process: from the logits, where it also tunes, and from a tuned.json.
Opening is timed in headless chromium, from the request to the first frame with everything drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

K = 1000
N = 50_000
D = 256
LIMITS = {"write_seconds": 5.0, "megabytes": 1.5, "open_seconds": 2.0}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="results/page.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), args.rounds)
    Path(args.out).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def measure(folder: Path, rounds: int) -> dict:
    """Make the files, write the page both ways, open it, and return the record."""
    make(folder)
    levelhead = [sys.executable, "-m", "levelhead"]
    page = folder / "page.html"
    files = ["--labels", "labels.npy", "--counts", "counts.json"]
    chosen = [*levelhead, "tune", "--logits", "logits.npy", *files, "-o", "tuned.json"]
    subprocess.run(
        chosen, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    written = {
        "from logits": [
            clock(
                [*levelhead, "report", "logits.npy", *files, "-o", "page.html", "--force"], folder
            )
            for _ in range(rounds)
        ],
        "from tuned.json": [
            clock([*levelhead, "report", "tuned.json", "-o", "page.html", "--force"], folder)
            for _ in range(rounds)
        ],
    }
    opened = in_browser(page, rounds)
    return {
        "classes": K,
        "samples": N,
        "write_seconds": {name: spread(times) for name, times in written.items()},
        "megabytes": round(page.stat().st_size / 1e6, 3),
        "open_seconds": spread(opened),
        "limits": LIMITS,
        "rounds": rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 1),
        "command": "python -m bench.speed.report",
    }


def make(folder: Path) -> None:
    """Write logits of classes in groups of similar ones, from a head whose norms follow the counts."""
    rng = np.random.default_rng(0)
    counts = np.maximum(5, (1280 * (1 / 256) ** (np.arange(K) / (K - 1))).astype(int))
    groups = np.repeat(rng.normal(size=(K // 20, D)), 20, axis=0)[rng.permutation(K)]
    means = 0.7 * rng.normal(size=(K, D)) + groups
    weight = means / np.linalg.norm(means, axis=1, keepdims=True) * (counts / 1280)[:, None] ** 0.12
    labels = np.repeat(np.arange(K), N // K)
    features = np.maximum(means[labels] + 3.5 * rng.normal(size=(N, D)), 0)
    np.save(folder / "logits.npy", (features @ weight.T).astype(np.float32))
    np.save(folder / "labels.npy", labels)
    (folder / "counts.json").write_text(json.dumps(counts.tolist()))


def in_browser(page: Path, rounds: int) -> list[float]:
    """Return the seconds until everything is drawn, in fresh pages."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    opened = []
    with sync_playwright() as library:
        browser = library.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for _ in range(rounds):
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            start = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_load_state("load")
            # A frame is drawn before the second callback is called.
            tab.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            opened.append(time.perf_counter() - start)
            tab.close()
        browser.close()
    return opened


def clock(command: list[str], folder: Path) -> float:
    """Return the seconds of a process."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def spread(values: list[float]) -> dict[str, float]:
    """Return least, median and most of some times, as records have them."""
    return {
        "least": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "most": round(max(values), 3),
    }


if __name__ == "__main__":
    main()
