"""The last check before a release: `make release` builds, this looks, and nothing is published.

    python tools/release.py dist [--strict]

It installs the wheel alone into an empty environment and runs there what a new user runs first. Exit status: 0 only if
nothing is wrong. What is still to be done before the tag is named; with --strict, as the tag has it, that is wrong too.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LARGEST_WHEEL = 2_000_000  # bytes
# A program that writes the files which the commands below read: a model whose head has learned a
# long tail.
MAKE_FILES = """
import json, numpy as np
from safetensors.numpy import save_file
rng, counts = np.random.default_rng(0), [1000, 300, 90, 30]
labels = np.repeat(np.arange(4), 60)
weight = (np.eye(4, 16) * (np.array(counts)[:, None] / 1000) ** 0.2).astype(np.float32)
features = (2 * np.eye(4, 16)[labels] + 0.9 * rng.normal(size=(240, 16)) + 1).astype(np.float32)
head = {"classifier.weight": weight, "classifier.bias": np.zeros(4, np.float32)}
save_file({"body.weight": np.ones((16, 8), np.float32), **head}, "model.safetensors")
np.save("logits.npy", features @ weight.T); np.save("labels.npy", labels)
open("counts.json", "w").write(json.dumps(counts))
"""
COMMANDS = (
    "--version",
    "demo --report demo.html",
    "inspect model.safetensors --counts counts.json",
    "tune --logits logits.npy --labels labels.npy --counts counts.json -o tuned.json --report page.html",
    "apply logits.npy --tuned tuned.json -o adjusted.npy",
    "adjust model.safetensors --tuned tuned.json -o adjusted.safetensors",
    "undo adjusted.safetensors -o back.safetensors",
    "report logits.npy --labels labels.npy --counts counts.json -o report.html",
)
WRITTEN = ("demo.html", "page.html", "tuned.json", "adjusted.safetensors", "report.html")


def main(folder: str, strict: str = "") -> int:
    """Print what was checked and what is still to be done, and return 1 if anything is wrong."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = re.findall(
        r'"(.*)"', (ROOT / "src/levelhead/_version.py").read_text(encoding="utf-8")
    )[-1]
    open_points = [
        *check_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version),
        *check_address(project.get("urls", {})),
    ]
    wrong = [
        *check_citation((ROOT / "CITATION.cff").read_text(encoding="utf-8"), version),
        *check_files(Path(folder), version),
    ]
    with tempfile.TemporaryDirectory() as place:
        [wheel] = Path(folder).glob("*.whl")
        wrong += check_wheel(wheel, version, Path(place), say=print)
    print(
        *(f"before the tag: {line}" for line in open_points),
        *(f"wrong: {line}" for line in wrong),
        sep="\n",
    )
    if wrong or (strict and open_points):
        return 1
    print(
        f"levelhead {version} is built and works; nothing was published. The tag v{version} does that."
    )
    return 0


def check_changelog(text: str, version: str) -> list[str]:
    """Return what the changelog lacks for this version.

    >>> check_changelog("## Unreleased\\n\\n## 1.0.0 - 2026-01-31\\n- Begin.\\n", "1.0.0")
    []
    >>> check_changelog("## 1.0.0\\n- Begin.\\n", "1.0.0")
    ['CHANGELOG.md has no "## 1.0.0 - YYYY-MM-DD": give the version its date']
    """
    found = re.search(rf"^## \[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE)
    if found is None:
        return [f'CHANGELOG.md has no "## {version} - YYYY-MM-DD": give the version its date']
    above = text[: found.start()].partition("## Unreleased")[2].strip()
    if above:
        return [f"CHANGELOG.md has lines under Unreleased, above {version}: move them below"]
    return []


def check_citation(text: str, version: str) -> list[str]:
    """Return whether CITATION.cff is of another version."""
    versions = re.findall(r"^version: (\S+)$", text, re.MULTILINE)
    if versions == [version]:
        return []
    return [f"CITATION.cff has version {', '.join(versions) or 'none'}, expected {version}"]


def check_address(urls: dict[str, str]) -> list[str]:
    """Return whether the repository's address is missing."""
    if urls.get("Repository", "").startswith("https://"):
        return []
    return [
        "project.urls in pyproject.toml has no Repository: set its https:// address, so that the README has links"
    ]


def check_files(folder: Path, version: str) -> list[str]:
    """Return what is wrong with the names and sizes of the built files."""
    expected = {f"levelhead-{version}.tar.gz", f"levelhead-{version}-py3-none-any.whl"}
    names = {path.name for path in folder.iterdir()}
    wrong = []
    if names != expected:
        wrong.append(f"expected {sorted(expected)} in {folder}, got {sorted(names)}")
    for path in folder.glob("*.whl"):
        size = path.stat().st_size
        if size > LARGEST_WHEEL:
            wrong.append(f"{path.name} has {size:,} bytes, at most {LARGEST_WHEEL:,}")
    return wrong


def check_wheel(wheel: Path, version: str, place: Path, *, say: Callable[[str], None]) -> list[str]:
    """Install the wheel alone into an empty environment, run each command there, and return what went wrong.

    Args:
        wheel: what was built.
        version: what it should be.
        place: an empty folder, for the environment and the files.
        say: called with each command and its outcome.
    """
    venv.create(place / "venv", with_pip=True)
    python = str(place / "venv" / "bin" / "python")
    for words in (["install", "-q", str(wheel.resolve())], ["check"]):
        done = subprocess.run(
            [python, "-m", "pip", *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return [f"pip {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}"]
    return run_commands([python], version, place / "work", say=say)


def run_commands(
    python: Sequence[str], version: str, work: Path, *, say: Callable[[str], None]
) -> list[str]:
    """Run what a new user runs first, and return what went wrong.

    Args:
        python: the interpreter, with its options, of an environment that has the package.
        version: of the package, as it should say.
        work: the folder to make and to work in.
        say: called with each command and its outcome.
    """
    work.mkdir()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*python, *words], cwd=work, capture_output=True, text=True, check=False
        )

    made = run("-c", MAKE_FILES)
    if made.returncode:
        return [f"the files could not be made: {made.stderr.strip()}"]
    wrong = []
    for command in COMMANDS:
        done = run("-m", "levelhead", *command.split())
        say(f"levelhead {command}: exit status {done.returncode}")
        if done.returncode:
            wrong.append(
                f"levelhead {command}: exit status {done.returncode}: {done.stderr.strip()}"
            )
    # An exit status alone does not say that the work was done.
    wrong += [f"{name} was not written" for name in WRITTEN if not (work / name).is_file()]
    if not wrong:
        back = (work / "back.safetensors").read_bytes()
        if back != (work / "model.safetensors").read_bytes():
            wrong.append("undo did not give back the bytes of the model")
    if not wrong:
        tuned = json.loads((work / "tuned.json").read_text(encoding="utf-8"))
        if not tuned["worthwhile"]:
            wrong.append("tune found no gain where there is one")
    said = run("-m", "levelhead", "--version").stdout.strip()
    if not said.endswith(version):
        wrong.append(f"levelhead --version says {said!r}, expected {version}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
