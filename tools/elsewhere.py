"""A plugin of pytest for a machine where not all is installed: what lacks a package is skipped, and counted.

`on_another_machine.sh` loads it; `make test` does not, and there a missing package is an error. A test or file lacks a
package if it fails with the name of a module that is not installed. The package itself is not installed either: its
metadata, which messages read, are written to a folder of their own.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Generator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# The packages that the extras ask for, without their versions.
ASKED_FOR = "|".join(
    re.split(r"[^\w-]", requirement)[0]
    for requirements in PROJECT["optional-dependencies"].values()
    for requirement in requirements
)
# How Python, this package and other libraries say that something is missing.
NAMED = re.compile(
    rf"No module named '(\w+)|\bneeds (\w+): pip install|\brequires (?:the )?`?({ASKED_FOR})\b"
)


def missing_package(text: str) -> str:
    """Return the first package that an error says is needed and that is not installed, or nothing.

    >>> missing_package("ModuleNotFoundError: No module named 'nowhere.at_all'")
    'nowhere'
    >>> missing_package("reading .pt needs nowhere: pip install 'nowhere>=2'")
    'nowhere'
    >>> missing_package("No module named 'elsewhere', which is ours"), missing_package("requires a GPU")
    ('', '')
    """
    names = (next(filter(None, groups)) for groups in NAMED.findall(text))
    # A module of ours that cannot be found is a mistake, not a package to install.
    ours = {"levelhead", "levelhead_lab", "tests", "tools", "bench"}
    ours |= {path.stem for room in ("tests", "tools") for path in ROOT.glob(f"{room}/**/*.py")}
    others = (name for name in names if name not in ours)
    return next((name for name in others if find_spec(name) is None), "")


def skip_if_lacking(report: Any, path: Path) -> None:
    """Make a report of a failure one of a skip, if a package is missing."""
    if not report.failed:
        return
    name = missing_package(report.longreprtext)
    if name:
        report.outcome = "skipped"
        report.longrepr = (str(path), 0, f"Skipped: {name} is not installed")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Skip a file that imports what is missing."""
    report = yield
    skip_if_lacking(report, collector.path)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skip a test, or its set-up, that imports what is missing, here or in another process."""
    report = yield
    skip_if_lacking(report, item.path)
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests and files were skipped for want of each package."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ())]
    lacking = Counter(
        found[1] for reason in reasons if (found := re.search(r"(\w+) is not installed$", reason))
    )
    if lacking:
        terminalreporter.write_line(
            "not installed: " + ", ".join(f"{name} {n}" for name, n in lacking.most_common())
        )


def pytest_configure() -> None:
    """Write the metadata of the package, if it is not installed, where this and other processes find them."""
    try:
        version("levelhead")
    except PackageNotFoundError:
        from levelhead import __version__

        lines = ["Metadata-Version: 2.4", "Name: levelhead", f"Version: {__version__}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in PROJECT["dependencies"]]
        for extra, requirements in PROJECT["optional-dependencies"].items():
            lines.append(f"Provides-Extra: {extra}")
            for requirement in requirements:
                lines.append(f"Requires-Dist: {requirement}; extra == '{extra}'")
        site = Path(tempfile.mkdtemp(prefix="levelhead-"))
        atexit.register(shutil.rmtree, site)
        about = site / f"levelhead-{__version__}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
        sys.path.append(str(site))
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [os.environ.get("PYTHONPATH"), str(site)])
        )
