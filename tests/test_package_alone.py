"""The wheel alone: built here, next to nothing but what it asks for, it runs what a new user runs first."""

import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from levelhead import __version__

from . import release

ROOT = Path(__file__).parents[1]
BASE = ("numpy", "safetensors", "typer", "rich", "jinja2")


def with_what_they_ask_for(names: tuple[str, ...]) -> set[str]:
    """Return the distributions and, without extras, all that these ask for."""
    found, todo = set(), [*names]
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in found:
            found.add(name)
            asked = map(Requirement, distribution(name).requires or ())
            todo += [each.name for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, monkeypatch_module) -> Path:
    builder = pytest.importorskip("hatchling.build")
    folder = tmp_path_factory.mktemp("dist")
    monkeypatch_module.chdir(ROOT)
    return folder / builder.build_wheel(str(folder))


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.mark.slow
def test_the_wheel_is_small_and_has_no_file_that_only_the_repository_needs(wheel):
    assert wheel.stat().st_size < release.LARGEST_WHEEL
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"levelhead", f"levelhead-{__version__}.dist-info"}
    assert not [name for name in names if name.endswith((".pyc", ".so"))]


@pytest.mark.slow
def test_the_wheel_alone_runs_what_a_new_user_runs_first(wheel, tmp_path, monkeypatch):
    """The environment has no site-packages; a folder holds the wheel's files and links to what the wheel asks for."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    for name in with_what_they_ask_for(BASE):
        files = distribution(name).files or []
        for top in {path.parts[0] for path in files if path.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert release.run_commands([sys.executable, "-S"], __version__, tmp_path / "work", say=print) == []
