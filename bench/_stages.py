"""Where the time of a tuning goes: the seconds of each stage, by itself, as the thread that waits for it sees them."""

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

STAGES = {  # what each is: where it is called
    "exact path": (("held_out", "gamma_path"),),
    "changes of predictions": (("path_predictions", "compute_envelope"), ("match_prior", "compute_envelope")),
    "folds of all rules": (("auto", "cross_fit_rules"), ("compare", "cross_fit_rules")),
    "replicates": (("choose", "draw_replicates"), ("match_prior", "choose_by_shares")),
    "temperatures": (("choose", "temperature_at"), ("held_out", "fit_scale")),
    "curves of all rules": (("auto", "list_candidates"),),
    "checks of the samples": (("tune", "_diagnose_logits"), ("compare", "diagnose_counts")),
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

    for stage, places in STAGES.items():
        for module, name in places:
            home = importlib.import_module(f"levelhead.gamma.{module}")
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
