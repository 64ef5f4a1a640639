"""The table of methods: Table 1's nine rows in its order, their variants, others; each in words.

`METHODS` is the table. `method_named` reads every name that a user may write: one of the table, one
with `+rs` after it, or `FILE.py:NAME`, which `load` runs. `changes` and `reference` say in words
what a method does and where it comes from; they read the docstrings of its functions and its card,
so that a method is described where it is written and nowhere else. `levelhead methods`, the docs
and the errors of `trainer_loss` show these words.

A new method is a file beside this one, with a card as its docstring and a `METHOD`, and an entry in
one of the lists.
"""

import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

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
    """Methods by name. An unknown name raises KeyError and lists the known ones.

    A KeyError, as of any dict: `METHODS.get` and `in` keep their meaning. What users type goes
    through `method_named`.
    """

    def __missing__(self, name: str) -> Method:
        raise KeyError(f"unknown method {name!r}; the methods are {', '.join(self)}")


# The order of Table 1: plain training, then what others proposed, then the paper's own.
_BY_OTHERS = [
    over_sample.METHOD,
    under_sample.METHOD,
    re_weighting.METHOD,
    focal.METHOD,
    class_balanced.METHOD,
    ldam.METHOD,
]
_TABLE_1 = [BASELINE, *_BY_OTHERS, plus_rs(BASELINE), plus_rs(wvn.METHOD)]
# Other readings of a row, where the paper leaves open what was done, and WVN without RS.
_VARIANTS = [
    over_sample.LARGEST,
    under_sample.ONCE,
    under_sample.LONG,
    wvn.METHOD,
    wvn.WVN_RELEASED,
    plus_rs(wvn.WVN_RELEASED),
    class_balanced.FOCAL,
    ldam.DRW,
]
_BEYOND_THE_PAPER = [balanced_softmax.METHOD, tau_norm.METHOD, crt.METHOD]
METHODS: dict[str, Method] = MethodTable(
    (method.name, method) for method in (*_TABLE_1, *_VARIANTS, *_BEYOND_THE_PAPER)
)


def method_named(name: str) -> Method:
    """Return the method of that name.

    Args:
        name: one of `METHODS`; `NAME+rs` for any of them with RS after training; or `FILE.py:NAME`
            for one of your own, which runs that file.

    Raises:
        LevelheadError: if there is no such method, or RS cannot follow it; the message lists the
            methods.
        FileNotFoundError: if there is no such file.

    >>> method_named("re-weighting+rs").trained_as
    're-weighting'
    """
    if name in METHODS:
        return METHODS[name]
    # Before the file: FILE.py:NAME+rs is a user's own method with RS after it.
    if name.endswith("+rs"):
        return plus_rs(method_named(name.removesuffix("+rs")))
    if ".py" in name:
        return load(name)
    without_rs = [listed for listed in METHODS if not listed.endswith("+rs")]
    choices = f"the methods are {', '.join(without_rs)}; any of them with +rs, or FILE.py:NAME"
    raise LevelheadError(f"unknown method {name!r}; {choices}")


def method_file(where: str) -> tuple[Path, str]:
    """Split `FILE.py:NAME` into its file and name; check that the file exists, but do not run it.

    Apart from `load`, because a run's identity holds the sha256 of the file, and to name a run must
    not run code.

    Raises:
        LevelheadError: if it has another form.
        FileNotFoundError: if there is no such file.
    """
    # From the right: a path on Windows has a colon of its own, C:\mine.py:METHOD.
    file, _, name = where.rpartition(":")
    if not name.isidentifier() or Path(file).suffix != ".py":
        raise LevelheadError(f"expected a method as FILE.py:NAME, got {where!r}")
    if not Path(file).is_file():
        raise FileNotFoundError(
            f"{file}: no such file; expected a Python file that defines the Method {name}"
        )
    return Path(file), name


def load(where: str) -> Method:
    """Run a user's own file and return the method it defines.

    Args:
        where: `FILE.py:NAME`, where NAME is a `Method` at the top level of the file.

    Raises:
        LevelheadError: if `where` has another form, the file does not run, or NAME is missing or is
            no `Method`.
        FileNotFoundError: if there is no such file.

    Example:
        ``load("mine.py:METHOD")``, which is what ``levelhead train --method mine.py:METHOD`` calls.
    """
    path, name = method_file(where)
    module_name = f"levelhead_user_{path.stem}"
    spec = spec_from_file_location(module_name, path)
    assert spec is not None  # .py files always have a loader
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look a class's module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script may end itself; an interrupt goes on
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
    """Return what a method does at each point it touches, in words.

    They are the first line of the docstring of the function there. Points that are as in plain
    training are left out.

    >>> changes(METHODS["wvn"])
    {'project': 'scale weight vectors to unit length, after every step'}
    """
    words = {}
    if method.sample is not None:
        words["sample"] = _summary(method.sample)
    if method.loss is not baseline_loss:
        words["loss"] = _summary(method.loss)
    if method.project is not None:
        words["project"] = f"{_summary(method.project)}, {method.order} every step"
    if method.retrain is not None:
        second = method.retrain.sample or method.retrain.loss
        words["retrain"] = f"train a new head on frozen features; {_summary(second)}"
    if method.adjust is not None:
        words["adjust"] = _summary(method.adjust)
    return words


def reference(method: Method) -> str:
    """Return the last reference of the method's card, on one line; empty where it has none.

    The last, because the card of `NAME+rs` is that of NAME followed by that of RS.

    >>> reference(METHODS["focal"])
    'Lin et al., Focal Loss for Dense Object Detection, 2017.'
    """
    # From "Reference:" at the start of a line to the end of the lines that are indented below it.
    references = re.findall(
        r"^Reference:\s*(.+(?:\n[ \t]+\S.*)*)", method.card or "", flags=re.MULTILINE
    )
    if references:
        return " ".join(references[-1].split())
    return ""


def _summary(function: Callable[..., object]) -> str:
    """Return the first line of a function's docstring, or its name, as the middle of a sentence.

    >>> _summary(METHODS["tau-norm"].adjust)
    'divide weight vectors by their length^tau'
    """
    described = getattr(function, "func", function)  # of a functools.partial, the function it calls
    words = (described.__doc__ or described.__name__).strip().splitlines()[0].rstrip(".")
    # "Scale weights" becomes "scale weights"; "WVN and more" stays.
    if words[1:2].islower():
        return words[0].lower() + words[1:]
    return words
