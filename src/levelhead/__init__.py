"""Level the head of a classifier trained on imbalanced data: during training (WVN), or in one line after it.

A model is trained, and rare classes are predicted too seldom. Choose what to do about it on samples
the model was not trained on, see what that is worth, and apply it:

    import levelhead as lh

    logits, labels = lh.collect(model, loader)   # or saved logits [N, K] and labels [N]
    tuned = lh.tune(logits, labels)              # a number for each class, added to its score
    print(tuned.summary())                       # each class before and after, and the price
    adjusted = lh.adjust_(model, tuned)          # the model's own head; adjusted.restore() undoes it
    scores = tuned.apply(logits)                 # or scores, of any model

Choose: tune, and for other data tune_labels, tune_chunks, tune_folds and tune_unlabelled; compare
tries every rule. They return a `Tuned`. A `Goal` says what a choice should be good at, and `rules`
has the rules, for a strength of one's own.

Apply: adjust_ and rescale_ change a torch module in place, adjust returns a new `Head`, find_head
tells which layer would change. `levelhead.hosts` has the same for scikit-learn, Keras, Lightning,
Transformers and others; `levelhead adjust` on the command line does it to a model's file.

Look closer: gamma_path knows every strength at which a prediction changes, measure has measures of
logits, priors estimates how often classes occur, and counts checks counts of classes.

Train: `WVN` keeps every weight vector of the head at unit length, as a hook beside an optimizer.

Everything here is imported when it is first used: `import levelhead` alone loads neither numpy nor torch, and a
name whose library is missing says what to install. The names in `__all__` are public, and so is what docs/api.md
lists beside them; all else may change without notice.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

# What editors and type checkers see: the same names, from where they are defined.
if TYPE_CHECKING:
    from .core import counts, measure, priors, rules
    from .core.adjustment import Adjustment
    from .core.chunks import tune_chunks
    from .core.compare import Comparison, compare
    from .core.evidence import Evidence
    from .core.gamma_path import GammaPath, gamma_path
    from .core.goal import Goal
    from .core.head import Head
    from .core.metrics import Metric, Tables
    from .core.tune import tune, tune_folds
    from .core.tuned import Tuned
    from .core.unlabelled import tune_unlabelled
    from .heads.adjust import adjust, adjust_, rescale_
    from .heads.adjusted import Adjusted
    from .heads.collect import collect
    from .heads.torch_find import find_head
    from .hosts.torch import WVN
    from .labels.tune_labels import tune_labels
    from .support import warnings
    from .support.errors import LevelheadError

__all__ = [
    "WVN",
    "Adjusted",
    "Adjustment",
    "Comparison",
    "Evidence",
    "GammaPath",
    "Goal",
    "Head",
    "LevelheadError",
    "Metric",
    "Tables",
    "Tuned",
    "adjust",
    "adjust_",
    "collect",
    "compare",
    "counts",
    "find_head",
    "gamma_path",
    "measure",
    "priors",
    "rescale_",
    "rules",
    "tune",
    "tune_chunks",
    "tune_folds",
    "tune_labels",
    "tune_unlabelled",
    "warnings",
]

# Module: the public names that it defines. It is imported when one of them is first used, so that
# `import levelhead` costs next to nothing and needs no library that a user may not have.
_HOMES = {
    "core.adjustment": ("Adjustment",),
    "core.chunks": ("tune_chunks",),
    "core.compare": ("Comparison", "compare"),
    "core.evidence": ("Evidence",),
    "core.gamma_path": ("GammaPath", "gamma_path"),
    "core.goal": ("Goal",),
    "core.head": ("Head",),
    "core.metrics": ("Metric", "Tables"),
    "core.tune": ("tune", "tune_folds"),
    "core.tuned": ("Tuned",),
    "core.unlabelled": ("tune_unlabelled",),
    "heads.adjust": ("adjust", "adjust_", "rescale_"),
    "heads.adjusted": ("Adjusted",),
    "heads.collect": ("collect",),
    "heads.torch_find": ("find_head",),
    "hosts.torch": ("WVN",),
    "labels.tune_labels": ("tune_labels",),
    "support.errors": ("LevelheadError",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
# Public modules, by the room that each is in.
_MODULES = {
    "counts": "core",
    "measure": "core",
    "priors": "core",
    "rules": "core",
    "warnings": "support",
}


def __getattr__(name: str) -> Any:
    """Return a public name, and keep it: Python asks here only for what it has not found (PEP 562).

    Raises:
        AttributeError: no such name.
        ImportError: its module needs a library that is not installed; the message says what to type.
    """
    from .support.extras import naming_what_is_missing

    if name in _MODULES:
        value = import_module(f".{_MODULES[name]}.{name}", __name__)
    elif name in _HOME:
        with naming_what_is_missing():
            value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    else:
        raise AttributeError(f"module 'levelhead' has no attribute {name!r}")
    # The next time, Python finds it by itself.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return all names, also those that were not used yet: for completion in editors and notebooks."""
    return sorted({*globals(), *__all__})
