"""Level the head of a classifier trained on imbalanced data: during training (WVN), or in one line after it (RS).

Every public name is loaded when it is first asked for: `import levelhead` costs nothing, not even numpy's import, and
torch is loaded only by what needs it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import counts, geometry, measure
    from .adjust import factors, normalize, rescale, shift_logits, tau_normalize
    from .cautions import (
        BinaryHeadWarning,
        CountsWarning,
        LeakageWarning,
        LevelheadWarning,
        MissingClassWarning,
        NegativeLogitsWarning,
        NeverPredictedWarning,
        NormWarning,
        PrecisionWarning,
        RangeWarning,
    )
    from .compare import Comparison, compare
    from .head import Head
    from .heads.torch import Adjusted, find_head, rescale_
    from .hosts.torch import WVN
    from .methods import METHODS
    from .path import GammaPath, gamma_path
    from .snapshot import Snapshot
    from .tune import cross_fit, match_prior, tune
    from .tuned import Tuned

__version__ = "0.1.0"

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
    "LevelheadWarning",
    "MissingClassWarning",
    "NegativeLogitsWarning",
    "NeverPredictedWarning",
    "NormWarning",
    "PrecisionWarning",
    "RangeWarning",
    "Snapshot",
    "Tuned",
    "compare",
    "counts",
    "cross_fit",
    "factors",
    "find_head",
    "gamma_path",
    "geometry",
    "match_prior",
    "measure",
    "normalize",
    "rescale",
    "rescale_",
    "shift_logits",
    "tau_normalize",
    "tune",
]

_MODULES = ("counts", "geometry", "measure")
_HOME = {  # where each other public name is defined
    name: module
    for module, names in {
        "adjust": ("factors", "normalize", "rescale", "shift_logits", "tau_normalize"),
        "cautions": tuple(name for name in __all__ if name.endswith("Warning")),
        "compare": ("Comparison", "compare"),
        "head": ("Head",),
        "heads.torch": ("Adjusted", "find_head", "rescale_"),
        "hosts.torch": ("WVN",),
        "methods": ("METHODS",),
        "path": ("GammaPath", "gamma_path"),
        "snapshot": ("Snapshot",),
        "tune": ("cross_fit", "match_prior", "tune"),
        "tuned": ("Tuned",),
    }.items()
    for name in names
}


class _Package(ModuleType):
    """`tune` and `compare` bear the names of their modules: importing the module must not hide the function."""

    def __getattr__(self, name: str) -> Any:
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name not in _HOME:
            raise AttributeError(f"module 'levelhead' has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = _Package
