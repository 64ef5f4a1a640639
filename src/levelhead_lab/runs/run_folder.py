"""A run's folder and what can be read from it, without torch.

runs/<name>-<key of the spec>/
    spec.json               what was asked for, and on what: versions, threads, memory format, counts, data's sha256
    log.jsonl               one line per epoch: losses, errors, head norms
    checkpoint-*            the last two, checksummed
    model.safetensors       the trained network
    snapshot.safetensors    head, counts, features and labels of every split: all that is needed after training
    adjusted-<rule>.*       the adjusted model, a file for each rule that was asked for
    done.json               the result and the sha256 of the two files above; a run that has it is finished
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelhead.files.edits import file_sha256
from levelhead.support.errors import LevelheadError
from levelhead.support.regular_file import check_regular_file
from levelhead.support.text import parse_json

from ..lab.snapshot import Snapshot
from .spec import Spec

MODEL_KEY = "levelhead.model"  # of the metadata of model.safetensors that describes the network


@dataclass(frozen=True)
class Run:
    """A run, by its folder."""

    path: Path

    @staticmethod
    def open(path: str | Path) -> "Run":
        """Return the run in a folder; raise FileNotFoundError if the folder does not hold one."""
        if not (Path(path) / "spec.json").is_file():
            raise FileNotFoundError(
                f"{path}: not a run; expected a folder that `levelhead train` wrote (no spec.json)"
            )
        return Run(Path(path))

    @staticmethod
    def of(spec: Spec, runs: str | Path = "runs", name: str | None = None) -> "Run":
        """Return the run of a spec, whether or not it was begun."""
        return Run(Path(runs) / f"{name or spec.title}-{spec.key}")

    @property
    def finished(self) -> bool:
        return (self.path / "done.json").is_file()

    @property
    def facts(self) -> dict[str, Any]:
        """What spec.json holds."""
        return _read_object(self.path / "spec.json")

    @property
    def log(self) -> list[dict[str, Any]]:
        """The records of the epochs so far, without a last line that a crash cut off."""
        path = self.path / "log.jsonl"
        try:
            lines = []
            if path.is_file():
                lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            records = [parse_json(line) for line in lines if line.endswith("}\n")]
        except ValueError as error:
            raise LevelheadError(
                f"{path}: damaged ({error}); move the folder away to train again"
            ) from None
        for record in records:
            if not isinstance(record, dict) or not isinstance(record.get("epoch"), int):
                raise LevelheadError(
                    f"{path}: damaged, a line has no epoch; move the folder away to train again"
                )
        return records

    @property
    def result(self) -> dict[str, Any]:
        """What done.json holds; raises LevelheadError if the run is not finished."""
        return _read_object(self._finished_file("done.json"))

    @property
    def snapshot(self) -> Snapshot:
        """The trained head with features and labels, from a file that is as the run wrote it."""
        return Snapshot.load(self._checked_file("snapshot.safetensors"))

    def check_files(self) -> None:
        """Raise LevelheadError if a file is not as the run wrote it."""
        for name in self._vouched:
            self._checked_file(name)

    @property
    def _vouched(self) -> dict[str, str]:
        """The sha256 of each file that done.json vouches for; names of files in this folder alone."""
        digests = self.result.get("sha256", {})
        damaged = not isinstance(digests, dict)
        if not damaged:
            damaged = any(not 0 < len(name) < 100 or Path(name).name != name for name in digests)
        if damaged:
            raise LevelheadError(
                f"{self.path / 'done.json'}: damaged; move the folder away to train again"
            )
        return digests

    def _checked_file(self, name: str) -> Path:
        """Return a file whose sha256 is the one in done.json; results of older versions have none."""
        path = self.path / name
        vouched = self._vouched.get(name)
        check_regular_file(path, "what the run wrote")
        if vouched not in (None, file_sha256(path)):
            raise LevelheadError(
                f"{path}: not the file that the run wrote: its sha256 is not the one in done.json; "
                "move the folder away to train again"
            )
        return path

    def _finished_file(self, name: str) -> Path:
        if not self.finished:
            raise LevelheadError(
                f"{self.path}: not finished; run its `levelhead train` command again to resume it"
            )
        return self.path / name


def _read_object(path: Path) -> dict[str, Any]:
    """Return what a file that the run wrote holds; raise LevelheadError if it is not a JSON object."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise LevelheadError(
            f"{path}: damaged, expected a JSON object; move the folder away to train again"
        )
    return content
