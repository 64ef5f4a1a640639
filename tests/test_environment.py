"""The environment that `make` builds imports what it installs, in any process."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools import declare_torchvision_operators

SCRIPT = Path(declare_torchvision_operators.__file__)
IMPORTS = "import transformers, lightning, timm; from transformers import BertForSequenceClassification, Trainer"


def run(*words: str | Path, folder: Path) -> str:
    """Run Python in a folder whose packages come first; return what it printed, which is nothing unless it failed."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=folder, capture_output=True, text=True
    )
    return done.stderr if done.returncode else ""


def needs(*names: str) -> None:
    if missing := [name for name in names if find_spec(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.mark.slow
def test_what_imports_torchvision_is_imported_outside_of_pytest(tmp_path):
    needs("transformers", "lightning", "timm")
    assert run("-c", IMPORTS, folder=tmp_path) == ""


@pytest.mark.slow
def test_a_torchvision_as_it_is_installed_becomes_importable_and_is_changed_once(tmp_path):
    needs("torchvision")
    installed = Path(find_spec("torchvision").origin).parent
    (tmp_path / "torchvision").mkdir()
    for path in installed.iterdir():
        (tmp_path / "torchvision" / path.name).symlink_to(path)
    extension = tmp_path / "torchvision" / "extension.py"
    extension.unlink()
    source = (installed / "extension.py").read_text(encoding="utf-8")
    extension.write_text(
        source.replace(declare_torchvision_operators.DECLARATIONS, ""), encoding="utf-8"
    )
    assert run(SCRIPT, folder=tmp_path) == ""
    once = extension.read_text(encoding="utf-8")
    assert run(SCRIPT, folder=tmp_path) == ""
    assert extension.read_text(encoding="utf-8") == once


def test_an_environment_without_torchvision_is_left_as_it_is(tmp_path):
    assert run("-S", SCRIPT, folder=tmp_path) == ""  # without site-packages
