"""Where `rescale_file` was, with all the parameters that it had; it is in `model`. For one minor version."""

from functools import wraps
from pathlib import Path
from typing import Any

from ..core.counts import Counts, with_background
from ..support.warnings import warn
from . import model
from .model import RescaleResult as RescaleResult

_NOW = {
    "bias": "rule=lh.rules.Rescale(bias=head.bias)",
    "missing": "counts=lh.counts.resolve(counts, missing=...)",
    "background": "counts=lh.counts.with_background(counts, background)",
    "names": "counts=lh.counts.resolve(counts, names=names)",
    "logits": "adjust_file(..., logits=logits)",
}


@wraps(model.rescale_file)
def rescale_file(
    path: str | Path,
    out: str | Path,
    counts: Counts,
    *,
    gamma: float,
    rule: str = "rescale",
    **options: Any,
) -> RescaleResult:
    moved = [(f"the parameter {name}", new) for name, new in _NOW.items() if name in options]
    for old, new in moved or [("levelhead.files.rescale", "levelhead.files.model")]:
        warn(f"{old} moved to {new}; levelhead 0.2 no longer takes it", DeprecationWarning)
    background, how = (
        options.pop("background", None),
        {"missing": "error", "gamma": gamma, "rule": rule},
    )
    how |= {
        name: options.pop(name)
        for name in ("bias", "missing", "logits", "again")
        if name in options
    }
    written = {
        name: options.pop(name) for name in ("original", "force", "progress") if name in options
    }
    found = model.locate_head(path, counts=counts, **options)
    place = model.InFile(Path(path), model.Output(Path(out), **written), found)
    return model.rescale_place(
        place, counts if background is None else with_background(counts, background), **how
    )
