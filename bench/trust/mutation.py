"""Tests would notice: bugs are put into the rooms of ROOMS, one at a time, and a test must fail.

The tests are collected once. Each is run once to see which lines it reaches. A mutant lives in a
fork of that process: the functions in memory get the changed code, and the tests that reach the
changed line are run, the shortest first. A change outside of functions (a constant, a default)
needs a new import: it is given the changed code.

The road: `check` starts pytest with the plugin `_Loop`, which takes the place of the loop over
tests. Its `pytest_runtestloop` finds out which lines each test reaches (`reached_lines`), indexes
all functions in memory, and runs every mutant for a few seconds (`_first_pass`), then those outside
of functions (`_import_changed`), then the survivors of the first pass for longer. `_Record` writes
each end to a log, from which an interrupted run goes on.

To import torch and collect the tests anew for every mutant would take most of the time: a fork has
them in memory.

Seen to fail: with `assert` left out of the tests, when no mutant is killed.
"""

import contextlib
import functools
import gc
import hashlib
import importlib
import importlib.machinery
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from .board import Budget, Found, Row
from .changed_code import changed_functions
from .mutants import Mutant, find_mutants, mutate
from .reached_lines import Reached, reach_lines, read_reached

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "levelhead"
ROOMS = ("core", "path", "labels", "files")
TESTS = (*ROOMS, "show", "io", "heads", "cli")  # whose tests are run
TARGET = 85
# Seconds of tests that a mutant meets at first, and after all others if it survives these.
FIRST = 4.0
SECOND = 20.0
MOST_IMPORTED = 60  # tests that a mutant outside of functions meets
LIMIT = 10.0  # seconds beyond five times what the tests take without a change
MEMORY = 16 << 30  # bytes that a mutant may take
# Imported before the first fork, which then has them.
HEAVY = (
    "numpy",
    "torch",
    "onnx",
    "onnxruntime",
    "safetensors",
    "hypothesis",
    "pytest",
    "sklearn",
    "typer",
    "pandas",
)
# Of pytest: quiet, in one process, and without what takes long or writes to the repository.
OPTIONS = [
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-m",
    "not slow",
    "--no-header",
    "--tb=no",
]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is imported already


def check(budget: Budget) -> Found:
    """Run this process's share of the mutants in random order: all of them, or five in the quick profile."""
    import pytest

    os.environ["CI"] = "1"
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    every = [
        (path, one) for path in sources() for one in find_mutants(path.read_text(encoding="utf-8"))
    ]
    random.Random(0).shuffle(every)
    done = {
        "mutants": len(every),
        "run": 0,
        "killed": 0,
        "not reached by a test": 0,
        "cannot be run": 0,
    }
    findings = Found({**done, "survivors": []})
    folder = None
    if budget.keep is not None:
        folder = budget.keep.parent
    record = _Record(findings, folder, budget.index)
    # The order is the same in every process, so that each can take its share of it.
    mine = record.left(every)[budget.index :: budget.parts][: budget.size(5, len(every))]
    rooms = TESTS
    files = []  # tests beside those of the rooms
    if budget.profile == "quick":  # one module, and the tests of its own
        path = SOURCE / "core" / "counts.py"
        mine = [(path, one) for one in find_mutants(path.read_text(encoding="utf-8"))][3:8]
        rooms = ()
        files = [str(ROOT / "tests" / "core" / "test_counts.py"), str(path)]
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as scratch:
        loop = _Loop(mine, budget, record, Path(scratch))
        places = [str(ROOT / "tests" / one) for one in rooms] + [str(SOURCE / one) for one in rooms]
        os.chdir(ROOT)
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            pytest.main(
                [*OPTIONS, "--continue-on-collection-errors", *places, *files],
                plugins=[_FirstFailure(), loop],
            )
    findings.done["survivors"].sort()
    findings.lacks = lacks(findings.done)
    return findings


def lacks(done: dict[str, Any]) -> str:
    """Return what is missing to the target, and write the share of mutants killed into `done`."""
    run = done["run"]
    killed = done["killed"]
    done["share killed"] = f"{100 * killed / max(1, run):.1f} %"
    short = []
    if run < done["mutants"]:
        short.append(f"{run:,} of {done['mutants']:,} mutants run")
    if 100 * killed < TARGET * run:
        short.append(f"{100 * killed / run:.1f} % killed, not {TARGET} %")
    return "; ".join(short)


def sources() -> list[Path]:
    """Return the modules to change. The kernel is left out: it needs a GPU."""
    paths = [path for room in ROOMS for path in sorted((SOURCE / room).glob("*.py"))]
    left_out = "__init__.py", "walk_triton.py"
    return [path for path in paths if path.name not in left_out]


class _FirstFailure:
    """A plugin of pytest: hypothesis tries the same examples each time, and looks for no smaller one once it fails."""

    def pytest_sessionstart(self) -> None:  # after conftest.py
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants", derandomize=True, deadline=None, database=None, phases=phases
        )
        settings.load_profile("mutants")


class _Record:
    """What became of each mutant; written to a folder, from which a later run takes what it need not do again."""

    def __init__(self, findings: Found, folder: Path | None = None, index: int = 0) -> None:
        self.found = findings
        self.folder = folder
        self.old = {}  # what became of mutants in earlier runs, by key
        self.log = None
        if folder is not None:
            for log in folder.glob("mutants-*.log"):
                self.old |= dict(json.loads(line) for line in log.read_text().splitlines())
            self.log = (folder / f"mutants-{index}.log").open("a", buffering=1)
        self.first = index == 0

    def left(self, mutants: list[tuple[Path, Mutant]]) -> list[tuple[Path, Mutant]]:
        """Return the mutants that no earlier run has met; count the others, in one of the processes."""
        new = []
        for path, mutant in mutants:
            end = self.old.get(_key(path, mutant), "new")
            if end == "new":
                new.append((path, mutant))
            elif self.first:
                self._count(path, mutant, end)
        return new

    def add(self, path: Path, mutant: Mutant, killed: bool | None) -> None:
        """Count a mutant: killed, survived, or (None) not run, since its tests fail without it."""
        self._count(path, mutant, killed)
        if self.log is not None:
            self.log.write(json.dumps([_key(path, mutant), killed]) + "\n")

    def _count(self, path: Path, mutant: Mutant, killed: bool | None) -> None:
        done = self.found.done
        if killed is None:
            done["cannot be run"] += 1
            return
        done["run"] += 1
        done["killed"] += killed
        if not killed:
            title = f"{path.relative_to(SOURCE)}:{mutant.line} {mutant.what}"
            done["survivors"].append(title.replace("`", "'"))


def _key(path: Path, mutant: Mutant) -> str:
    """Return what a mutant is known by in the log: another version of the file has other mutants."""
    return f"{path.relative_to(SOURCE)}:{_digest(path)}:{mutant.node}:{mutant.what}"


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


class _Loop:
    """A plugin of pytest that runs mutants in place of the tests, once these are collected."""

    def __init__(
        self, mutants: list[tuple[Path, Mutant]], budget: Budget, record: _Record, scratch: Path
    ) -> None:
        self.mutants = mutants
        self.budget = budget
        self.record = record
        self.scratch = scratch
        # Mutants outside of functions, to be imported anew; the tests by their names; and each
        # function in memory by its file, qualified name and first line, which is all that it has in
        # common with newly compiled code.
        self.outside: list[tuple[Path, Mutant]] = []
        self.items: dict[str, Any] = {}
        self.functions: dict[tuple[str, str, int], list[FunctionType]] = {}

    def pytest_runtestloop(self, session: Any) -> bool:
        """Run the mutants; return True, which tells pytest that the tests are run."""
        for path in sources():  # what tests import late is imported once, here
            with contextlib.suppress(Exception):
                importlib.import_module(
                    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
                )
        self.items = {item.nodeid: item for item in session.items}
        reached = self._reach(session.items)
        self._index_functions()
        # A collection in a fork would write to every object, and so copy all memory.
        gc.collect()
        gc.freeze()
        self._first_pass(reached)
        return True

    def _reach(self, items: list[Any]) -> Reached:
        """Return which lines each test reaches; the processes share this work too."""
        folder = self.scratch
        if self.budget.keep is not None:
            folder = self.budget.keep.parent
        part = self.budget.index
        parts = self.budget.parts
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                _become_quiet(self.scratch / "lines", items[:1])
                reach_lines(items[part::parts], folder / f"reached-{part}.cov", SOURCE)
            os._exit(0)
        os.waitpid(pid, 0)
        return read_reached(folder, parts, wait=120.0)

    def _index_functions(self) -> None:
        """Find every function in memory by its file, name and line, and everything that remembers results."""
        self.caches = []
        gc.unfreeze()  # conftest.py has frozen what was there when all tests were collected
        for living in gc.get_objects():
            if type(living) is FunctionType and living.__code__.co_filename.startswith(
                f"{SOURCE}/"
            ):
                code = living.__code__
                self.functions.setdefault(
                    (code.co_filename, code.co_qualname, code.co_firstlineno), []
                ).append(living)
            elif type(living) is functools._lru_cache_wrapper and str(living.__module__).startswith(
                "levelhead"
            ):
                self.caches.append(living)

    def _first_pass(self, reached: Reached) -> None:
        """Run every mutant: first against its shortest tests, and survivors of these for longer.

        Most mutants are killed by the first tests. To give every survivor 20 seconds before the
        next mutant is tried would leave most of them untried when time is up.
        """
        survivors = []
        for path, mutant in self.mutants:
            if self.budget.spent:
                return
            changed = changed_functions(path, mutant)
            if changed is None:
                self.outside.append((path, mutant))
                continue
            tests = [name for name in reached.tests(path, mutant.line) if name in self.items]
            now = reached.within(tests, FIRST)
            killed = self._run(path, changed, now, reached)
            if killed is None:
                self.outside.append((path, mutant))
            elif killed or len(now) == len(tests):
                self.record.found.done["not reached by a test"] += not tests
                self.record.add(path, mutant, killed)
            else:
                survivors.append((path, mutant, changed, tests[len(now) :]))
            self.budget.note(self.record.found)
        self._import_changed(reached)
        for path, mutant, changed, tests in survivors:
            killed = False
            if not self.budget.spent:
                killed = self._run(path, changed, reached.within(tests, SECOND), reached)
            self.record.add(path, mutant, bool(killed))
            self.budget.note(self.record.found)

    def _import_changed(self, reached: Reached) -> None:
        """Run the mutants outside of functions: with a new import of everything, against the tests of their module."""
        usual: dict[Path, tuple[int, float]] = {}
        for path, mutant in sorted(self.outside, key=lambda pair: pair[0]):
            if self.budget.spent:
                return
            tests = reached.within(reached.tests_of(path), FIRST)[:MOST_IMPORTED]
            # Against the tests as they are first: what fails without a change says nothing.
            if path not in usual:
                began = time.monotonic()
                usual[path] = (
                    _import_and_run(path, None, tests, 200.0, self.scratch),
                    time.monotonic() - began,
                )
            status, seconds = usual[path]
            killed = None
            if not status:
                limit = LIMIT + 5 * seconds
                killed = _import_and_run(path, mutant, tests, limit, self.scratch) != 0
            self.record.add(path, mutant, killed)
            self.budget.note(self.record.found)

    def _run(
        self, path: Path, changed: dict[tuple[str, int], Any], tests: list[str], reached: Reached
    ) -> bool | None:
        """Return whether a test fails, or None if the functions cannot be changed in place.

        The fork ends with 0 if all pass, with 1 if one fails, with 70 if no function of that name and line is in
        memory. Any other end, a crash or the limit of time or memory, is a failure: the mutant is killed.
        """
        if not tests:
            return False
        place = self.scratch / "mutant"
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                items = [self.items[name] for name in tests]
                _become_quiet(place, items)
                live = [
                    (one, code)
                    for key, code in changed.items()
                    for one in self.functions.get((str(path), *key), ())
                ]
                if not live:
                    os._exit(70)
                for function, code in live:
                    function.__code__ = code
                # A result that was remembered would hide the change.
                for one in self.caches:
                    one.cache_clear()
                _run_items(items)
            os._exit(0 if sys.exc_info()[0] is None else 71)
        status = _wait(pid, LIMIT + 5 * sum(reached.seconds[name] for name in tests))
        shutil.rmtree(place, ignore_errors=True)
        if status == 70:
            return None
        return status != 0


def _become_quiet(place: Path, items: list[Any]) -> None:
    """Make this fork a group of its own that writes to its own folder only, and takes no more than its memory."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    place.mkdir(parents=True, exist_ok=True)
    if items:
        items[0].config._tmp_path_factory._basetemp = place


def _run_items(items: list[Any]) -> None:
    """Run tests until one fails, and end this process with 1 then."""
    from _pytest.runner import runtestprotocol

    for item, after in zip(items, [*items[1:], None], strict=True):
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=after)):
            os._exit(1)
    os._exit(0)


def _wait(pid: int, limit: float) -> int:
    """Return the status of a process, 124 if it had to be stopped at the limit; its group ends with it."""
    began = time.monotonic()
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        passed = time.monotonic() - began
        if done or passed > limit:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            if not done:
                os.waitpid(pid, 0)
                return 124
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1
        time.sleep(0.002 if passed < 1 else 0.02)


@cache
def nearest_tests(path: Path) -> list[str]:
    """Return the test files of a module's room that are about it or use its public names.

    >>> nearest_tests(ROOT / "src/levelhead/core/head.py")[0].split("/")[-1]
    'test_head.py'
    """
    names = re.findall(
        r"^(?:def|class) ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE
    )
    words = "|".join([rf"{path.parent.name}\.{path.stem}", *names])
    wanted = re.compile(rf"\b({words})\b")
    tests = sorted(
        (ROOT / "tests" / path.parent.name).glob("test_*.py"),
        key=lambda test: test.stem != f"test_{path.stem}",
    )
    named_so = [
        test
        for test in tests
        if test.stem == f"test_{path.stem}" or wanted.search(test.read_text(encoding="utf-8"))
    ]
    return [str(test) for test in named_so]


def _import_and_run(
    path: Path, mutant: Mutant | None, tests: list[str], limit: float, scratch: Path
) -> int:
    """Return the status of a module's doctests and these tests, 0 if all pass, after a new import of the package."""
    pid = os.fork()
    if pid == 0:
        try:
            _become_quiet(scratch / "import", [])
            _run_pytest(path, mutant, tests, scratch)
        finally:
            os._exit(70)
    return _wait(pid, limit)


def _run_pytest(path: Path, mutant: Mutant | None, tests: list[str], scratch: Path) -> None:
    """Run a module's doctests and tests after a new import, with the changed code; does not return.

    Args:
        path: of the module.
        mutant: to be put into it; None to run it as it is.
        tests: names of tests.
        scratch: a folder for the process.
    """
    from _pytest.assertion.rewrite import AssertionRewritingHook

    sys.dont_write_bytecode = True
    # The pytest around this one reads a module that it was given by name itself, and would not see the changed code.
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if not isinstance(finder, AssertionRewritingHook)
    ]
    for name in [
        name
        for name in sys.modules
        if name.split(".")[0] in ("levelhead", "levelhead_lab", "tests", "bench")
    ]:
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
    status = int(pytest.main(["-x", *OPTIONS, *tests], plugins=[_FirstFailure()])) if tests else 0
    os._exit(0 if status == 5 else status)  # 5: no tests


def main() -> None:
    """Print what happens to the mutants of a file: python -m bench.trust.mutation src/levelhead/core/head.py [LINE]"""
    path = Path(sys.argv[1]).resolve()
    lines = {int(word) for word in sys.argv[2:]}
    chosen = [
        (path, mutant)
        for mutant in find_mutants(path.read_text())
        if not lines or mutant.line in lines
    ]
    import pytest

    os.environ["CI"] = "1"
    findings = Found(
        {"run": 0, "killed": 0, "not reached by a test": 0, "cannot be run": 0, "survivors": []}
    )
    with tempfile.TemporaryDirectory() as scratch:
        record = _Record(findings)
        loop = _Loop(chosen, Budget("full"), record, Path(scratch))
        os.chdir(ROOT)
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            pytest.main(
                [*OPTIONS, *nearest_tests(path), str(path)], plugins=[_FirstFailure(), loop]
            )
    print(json.dumps(findings.done, indent=1))


ROW = Row(
    "tests would notice",
    f"mutation testing on {', '.join(ROOMS)}: each mutant against the doctests and tests that reach its line",
    f"{TARGET} % of mutants killed, survivors listed",
    check,
    lacks,
    ("mutants",),
    alone=True,
)

if __name__ == "__main__":
    main()
