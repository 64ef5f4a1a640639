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
    findings = Found(
        {"executions": 0, "read": 0, "refused": 0, "by reader": dict.fromkeys(FUZZERS, 0)}
    )
    wanted, turn = budget.own(budget.size(len(FUZZERS) * 100, TARGET)), 0
    while findings.done["executions"] < wanted and not budget.spent:
        seed = 1000 + 1_000_000 * budget.round + budget.index + budget.parts * turn
        for name, seconds in FUZZERS.items():
            fuzzer = importlib.import_module(f".fuzz_{name}", __package__)
            limits = (
                {"executions": 100}
                if budget.profile == "quick"
                else {"executions": 10**7, "seconds": seconds}
            )
            summary = fuzzer.run(seed=seed, keep=budget.keep, **limits)
            findings.done["by reader"][name] += summary["executions"]
            findings.done["executions"] += summary["executions"]
            findings.done["read"] += summary["read"]
            findings.done["refused"] += summary["documented errors"]
            findings.failures += [
                f"{name}, case {first}: {what} ({times} times)"
                for what, (times, first) in summary["wrong"].items()
            ]
            budget.note(findings)
        turn += 1
    findings.lacks = lacks(findings.done)
    return findings


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
