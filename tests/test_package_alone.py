"""The wheel alone: built here, next to nothing but what it asks for, it runs what a new user runs first.

With each extra it runs what that adds; without it, it says what to install.
"""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from levelhead import __version__
from levelhead.support.extras import EXTRAS
from tools import extras, release

ROOT = Path(__file__).parents[1]
BASE = ("numpy", "scipy", "safetensors", "typer", "rich", "jinja2")


def with_what_they_ask_for(names: tuple[str, ...]) -> set[str]:
    """Return the distributions and, without extras, all that these ask for."""
    needed, todo = set(), [*names]
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in needed:
            needed.add(name)
            asked = map(Requirement, distribution(name).requires or ())
            todo += [
                each.name
                for each in asked
                if each.marker is None or each.marker.evaluate({"extra": ""})
            ]
    return needed


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
    assert {name.split("/")[0] for name in names} == {
        "levelhead",
        "levelhead_lab",
        f"levelhead-{__version__}.dist-info",
    }
    assert not [name for name in names if name.endswith((".pyc", ".so"))]


def link(names: set[str], site: Path) -> None:
    """Put links to distributions into a folder: it then holds these, and nothing else of this environment."""
    for name in names:
        files = distribution(name).files or []
        for top in {path.parts[0] for path in files if path.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))


def asked_for(wheel_files: Path, extra: str) -> tuple[str, ...]:
    """Return the distributions that the wheel's own metadata list for an extra, or for none."""
    [metadata] = wheel_files.glob("levelhead-*.dist-info")
    asked = [Requirement(line) for line in PathDistribution(metadata).requires or ()]
    if not extra:
        return tuple(each.name for each in asked if each.marker is None)
    return tuple(
        each.name
        for each in asked
        if each.marker is not None and each.marker.evaluate({"extra": extra})
    )


def test_every_extra_for_users_is_tried():
    assert set(extras.ADDS) == set(EXTRAS.values())
    assert set(extras.ADDS) > extras.HEAVY


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    """The wheel's files, with links to what it asks for without any extra."""
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    assert set(asked_for(site, "")) == set(BASE)
    link(with_what_they_ask_for(BASE), site)
    return site


@pytest.mark.slow
def test_the_wheel_alone_runs_what_a_new_user_runs_first(unpacked, tmp_path, monkeypatch):
    """The environment has no site-packages; a folder holds the wheel's files and links to what the wheel asks for."""
    monkeypatch.setenv("PYTHONPATH", str(unpacked))
    assert (
        release.run_commands([sys.executable, "-S"], __version__, tmp_path / "work", say=print)
        == []
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with what the programs of the extras read."""
    for name in ("onnx", "pyarrow", "PIL"):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("work")
    extras.make_files(folder)
    return folder


@pytest.fixture
def work(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "work")


def run_program(extra: str, site: Path, work: Path) -> subprocess.CompletedProcess[str]:
    """Run what an extra adds in an environment that is one folder."""
    environment = {
        "PYTHONPATH": str(site),
        "PATH": "/usr/bin:/bin",
        "HOME": str(work),
        "OMP_NUM_THREADS": "1",
    }
    program = extras.COMMAND + extras.ADDS[extra][1]
    return subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("extra", [extra for extra in extras.ADDS if extra not in extras.HEAVY])
def test_with_an_extra_the_wheel_does_what_the_extra_adds(extra, unpacked, work, tmp_path):
    site, needs = tmp_path / "site", (extra, *extras.ADDS[extra][0])
    site.mkdir()
    for path in unpacked.iterdir():
        (site / path.name).symlink_to(path)
    link(
        with_what_they_ask_for(tuple(name for each in needs for name in asked_for(unpacked, each))),
        site,
    )
    done = run_program(extra, site, work)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("extra", extras.ADDS)
def test_without_an_extra_its_program_says_what_to_install(extra, unpacked, work):
    done = run_program(extra, unpacked, work)
    assert done.returncode != 0
    assert "pip install '" in done.stderr, done.stderr
