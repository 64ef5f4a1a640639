"""A plugin of pytest for a machine where not all is installed: what lacks a package is skipped, and counted.

`on_another_machine.sh` loads it; `make test` does not, and there a missing package is an error. A test or file counts as
lacking a package if it ends with an error that names a module which is not installed. The package itself is not
installed either: its metadata, which messages read, are written to a folder of their own.
"""

import os
import re
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
NAMED = re.compile(r"No module named '(\w+)|this needs (\w+): pip install|(?:requires|install) (?:the )?`?(\w+)")


def missing_package(text: str) -> str:
    """Return the first module that a text says is needed and that is not installed, or nothing."""
    names = (next(filter(None, found)) for found in NAMED.findall(text))
    return next((name for name in names if name not in ("levelhead", "tests") and not find_spec(name)), "")


def skip_if_lacking(report: Any, path: Path) -> None:
    """Make a failed report one of a skip, if it failed for want of a package."""
    if report.failed and "Error" in report.longreprtext and (name := missing_package(report.longreprtext)):
        report.outcome, report.longrepr = "skipped", (str(path), 0, f"Skipped: {name} is not installed")


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
    lacking = Counter(found[1] for reason in reasons if (found := re.search(r"(\w+) is not installed$", reason)))
    if lacking:
        terminalreporter.write_line("not installed: " + ", ".join(f"{name} {n}" for name, n in lacking.most_common()))


def pytest_configure() -> None:
    """Write the metadata of the package, if it is not installed, where this and other processes find them."""
    try:
        version("levelhead")
    except PackageNotFoundError:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        about = {}
        exec((ROOT / "src/levelhead/_version.py").read_text(encoding="utf-8"), about)
        lines = ["Metadata-Version: 2.4", "Name: levelhead", f"Version: {about['__version__']}"]
        lines += [f"Requires-Dist: {each}" for each in project["dependencies"]]
        for extra, wanted in project["optional-dependencies"].items():
            lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {each}; extra == '{extra}'" for each in wanted)]
        site = Path(tempfile.mkdtemp(prefix="levelhead-"))
        (site / f"levelhead-{about['__version__']}.dist-info").mkdir()
        (site / f"levelhead-{about['__version__']}.dist-info" / "METADATA").write_text("\n".join(lines) + "\n\n")
        sys.path.append(str(site))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(site)]))
