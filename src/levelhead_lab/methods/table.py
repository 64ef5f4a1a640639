"""The table of methods: Table 1's nine rows in its order, their variants, methods beyond the paper; each in words."""

import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from levelhead.support.errors import LevelheadError

from . import (
    balanced_softmax,
    class_balanced,
    crt,
    focal,
    ldam,
    over_sample,
    re_weighting,
    tau_norm,
    under_sample,
    wvn,
)
from .baseline import METHOD as BASELINE
from .baseline import baseline_loss
from .method import Method
from .rs import plus_rs


class MethodTable(dict[str, Method]):
    """Methods by name. An unknown name raises KeyError and lists the known ones."""

    def __missing__(self, name: str) -> Method:
        raise KeyError(f"unknown method {name!r}; the methods are {', '.join(self)}")


_TRAINED = [
    one.METHOD for one in (over_sample, under_sample, re_weighting, focal, class_balanced, ldam)
]
_TABLE_1 = [BASELINE, *_TRAINED, plus_rs(BASELINE), plus_rs(wvn.METHOD)]
_VARIANTS = [
    over_sample.LARGEST,
    under_sample.ONCE,
    under_sample.LONG,
    wvn.METHOD,
    wvn.WVN_RELEASED,
]
_VARIANTS += [plus_rs(wvn.WVN_RELEASED), class_balanced.FOCAL, ldam.DRW]
_BEYOND_THE_PAPER = [balanced_softmax.METHOD, tau_norm.METHOD, crt.METHOD]
METHODS: dict[str, Method] = MethodTable(
    (one.name, one) for one in (*_TABLE_1, *_VARIANTS, *_BEYOND_THE_PAPER)
)


def method_named(name: str) -> Method:
    """Return the method of that name.

    Args:
        name: one of `METHODS`; `NAME+rs` for any of them with RS after training; or `FILE.py:NAME` for one of your own.

    >>> method_named("re-weighting+rs").trained_as
    're-weighting'
    """
    if name in METHODS:
        return METHODS[name]
    if name.endswith("+rs"):
        return plus_rs(method_named(name.removesuffix("+rs")))
    if ".py" in name:
        return load(name)
    trained = [known for known in METHODS if not known.endswith("+rs")]
    known = f"the methods are {', '.join(trained)}; any of them with +rs, or FILE.py:NAME"
    raise LevelheadError(f"unknown method {name!r}; {known}")


def method_file(where: str) -> tuple[Path, str]:
    """Split `FILE.py:NAME` into its file and name; check that the file exists, but do not run it."""
    file, _, name = where.rpartition(":")
    if not name.isidentifier() or Path(file).suffix != ".py":
        raise LevelheadError(f"expected a method as FILE.py:NAME, got {where!r}")
    if not Path(file).is_file():
        raise FileNotFoundError(
            f"{file}: no such file; expected a Python file that defines the Method {name}"
        )
    return Path(file), name


def load(where: str) -> Method:
    """Run a user's own file and return the method it defines; `where` is `FILE.py:NAME`."""
    path, name = method_file(where)
    module_name = f"levelhead_user_{path.stem}"
    spec = spec_from_file_location(module_name, path)
    assert spec is not None  # .py files always have a loader
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look a class's module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise LevelheadError(f"{path} does not run: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        defined = [key for key, value in vars(module).items() if isinstance(value, Method)]
        raise LevelheadError(
            f"{path} does not define {name}; its methods are {', '.join(defined) or 'none'}"
        )
    method = getattr(module, name)
    if not isinstance(method, Method):
        raise LevelheadError(
            f"{where}: expected a levelhead_lab.methods.Method, got {type(method).__name__}"
        )
    return method


def changes(method: Method) -> dict[str, str]:
    """Return what a method does at each point it touches: the first line of the docstring of that function."""
    again = method.retrain
    found = {
        "sample": method.sample and _summary(method.sample),
        "loss": None if method.loss is baseline_loss else _summary(method.loss),
        "project": method.project and f"{_summary(method.project)}, {method.order} every step",
        "retrain": again
        and f"train a new head on frozen features; {_summary(again.sample or again.loss)}",
        "adjust": method.adjust and _summary(method.adjust),
    }
    return {slot: what for slot, what in found.items() if what}


def reference(method: Method) -> str:
    """Return the last reference of the method's card, on one line."""
    found = re.findall(
        r"^Reference:\s*(.+(?:\n[ \t]+\S.*)*)", method.card or "", flags=re.MULTILINE
    )
    if found:
        return " ".join(found[-1].split())
    return ""


def _summary(function: Callable[..., Any]) -> str:
    described = getattr(function, "func", function)  # of a functools.partial, the function it calls
    words = (described.__doc__ or described.__name__).strip().splitlines()[0].rstrip(".")
    if words[1:2].islower():
        return words[0].lower() + words[1:]
    return words
