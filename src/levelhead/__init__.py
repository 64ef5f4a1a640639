"""Level the head of a classifier trained on imbalanced data: during training (WVN), or in one line after it (RS).

Every public name is loaded when it is first used: `import levelhead` costs nothing, not even numpy's import, and torch
is loaded only by what needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .choice.compare import Comparison, compare
    from .choice.partial import Partial
    from .choice.priors import PriorEstimate, estimate_prior
    from .choice.snapshot import Snapshot
    from .choice.tune import cross_fit, match_prior, tune
    from .choice.tuned import Tuned
    from .core import counts, measure
    from .core.errors import LevelheadError
    from .core.head import Head
    from .core.warnings import (
        BinaryHeadWarning,
        CountsWarning,
        LeakageWarning,
        LevelheadWarning,
        MissingClassWarning,
        NegativeLogitsWarning,
        NeverPredictedWarning,
        NormWarning,
        PrecisionWarning,
        PriorWarning,
        RangeWarning,
        ScaleWarning,
    )
    from .heads.adjusted import Adjusted
    from .heads.apply import adjust, adjust_, rescale_
    from .heads.torch_find import find_head
    from .hosts.torch import WVN, normalize_
    from .methods import METHODS
    from .path.path import GammaPath, gamma_path
    from .rules.adjust import factors, normalize, rescale, shift_logits, tau_normalize

__all__ = [
    "METHODS",
    "WVN",
    "Adjusted",
    "BinaryHeadWarning",
    "Comparison",
    "CountsWarning",
    "GammaPath",
    "Head",
    "LeakageWarning",
    "LevelheadError",
    "LevelheadWarning",
    "MissingClassWarning",
    "NegativeLogitsWarning",
    "NeverPredictedWarning",
    "NormWarning",
    "Partial",
    "PrecisionWarning",
    "PriorEstimate",
    "PriorWarning",
    "RangeWarning",
    "ScaleWarning",
    "Snapshot",
    "Tuned",
    "adjust",
    "adjust_",
    "compare",
    "counts",
    "cross_fit",
    "estimate_prior",
    "factors",
    "find_head",
    "gamma_path",
    "geometry",
    "match_prior",
    "measure",
    "normalize",
    "normalize_",
    "rescale",
    "rescale_",
    "shift_logits",
    "tau_normalize",
    "tune",
]

_HOMES = {  # module: the public names that it defines
    "rules.adjust": ("factors", "normalize", "rescale", "shift_logits", "tau_normalize"),
    "core.errors": ("LevelheadError",),
    "core.head": ("Head",),
    "core.warnings": tuple(name for name in __all__ if name.endswith("Warning")),
    "choice.compare": ("Comparison", "compare"),
    "choice.partial": ("Partial",),
    "path.path": ("GammaPath", "gamma_path"),
    "choice.priors": ("PriorEstimate", "estimate_prior"),
    "_moved": ("tune",),
    "choice.tune": ("cross_fit", "match_prior"),
    "choice.tuned": ("Tuned",),
    "heads.adjusted": ("Adjusted",),
    "heads.apply": ("adjust", "adjust_", "rescale_"),
    "heads.torch_find": ("find_head",),
    "hosts.torch": ("WVN", "normalize_"),
    "choice.snapshot": ("Snapshot",),
    "methods": ("METHODS",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("counts", "measure")  # public themselves


def __getattr__(name: str) -> Any:
    if name == "geometry":
        from .core.study import from_the_study

        value = from_the_study("paper.geometry")
    elif name in _MODULES:
        value = import_module(f".core.{name}", __name__)
    elif name in _HOME:
        from .core.extras import naming_what_is_missing

        with naming_what_is_missing():
            value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    else:
        raise AttributeError(f"module 'levelhead' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
