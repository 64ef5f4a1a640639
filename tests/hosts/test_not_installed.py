"""Hosts are never imported unless used, and a library that is missing is named with the way to install it."""

import ast
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

import levelhead
from levelhead.support.extras import EXTRAS

pytestmark = pytest.mark.usefixtures("no_collection")
HOSTS = Path(levelhead.__file__).parent / "hosts"
PUBLIC = sorted(path.stem for path in HOSTS.glob("[!_]*.py"))
LIBRARIES = sorted({*EXTRAS, "skl2onnx", "accelerate", "peft", "pandas"})
ALONE = {"logprobs", "predictor"}  # this needs numpy alone


def run(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


def test_no_host_is_imported_unless_it_is_used():
    code = "\n".join(
        [
            "import sys, numpy as np, levelhead as lh, levelhead.cli, levelhead.report",
            "lh.tune(np.eye(2)[[0, 1, 0, 1]] * 3 + 1, [0, 1, 0, 1], [9, 3], rule='rescale')",
            "print(*sorted(m for m in sys.modules if m.startswith('levelhead.hosts.')))",
            f"print(*[name for name in {LIBRARIES} if name in sys.modules])",
        ]
    )
    done = run(code)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def declared(extra: str) -> list[str]:
    """Return what pyproject.toml says an extra installs."""
    lines = [line.split(";") for line in requires("levelhead")]
    return [
        parts[0].strip()
        for parts in lines
        if len(parts) == 2 and f"'{extra}'" in parts[1].replace('"', "'")
    ]


@pytest.mark.parametrize("host", PUBLIC)
def test_missing_library_is_named_with_the_way_to_install_it(host):
    """The libraries themselves are named, with their versions: that works from a clone and from an index."""
    hidden = "".join(f"sys.modules['{name}'] = None\n" for name in LIBRARIES)
    done = run(f"import sys\n{hidden}import levelhead.hosts.{host}")
    assert (done.returncode == 0) == (host in ALONE), done.stderr
    if host in ALONE:
        return
    message = done.stderr.strip().splitlines()[-1]
    match = re.fullmatch(r"ModuleNotFoundError: this needs (\w+): (.*)", message)
    assert match, message
    wanted = declared(EXTRAS[match[1]])
    assert wanted, f"no extra {EXTRAS[match[1]]} in pyproject.toml"
    assert match[2] == "pip install " + " ".join(f"'{requirement}'" for requirement in wanted)


def test_no_module_of_ours_imports_a_host_at_its_top():
    wrong = []
    for path in HOSTS.parent.rglob("*.py"):
        if path.parent == HOSTS or path.parent == HOSTS.parent:  # the package itself loads lazily
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and "hosts" in (node.module or "").split("."):
                wrong.append(f"{path.relative_to(HOSTS.parent)} imports {node.module}")
    assert wrong == []
