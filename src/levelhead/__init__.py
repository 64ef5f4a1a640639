"""Level the head of a classifier trained on imbalanced data: during training (WVN), or in one line after it (RS)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .choice import priors as priors
    from .choice.chunked import tune_chunks
    from .choice.compare import Comparison as Comparison
    from .choice.compare import compare
    from .choice.gamma_path import GammaPath as GammaPath
    from .choice.gamma_path import gamma_path
    from .choice.samples import Goal
    from .choice.snapshot import Snapshot as Snapshot
    from .choice.tune import cross_fit, match_prior, tune
    from .choice.tuned import Tuned
    from .core import counts, measure, rules
    from .core.adjust import factors as factors
    from .core.adjust import normalize as normalize
    from .core.adjust import rescale as rescale
    from .core.adjust import shift_logits as shift_logits
    from .core.adjust import tau_normalize as tau_normalize
    from .core.head import Head
    from .heads.adjusted import Adjusted as Adjusted
    from .heads.apply import adjust, adjust_
    from .heads.apply import rescale_ as rescale_
    from .heads.collect import scores
    from .heads.torch_find import find_head
    from .hosts.torch import WVN
    from .hosts.torch import normalize_ as normalize_
    from .labels.tune_labels import tune_labels
    from .methods import METHODS
    from .support import warnings as warnings
    from .support.errors import LevelheadError

__all__ = [
    "METHODS",
    "WVN",
    "Goal",
    "Head",
    "LevelheadError",
    "Tuned",
    "adjust",
    "adjust_",
    "compare",
    "counts",
    "cross_fit",
    "find_head",
    "gamma_path",
    "match_prior",
    "measure",
    "rules",
    "scores",
    "tune",
    "tune_chunks",
    "tune_labels",
]

_HOMES = {  # module: the public names that it defines
    "_moved": ("compare", "cross_fit", "gamma_path", "match_prior", "tune"),
    "choice.chunked": ("tune_chunks",),
    "choice.compare": ("Comparison",),
    "choice.samples": ("Goal",),
    "choice.snapshot": ("Snapshot",),
    "choice.tuned": ("Tuned",),
    "support.errors": ("LevelheadError",),
    "core.head": ("Head",),
    "heads.adjusted": ("Adjusted",),
    "heads.apply": ("adjust", "adjust_", "rescale_"),
    "heads.collect": ("scores",),
    "heads.torch_find": ("find_head",),
    "hosts.torch": ("WVN", "normalize_"),
    "labels.tune_labels": ("tune_labels",),
    "methods": ("METHODS",),
    "choice.gamma_path": ("GammaPath",),
    "core.adjust": ("factors", "normalize", "rescale", "shift_logits", "tau_normalize"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
# Public modules, by the room that each is in.
_MODULES = {
    "counts": "core",
    "measure": "core",
    "priors": "choice",
    "rules": "core",
    "warnings": "support",
}
_MOVED = {
    "PriorEstimate": "priors",
    "estimate_prior": "priors",
}  # what has a new place, which it warns of


def __getattr__(name: str) -> Any:
    from .support.extras import naming_what_is_missing

    if name in _MODULES:
        value = import_module(f".{_MODULES[name]}.{name}".replace("..", "."), __name__)
    elif name in _HOME:
        with naming_what_is_missing():
            value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    elif name in _MOVED or name.endswith("Warning") or name == "geometry":
        return _moved_name(name)
    elif name == "Partial":
        raise AttributeError(
            "levelhead.Partial and the files it wrote are gone: tune again with lh.tune_chunks"
        )
    else:
        raise AttributeError(f"module 'levelhead' has no attribute {name!r}")
    globals()[name] = value
    return value


def _moved_name(name: str) -> Any:
    """Return what had a name here, with a warning that says the new one."""
    from .support.extras import from_the_study
    from .support.warnings import warn

    place = f"lh.{_MOVED.get(name, 'warnings')}.{name}"
    if name == "geometry":
        place, value = "levelhead_lab.paper.geometry", from_the_study("paper.geometry")
    elif not hasattr(home := __getattr__(_MOVED.get(name, "warnings")), name):
        raise AttributeError(f"module 'levelhead' has no attribute {name!r}")
    else:
        value = getattr(home, name)
    warn(f"lh.{name} moved to {place}; levelhead 0.2 no longer has it here", DeprecationWarning)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
