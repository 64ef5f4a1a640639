"""Each extra alone: installed with the wheel into an empty environment, it does what it adds.

    python -m tools.try_extras [EXTRA ...]
    python -m tools.try_extras --tests PYTHON

The versions are those of constraints.txt. It prints the seconds of each, and ends with 1 if any went wrong. With
`--tests` it runs the tests that `make test` skips, in an environment that has what they need: none may be skipped
there. `make test-extras` does both.
"""

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from . import extras

ROOT = Path(__file__).parents[1]
# Tests that need what the usual environment lacks: {file: pytest's expression for those in it}.
TESTS = {
    "hosts/test_trackers.py": "mlflow or wandb",
    "hosts/test_trainers.py": "fastai",
    "hosts/test_lightning_tune.py": "mlflow",
    "hosts/test_transformers_tune.py": "mlflow",
    "hosts/test_keras_backends.py": "backends",
    "hosts/test_training_labels.py": "hugging_face",
    "files/test_flax.py": "module_of_flax",
    "files/test_mlx.py": "mlx_itself",
    "study/test_train.py": "mlflow or wandb",
    "test_package.py": "conda_tools",
}


def main(*chosen: str) -> int:
    """Try the extras that are named, or all; print one line for each and return 1 if one went wrong."""
    if chosen[:1] == ("--tests",):
        return run_tests(*chosen[1:])
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        wheel = build_wheel(Path(place))
        for extra in chosen or extras.ADDS:
            seconds, message = try_extra(extra, wheel)
            print(
                f"{extra}: installed in {seconds[0]:.0f} s, ran in {seconds[1]:.0f} s: {message or 'works'}",
                flush=True,
            )
            wrong |= bool(message)
    return int(wrong)


def run_tests(python: str) -> int:
    """Run the tests of what the usual environment lacks by an interpreter; return 1 if one fails or is skipped.

    Each file has a process of its own: MLflow keeps the store that it was given first.
    """
    wrong = 0
    for name, selected in TESTS.items():
        words = ["-m", "pytest", "-n", "0", "-rs", "-k", selected]
        done = subprocess.run(
            [python, *words, ROOT / "tests" / name],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        print(name, done.stdout, sep="\n", flush=True)
        wrong |= done.returncode != 0 or "SKIPPED" in done.stdout
    return int(wrong)


def build_wheel(folder: Path) -> Path:
    """Build the package into a folder and return the wheel."""
    from hatchling.build import build_wheel as build

    os.chdir(ROOT)
    return folder / build(str(folder))


def try_extra(extra: str, wheel: Path) -> tuple[tuple[float, float], str]:
    """Install the wheel with an extra into an empty environment and run its program there.

    Args:
        extra: a key of `extras.ADDS`.
        wheel: what was built.

    Returns:
        The seconds of the installation and of the program, and what went wrong, or nothing.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        wanted = ",".join([extra, *extras.ADDS[extra][0]])
        later = [] if extra == "ray" else ["--no-compile"]  # Ray waits not long for its services
        install = [
            "pip",
            "install",
            "-q",
            *later,
            "-c",
            str(ROOT / "constraints.txt"),
            f"{wheel}[{wanted}]",
        ]
        venv.create(place / "venv", with_pip=True)
        work = place / "work"
        work.mkdir()
        extras.make_files(work)
        (place / "program.py").write_text(extras.COMMAND + extras.ADDS[extra][1], encoding="utf-8")
        seconds = []
        for words in (["-m", *install], ["-m", "pip", "check"], [str(place / "program.py")]):
            began = time.monotonic()
            done = subprocess.run(
                [place / "venv" / "bin" / "python", *words],
                cwd=work,
                capture_output=True,
                text=True,
                check=False,
            )
            seconds.append(time.monotonic() - began)
            if done.returncode:
                said = (done.stderr.strip() or done.stdout.strip()).splitlines()
                return (seconds[0], seconds[-1]), f"exit status {done.returncode}: " + " | ".join(
                    said[-15:]
                )
        return (seconds[0], seconds[2]), ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
