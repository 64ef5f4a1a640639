"""Where the time of a tuning goes: the seconds of each stage, by itself, as the thread that waits for it sees them."""

import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from types import FunctionType
from typing import Any

STAGES = {  # of each function of levelhead, wherever it is called
    "gamma_path": "exact path",
    "compute_envelope": "changes of predictions",
    "cross_fit_rules": "folds of all rules",
    "draw_replicates": "replicates",
    "choose_by_shares": "replicates",
    "temperature_at": "temperatures",
    "fit_scale": "temperatures",
    "list_candidates": "curves of all rules",
    "_diagnose_logits": "checks of the samples",
    "diagnose_counts": "checks of the samples",
}


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Yield the seconds of each stage, filled while the block runs; what is within another stage counts for itself."""
    spent: dict[str, float] = {}
    inner, own, kept = [0.0], get_ident(), []

    def timed(name: str, work: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            if get_ident() != own:
                return work(*given, **options)
            start = time.perf_counter()
            inner.append(0.0)
            try:
                return work(*given, **options)
            finally:
                took = time.perf_counter() - start
                spent[name] = spent.get(name, 0.0) + took - inner.pop()
                inner[-1] += took

        return call

    for name in ("tune", "compare"):  # and, with them, all that choices call
        importlib.import_module(f"levelhead.choice.{name}")
    modules = [module for name, module in sys.modules.items() if name.startswith("levelhead.")]
    for name, stage in STAGES.items():
        homes = [module for module in modules if isinstance(vars(module).get(name), FunctionType)]
        if not homes:
            raise LookupError(f"no module of levelhead has a function {name}: correct STAGES")
        for home in homes:
            kept.append((home, name, getattr(home, name)))
            setattr(home, name, timed(stage, getattr(home, name)))
    start = time.perf_counter()
    try:
        yield spent
    finally:
        spent["all else"] = time.perf_counter() - start - sum(spent.values())
        for home, name, work in kept:
            setattr(home, name, work)


def shares(spent: dict[str, float]) -> list[tuple[str, float, float]]:
    """Return (stage, seconds, share of all), the longest first."""
    whole = sum(spent.values())
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    return [(name, round(took, 4), round(took / whole, 3)) for name, took in ordered]
