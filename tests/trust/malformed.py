"""Malformed files never crash a reader: the sums of all fuzzers.

Seen to fail: with `io.safetensors_file.read_header` catching nothing but RecursionError.
"""

import importlib

from .board import Budget, Found, Row, lacking

TARGET = 20_000_000
FUZZERS = ("safetensors", "state_dict", "onnx", "undo", "run_folder", "data")


def check(budget: Budget) -> Found:
    """Run each fuzzer for its share of the time, with a seed of its own each time it is run."""
    found = Found({"executions": 0, "read": 0, "refused": 0, "by reader": {}})
    for i, name in enumerate(FUZZERS):
        fuzzer, share = importlib.import_module(f".fuzz_{name}", __package__), budget.part(1 / (len(FUZZERS) - i))
        wanted, done, seed = budget.size(100, TARGET // len(FUZZERS)), 0, 1000
        while done < wanted and not share.spent:
            one = fuzzer.run(executions=min(wanted - done, 100), seed=seed)
            seed, done = seed + 1, done + one["executions"]
            found.done["read"] += one.get("read", 0)
            found.done["refused"] += one.get("documented errors", 0) + one.get("refused", 0)
            found.failures += [f"{name}, seed {seed - 1}: {what}" for what in one["wrong"]]
        found.done["by reader"][name] = done
        found.done["executions"] += done
    found.lacks = lacking(found.done["executions"], TARGET, "executions")
    return found


ROW = Row(
    "malformed files never crash it",
    "damage to bytes, JSON, zip records and protobuf fields, over every reader; results checked by other libraries",
    f"{TARGET:,} executions, documented errors only",
    check,
)
