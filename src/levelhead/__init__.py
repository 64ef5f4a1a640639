"""Level the head of a classifier trained on imbalanced data: during training (WVN), or in one line after it (RS)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import counts, geometry, measure
from .adjust import factors, normalize, rescale, shift_logits, tau_normalize
from .cautions import (
    BinaryHeadWarning,
    LeakageWarning,
    LevelheadWarning,
    MissingClassWarning,
    NegativeLogitsWarning,
    NormWarning,
    PrecisionWarning,
    RangeWarning,
)
from .compare import Comparison, compare
from .head import Head
from .path import GammaPath, gamma_path
from .snapshot import Snapshot
from .tune import cross_fit, match_prior, tune
from .tuned import Tuned

if TYPE_CHECKING:
    from .heads.torch import Adjusted, find_head, rescale_
    from .hosts.torch import WVN
    from .methods import METHODS

__version__ = "0.1.0"

# Names whose modules import torch: loaded when first asked for, so that `import levelhead` stays quick.
_LAZY = {
    "Adjusted": "heads.torch",
    "find_head": "heads.torch",
    "rescale_": "heads.torch",
    "METHODS": "methods",
    "WVN": "hosts.torch",
}

__all__ = [
    "METHODS",
    "WVN",
    "Adjusted",
    "BinaryHeadWarning",
    "Comparison",
    "GammaPath",
    "Head",
    "LeakageWarning",
    "LevelheadWarning",
    "MissingClassWarning",
    "NegativeLogitsWarning",
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


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'levelhead' has no attribute {name!r}")
    value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
