"""Malformed files never crash a reader: the sums of all fuzzers.

Seen to fail: with `io.safetensors_file.read_header` catching nothing but RecursionError.
"""

import importlib
from typing import Any

from .board import Budget, Found, Row, lacking

TARGET = 20_000_000
# Seconds of each turn. The last two read a file in 0.2 ms; the others adjust it, undo that and ask another library.
FUZZERS = {
    "safetensors": 1,
    "state_dict": 1,
    "onnx": 1,
    "keras": 1,
    "mlx": 1,
    "undo": 1,
    "run_folder": 1,
    "data": 5,
    "parts": 5,
}


def check(budget: Budget) -> Found:
    """Run the fuzzers in turns, with a seed of its own for each, until there are executions enough."""
    found = Found(
        {"executions": 0, "read": 0, "refused": 0, "by reader": dict.fromkeys(FUZZERS, 0)}
    )
    wanted, turn = budget.own(budget.size(len(FUZZERS) * 100, TARGET)), 0
    while found.done["executions"] < wanted and not budget.spent:
        seed = 1000 + 1_000_000 * budget.round + budget.index + budget.parts * turn
        for name, seconds in FUZZERS.items():
            fuzzer = importlib.import_module(f".fuzz_{name}", __package__)
            limits = (
                {"executions": 100}
                if budget.profile == "quick"
                else {"executions": 10**7, "seconds": seconds}
            )
            one = fuzzer.run(seed=seed, keep=budget.keep, **limits)
            found.done["by reader"][name] += one["executions"]
            found.done["executions"] += one["executions"]
            found.done["read"] += one["read"]
            found.done["refused"] += one["documented errors"]
            found.failures += [
                f"{name}, case {first}: {what} ({times} times)"
                for what, (times, first) in one["wrong"].items()
            ]
            budget.note(found)
        turn += 1
    found.lacks = lacks(found.done)
    return found


def lacks(done: dict[str, Any]) -> str:
    """Return how many executions are missing to the target."""
    return lacking(done["executions"], TARGET, "executions")


ROW = Row(
    "malformed files never crash it",
    "damage to bytes, JSON, zip records and protobuf fields, over every reader; results checked by other libraries",
    f"{TARGET:,} executions, documented errors only",
    check,
    lacks,
)
