"""The plugin for machines that lack packages skips what lacks one, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_what_lacks_a_package_is_skipped_and_what_is_wrong_fails(tmp_path):
    (tmp_path / "test_file.py").write_text("import nowhere\n")
    (tmp_path / "test_some.py").write_text(
        "import subprocess, sys\nimport pytest\n"
        "@pytest.fixture\ndef lacking():\n    import nowhere\n"
        "def test_of_a_fixture(lacking): pass\n"
        "def test_of_another_process():\n"
        "    done = subprocess.run([sys.executable, '-c', 'import nowhere'], capture_output=True, text=True)\n"
        "    assert done.returncode == 0, done.stderr\n"
        "def test_that_fails(): assert 1 == 2\n"
        "def test_of_what_is_ours(): import levelhead.nowhere\n"
        "def test_that_passes(): pass\n"
    )
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tools.elsewhere",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        tmp_path,
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "2 failed, 1 passed, 3 skipped" in done.stdout, done.stdout + done.stderr
    assert "not installed: nowhere 3" in done.stdout
    assert {
        line.split(" ")[1].split("::")[1]
        for line in done.stdout.splitlines()
        if line.startswith("FAILED")
    } == {
        "test_that_fails",
        "test_of_what_is_ours",
    }
