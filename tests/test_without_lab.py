"""The product without the lab: its wheel, less `levelhead_lab`, in an environment of its own, passes its tests.

`levelhead_lab` stands on `levelhead` and could move to a repository of its own. So nothing of the product, nor of its
tests, may need the lab. All tests of the product, with the environment that these tests make:
`pytest tests/test_without_lab.py --basetemp=DIR`, then `DIR/env0/bin/python -m pytest tests/core tests/files ...`.
"""

import os
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = (  # of the product's tests: each room is used, and none takes long
    "tests/core/test_counts.py",
    "tests/labels/test_cuts.py",
    "tests/io/test_samples.py",
    "tests/heads/test_sklearn.py",
    "tests/files/test_safetensors.py",
    "tests/hosts/test_position_or_name.py",
    "tests/cli/test_help.py",
    "tests/cli/test_report.py",
)
IMPORT_ALL = """
import importlib, pkgutil, levelhead
modules = [module.name for module in pkgutil.walk_packages(levelhead.__path__, "levelhead.")]
modules.remove("levelhead.__main__")  # runs the command
for name in modules:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name and not error.name.startswith("levelhead"), error
print(len(modules), levelhead.__file__)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """Return the Python of an environment with the wheel, less the lab, and with all else that is installed here."""
    builder = pytest.importorskip("hatchling.build")
    dist = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        wheel = zipfile.ZipFile(dist / builder.build_wheel(str(dist)))
    home = tmp_path_factory.mktemp("env")
    venv.create(home)
    [site] = home.glob("lib/python3*/site-packages")
    # The link to this checkout is in a .pth file, or the package itself is there: neither may be seen.
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith("levelhead") and installed.suffix != ".pth":
            (site / installed.name).symlink_to(installed)
    wheel.extractall(
        site, [name for name in wheel.namelist() if not name.startswith("levelhead_lab/")]
    )
    return home / "bin" / "python"


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the environment's Python in the root of the checkout, without this process's own paths."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_every_module_is_imported(python):
    done = run(python, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    number, place = done.stdout.split()
    assert int(number) > 100
    assert Path(place).is_relative_to(python.parents[1])


def test_the_lab_is_not_there(python):
    assert "No module named 'levelhead_lab'" in run(python, "-c", "import levelhead_lab").stderr


def test_a_part_of_the_tests_passes(python):
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *PARTS)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_help_lists_no_command_of_the_lab(python):
    done = run(python, "-m", "levelhead", "--help")
    assert "  tune  " in done.stdout
    assert "  train  " not in done.stdout
    assert "levelhead demo" not in done.stdout


def test_a_page_of_a_run_says_what_it_needs(python, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    page = tmp_path / "page.html"
    done = run(python, "-m", "levelhead", "report", str(folder), "-o", str(page))
    assert done.returncode == 2
    assert done.stderr == (
        f"levelhead: a page of the run {folder} needs levelhead_lab, which is not installed; "
        "levelhead alone does not train\n"
    )
    assert not page.exists()
