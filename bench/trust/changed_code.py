"""Which functions of a module a mutant changes, as code that can be put into the functions in memory.

The module is compiled with and without the change, and both are compared from the outside in. If
all that differs is the code of functions, these can be exchanged without importing anything anew.
If the module's own code differs, or that of a class body, or a comprehension that ran at import,
the change is done with already: it needs a new import.
"""

import inspect
from functools import cache
from pathlib import Path
from types import CodeType

from .mutants import Mutant, mutate

RUN_AT_IMPORT = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


def changed_functions(path: Path, mutant: Mutant) -> dict[tuple[str, int], CodeType] | None:
    """Return {(qualified name, first line): new code}, or None if the change is not inside a function."""
    source, old = _original(path)
    new = compile(mutate(source, mutant), str(path), "exec")
    changed: dict[tuple[str, int], CodeType] = {}
    return changed if _compare(old, new, changed) else None


@cache
def _original(path: Path) -> tuple[str, CodeType]:
    source = path.read_text(encoding="utf-8")
    return source, compile(source, str(path), "exec")


def _compare(old: CodeType, new: CodeType, changed: dict[tuple[str, int], CodeType]) -> bool:
    """Collect the functions that differ below a module or class; return False if more than these differ."""
    if (
        old.co_code != new.co_code
        or len(old.co_consts) != len(new.co_consts)
        or old.co_names != new.co_names
    ):
        return False
    for a, b in zip(old.co_consts, new.co_consts, strict=True):
        if not isinstance(a, CodeType) or not isinstance(b, CodeType):
            if repr(a) != repr(b):
                return False
        elif a != b:
            if a.co_name in RUN_AT_IMPORT or a.co_freevars != b.co_freevars:
                return False
            if a.co_flags & inspect.CO_NEWLOCALS:
                _collect(a, b, changed)
            elif not _compare(a, b, changed):
                return False
    return True


def _collect(old: CodeType, new: CodeType, changed: dict[tuple[str, int], CodeType]) -> None:
    """Add a function and what is defined inside it: some of it may be in memory already."""
    changed[old.co_qualname, old.co_firstlineno] = new
    pairs = zip(
        *(
            [constant for constant in code.co_consts if isinstance(constant, CodeType)]
            for code in (old, new)
        ),
        strict=False,
    )
    for a, b in pairs:
        if a != b and a.co_freevars == b.co_freevars:
            _collect(a, b, changed)
