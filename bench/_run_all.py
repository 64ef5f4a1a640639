"""Run what measures speed, one after another, with the time that each takes: `make bench`.

    python bench/_run_all.py [NAME ...]

Without names, all are run, and their times go to results/bench.json. Studies of quality take longer and are run by
themselves: decisions, calibration, multilabel, snapshots, kill, census, rule_epochs and past_frontier. So are
train and tiles, which need a GPU.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PARTS = "startup", "wvn", "path", "path_gpu", "speed/waiting", "files", "page", "sweep"
MOST_S = 20 * 60


def main() -> None:
    names, seconds, load = sys.argv[1:] or PARTS, {}, os.getloadavg()[0]
    for name in names:
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        subprocess.run([sys.executable, HERE / f"{name}.py"], cwd=HERE.parent, check=True)
        seconds[name] = round(time.perf_counter() - began, 1)
        print(f"== {name}: {seconds[name]:.0f} s", flush=True)
    print(f"{sum(seconds.values()) / 60:.1f} minutes in all (asked: {MOST_S // 60})")
    if tuple(names) == PARTS:
        found = {
            "what": "seconds that each part of `make bench` took, one after another",
            "seconds": seconds,
            "seconds, all": round(sum(seconds.values()), 1),
            "asked, at most": MOST_S,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
            "load_average": round(load, 1),
            "command": "make bench",
        }
        (HERE.parent / "results" / "bench.json").write_text(
            json.dumps(found, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
