"""Cost of starting: `import levelhead`, `levelhead --help`, a completion, `levelhead inspect` of a safetensors file.

    python -m bench.speed.startup [--rounds 20] [--out results/startup.json]

Whole processes are timed; each round runs all of them one after another, with a bare interpreter and `import numpy` for
comparison. The least time of all rounds counts, because other processes only add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HEAVY = ("torch", "sklearn", "onnx", "rich", "matplotlib")
LIMITS = {"import levelhead": 0.150, "levelhead --help": 0.300}
COMPLETION = {
    "_LEVELHEAD_COMPLETE": "complete_bash",
    "COMP_WORDS": "levelhead tune --ru",
    "COMP_CWORD": "2",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", default="results/startup.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder) / "m.safetensors", args.rounds)
    Path(args.out).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def measure(model: Path, rounds: int) -> dict:
    """Time whole processes, and see which heavy modules a command loads; return the record."""
    from safetensors.numpy import save_file

    save_file({"fc.weight": np.ones((1000, 2048), np.float32)}, model)
    python = [sys.executable]
    commands = {
        "python": [*python, "-c", "pass"],
        "import numpy": [*python, "-c", "import numpy"],
        "import levelhead": [*python, "-c", "import levelhead"],
        "levelhead --help": [*python, "-m", "levelhead", "--help"],
        "levelhead inspect": [*python, "-m", "levelhead", "inspect", str(model)],
        "completion in bash": [str(Path(sys.executable).with_name("levelhead"))],
    }
    times = [[clock(command) for command in commands.values()] for _ in range(rounds + 1)]
    seconds = np.array(times[1:])  # the first round compiles what is not compiled yet
    least = seconds.min(axis=0)
    middle = np.median(seconds, axis=0)
    code = f"import sys; from levelhead.cli import app; app(['inspect', {str(model)!r}], standalone_mode=False)"
    code += "; print(','.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([*python, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stderr.strip().split(",")
    return {
        "seconds": {
            name: {"least": round(float(a), 4), "median": round(float(b), 4)}
            for name, a, b in zip(commands, least, middle, strict=True)
        },
        "limits": LIMITS,
        "heavy_modules_that_inspect_loads": [name for name in HEAVY if name in loaded],
        "rounds": rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 1),
        "command": "python -m bench.speed.startup",
    }


def clock(command: list[str]) -> float:
    """Return the seconds of a process. In the variables of a completion, only that command looks."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ | COMPLETION, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
