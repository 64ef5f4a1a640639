"""What all fuzzers of model files share: the loop, the account of what happened, and the command line.

    python -m tests.trust.fuzz_onnx --executions 100000 --seed 1     # or --seconds 300

prints one JSON line: executions, how many files were read, how many refused by a documented error, and tracebacks: any
other error, a message of several lines or without the file's name, and a result that another library contradicts.
"""

import argparse
import json
import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from levelhead.core.errors import LevelheadError


class Contradiction(Exception):
    """A result that another library does not agree with."""


def drive(
    case: Callable[[random.Random, Path], None], *, executions: int, seed: int = 0, seconds: float = 1e9
) -> dict[str, Any]:
    """Run a case so many times, each in an empty folder; return the account.

    Args:
        case: writes a damaged file to the folder and reads it.
        executions: how many.
        seed: each case has a generator of its own, so that one can be run again by its number.
        seconds: stop after these.
    """
    outcome: Counter[str] = Counter()
    wrong: dict[str, list[int]] = {}
    began, done = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as root:
        for number in range(seed * 10_000_000, seed * 10_000_000 + executions):
            folder = Path(root, "case")
            folder.mkdir()
            try:
                case(random.Random(number), folder)
                outcome["read"] += 1
            except (LevelheadError, FileNotFoundError, FileExistsError) as error:
                if "\n" in str(error).strip() or not (str(folder) in str(error) or "counts" in str(error)):
                    wrong.setdefault(_describe(error), []).append(number)
                else:
                    outcome["documented errors"] += 1
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                wrong.setdefault(_describe(error), []).append(number)
            shutil.rmtree(folder)
            done += 1
            if time.monotonic() - began > seconds:
                break
    return {
        "executions": done,
        **{title: outcome[title] for title in ("read", "documented errors")},
        "tracebacks": sum(map(len, wrong.values())),
        "seconds": round(time.monotonic() - began, 1),
        "wrong": {what: [len(numbers), numbers[0]] for what, numbers in sorted(wrong.items())},
    }


def _describe(error: BaseException) -> str:
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/levelhead/" in frame.filename]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {place}: {str(error).replace(chr(10), ' | ')[-160:]}"


def main(name: str, run: Callable[..., dict[str, Any]]) -> None:
    """Run a fuzzer from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = run(executions=given.executions, seed=given.seed, seconds=given.seconds)
    print(json.dumps({"fuzzer": name, **found}))
