"""Tests would notice: bugs are put into core, gamma and files, one at a time, and the nearest tests must fail.

The changed module exists in memory only, in a forked process whose import of it is given the changed code.

Seen to fail: when pytest read the unchanged file, no mutant was killed.
"""

import contextlib
import importlib
import importlib.machinery
import os
import random
import re
import signal
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from .board import Budget, Found, Row
from .mutants import Mutant, find_mutants, mutate

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "gamma", "files")
TARGET = 85
LIMIT = 20.0  # seconds, beyond five times what the tests take without a change
HEAVY = ("numpy", "torch", "onnx", "onnxruntime", "safetensors", "hypothesis", "pytest", "sklearn", "typer", "pandas")


def check(budget: Budget) -> Found:
    """Run mutants in random order: all of them, or five in the quick profile."""
    os.environ["CI"] = "1"
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    every = [(path, one) for path in sources() for one in find_mutants(path.read_text(encoding="utf-8"))]
    random.Random(0).shuffle(every)
    wanted = budget.size(5, len(every))
    found = Found({"mutants": len(every), "run": 0, "killed": 0, "share killed": "", "no tests": 0, "survivors": []})
    times: dict[Path, float | None] = {}
    with tempfile.TemporaryDirectory() as compiled:
        for path, mutant in every:
            if found.done["run"] >= wanted or budget.spent:
                break
            if path not in times:
                status, seconds = run_tests(path, None, 300.0, compiled)
                times[path] = seconds if status == 0 else None
            usual = times[path]
            if usual is None:
                found.done["no tests"] += 1
                continue
            status, _ = run_tests(path, mutant, 5 * usual + LIMIT, compiled)
            found.done["run"] += 1
            found.done["killed"] += status != 0
            if status == 0:
                place = path.relative_to(ROOT / "src" / "levelhead")
                found.done["survivors"].append(f"{place}:{mutant.line} {mutant.what}".replace("`", "'"))
    done, killed = found.done["run"], found.done["killed"]
    found.done["share killed"] = f"{100 * killed / max(1, done):.1f} %"
    found.done["survivors"].sort()
    short = [f"{done:,} of {len(every):,} mutants run"] if done < len(every) else []
    if 100 * killed < TARGET * done:
        short.append(f"{100 * killed / done:.1f} % killed, not {TARGET} %")
    found.lacks = "; ".join(short)
    return found


def sources() -> list[Path]:
    """Return the modules to change. Compiled kernels are left out: each mutant would be compiled for half a minute."""
    paths = [path for room in ROOMS for path in sorted((ROOT / "src" / "levelhead" / room).glob("*.py"))]
    return [path for path in paths if path.name not in ("__init__.py", "intervals_numba.py")]


@cache
def nearest_tests(path: Path) -> list[str]:
    """Return the test files of a module's room that are about it or use its public names.

    >>> nearest_tests(ROOT / "src/levelhead/core/head.py")[0].split("/")[-1]
    'test_head.py'
    """
    names = re.findall(r"^(?:def|class) ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE)
    words = "|".join([rf"{path.parent.name}\.{path.stem}", *names])
    wanted = re.compile(rf"\b({words})\b")
    tests = sorted(
        (ROOT / "tests" / path.parent.name).glob("test_*.py"), key=lambda one: one.stem != f"test_{path.stem}"
    )
    own = [one for one in tests if one.stem == f"test_{path.stem}" or wanted.search(one.read_text(encoding="utf-8"))]
    return [str(one) for one in own]


def run_tests(path: Path, mutant: Mutant | None, limit: float, compiled: str) -> tuple[int, float]:
    """Run the nearest tests of a module with a mutant in it; return pytest's status, 124 at the limit, and seconds."""
    began, pid = time.monotonic(), os.fork()
    if pid == 0:
        try:
            os.setsid()
            _run_pytest(path, mutant, compiled)
        finally:
            os._exit(70)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        seconds = time.monotonic() - began
        if done:
            return (os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1), seconds
        if seconds > limit:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return 124, seconds
        time.sleep(0.02)


def _run_pytest(path: Path, mutant: Mutant | None, compiled: str) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.chdir(ROOT)
    os.environ["NUMBA_CACHE_DIR"] = compiled  # a changed function must not be found, nor leave its code, elsewhere
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.split(".")[0] == "levelhead"]:
        del sys.modules[name]
    if mutant is not None:
        code = compile(mutate(path.read_text(encoding="utf-8"), mutant), str(path), "exec")
        plain = importlib.machinery.SourceFileLoader.get_code

        def get_code(self, fullname):
            return code if Path(self.path) == path else plain(self, fullname)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    import doctest

    import pytest

    # Examples of the module first, and not by pytest, which would read the file itself.
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    if doctest.testmod(importlib.import_module(name), optionflags=flags).failed:
        os._exit(1)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "--no-header", "--tb=no"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is imported already
    tests = nearest_tests(path)
    status = int(pytest.main([*options, *tests])) if tests else 0
    os._exit(0 if status == 5 else status)  # 5: no tests


ROW = Row(
    "tests would notice",
    "mutation testing on core, gamma and files: each mutant against its doctests and the nearest tests of its room",
    f"{TARGET} % of mutants killed, survivors listed",
    check,
)
