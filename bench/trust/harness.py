"""What all fuzzers share: the loops, the account of what happened, what is kept of a failure, and the
command line.

    python -m bench.trust.fuzz_onnx --executions 100000 --seed 1     # or --seconds 300

prints one JSON line: executions, how many files were read, how many refused by a documented error,
and tracebacks: any other error, a message of several lines or without the file's name, and a result
that another library contradicts. An execution is one damaged file, read (and adjusted, where its
kind is) once.

There are two loops. `drive` is for kinds of files that are adjusted: a case writes its files,
adjusts them, undoes that, and asks another library what it thinks of them. `drive_readers` is for
files that are only read, by several readers each, and takes a fraction of the time. A fuzzer has a
list of sound files, a function that damages one, and `run(executions=, seed=, seconds=, keep=)`,
which calls one of the two.

A case is known by its number, which is the seed of its generator: `--seed 3 --executions 1` is case
30,000,000.
"""

import argparse
import json
import os
import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from levelhead.support.errors import LevelheadError

# A folder in memory, where files cost microseconds.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
MOST_KEPT = 20  # failing inputs of one process
# {kind of file: {name of a reader: the reader}}.
Readers = Mapping[str, Mapping[str, Callable[[Path], Any]]]
# What a command shows as one line. Everything else would be a traceback.
DOCUMENTED = (LevelheadError, FileNotFoundError, FileExistsError)


class Contradiction(Exception):
    """A result that another library does not agree with."""


@dataclass
class Account:
    """What happened: how many files were read and refused, and what went wrong, with the numbers of its cases.

    `wrong` has one entry for each kind of failure, by error, place and message: a bug that a thousand files meet is
    one line. Of each kind, the first input is kept.
    """

    keep: Path | None = None  # folder for failing inputs
    done: int = 0  # executions
    outcome: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[int]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def add_wrong(self, error: BaseException, number: int, source: Path, title: str = "") -> None:
        """Add a failure, and keep its input if it is the first of its kind.

        Args:
            error: that came.
            number: of the case.
            source: file or folder of its input.
            title: put before what is said of the error, such as the reader.
        """
        what = title + _describe(error)
        if (
            what not in self.wrong
            and self.keep is not None
            and source.exists()
            and len(os.listdir(self.keep)) < MOST_KEPT
        ):
            target = self.keep / f"{number}-{os.getpid()}{source.suffix}"
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
        self.wrong.setdefault(what, []).append(number)

    def result(self) -> dict[str, Any]:
        """Return it as the JSON line has it; of each kind of failure, how many and the first case."""
        return {
            "executions": self.done,
            "read": self.outcome["read"],
            "documented errors": self.outcome["documented errors"],
            "tracebacks": sum(map(len, self.wrong.values())),
            "seconds": round(self.seconds, 1),
            "wrong": {
                what: [len(numbers), numbers[0]] for what, numbers in sorted(self.wrong.items())
            },
        }


def drive(
    case: Callable[[random.Random, Path], None],
    *,
    executions: int,
    seed: int = 0,
    seconds: float = 1e9,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Run a case so many times, each in an empty folder; return the account.

    Args:
        case: writes a damaged file to the folder and reads it.
        executions: how many.
        seed: each case has a generator of its own, so that one can be run again by its number.
        seconds: stop after these.
        keep: a folder for the inputs of cases that went wrong.
    """
    account = Account(keep)
    with tempfile.TemporaryDirectory(dir=MEMORY) as root:
        folder = Path(root, "case")
        folder.mkdir()
        for number in range(seed * 10_000_000, seed * 10_000_000 + executions):
            try:
                case(random.Random(number), folder)
                account.outcome["read"] += 1
            except DOCUMENTED as error:
                # A documented error must still be one line and name its file; one about counts need
                # not, as they are given by the fuzzer and not in a file.
                if "\n" in str(error).strip() or not (
                    str(folder) in str(error) or "counts" in str(error)
                ):
                    account.add_wrong(error, number, folder)
                else:
                    account.outcome["documented errors"] += 1
            except (KeyboardInterrupt, SystemExit):
                raise
            # A panic of a library in Rust is no Exception.
            except BaseException as error:
                account.add_wrong(error, number, folder)
            _empty(folder)
            account.done += 1
            if account.seconds > seconds:
                break
    return account.result()


def drive_readers(
    damaged: Callable[[random.Random], tuple[str, bytes]],
    readers: Readers,
    *,
    executions: int,
    seed: int = 0,
    seconds: float = 1e9,
    keep: Path | None = None,
    nameless: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Read damaged files, each with every reader of its kind; return the account.

    Args:
        damaged: gives a kind and the bytes of a damaged file.
        readers: {kind: {name: function of a path}}.
        executions: how many files and readers.
        seed: as for `drive`.
        seconds: stop after these.
        keep: a folder for the inputs of cases that went wrong.
        nameless: readers whose errors need not name the file: they get what was read from it.
    """
    account, number, rng = Account(keep), seed * 10_000_000, random.Random()
    with tempfile.TemporaryDirectory(dir=MEMORY) as root:
        paths = {kind: Path(root, f"x{kind}") for kind in readers}
        while account.done < executions and account.seconds < seconds:
            rng.seed(number)
            try:
                kind, data = damaged(rng)
            except Exception as error:  # a mistake in the fuzzer must not end hours of work
                account.add_wrong(error, number, Path(root, "nothing"), "fuzzer: ")
                number += 1
                continue
            path = paths[kind]
            path.write_bytes(data)
            for name, reader in readers[kind].items():
                try:
                    reader(path)
                    account.outcome["read"] += 1
                except (LevelheadError, OSError) as error:
                    text = str(error).strip()
                    if "\n" in text or not (root in text or "counts" in text or name in nameless):
                        account.add_wrong(error, number, path, f"{kind} {name}: ")
                    else:
                        account.outcome["documented errors"] += 1
                except Exception as error:
                    account.add_wrong(error, number, path, f"{kind} {name}: ")
            account.done += len(readers[kind])
            number += 1
    return account.result()


def _empty(folder: Path) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


def _describe(error: BaseException) -> str:
    """Return one line of an error, with the last place of ours that it came through."""
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/levelhead/" in frame.filename
    ]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {place}: {str(error).replace(chr(10), ' | ')[-160:]}"


def main(name: str, run: Callable[..., dict[str, Any]]) -> None:
    """Run a fuzzer from the command line, and print its account.

    Args:
        name: of the fuzzer.
        run: its function, called with executions, seed, seconds and keep.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the inputs that went wrong")
    options = parser.parse_args()
    summary = run(
        executions=options.executions, seed=options.seed, seconds=options.seconds, keep=options.keep
    )
    print(json.dumps({"fuzzer": name, **summary}))
