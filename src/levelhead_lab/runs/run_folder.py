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
        return Run(Path(runs) / f"{name or spec.title}-{spec.key}")

    @property
    def finished(self) -> bool:
        return (self.path / "done.json").is_file()

    @property
    def facts(self) -> dict[str, Any]:
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
        if not all(
            isinstance(record, dict) and isinstance(record.get("epoch"), int) for record in records
        ):
            raise LevelheadError(
                f"{path}: damaged, a line has no epoch; move the folder away to train again"
            )
        return records

    @property
    def result(self) -> dict[str, Any]:
        return _read_object(self._finished_file("done.json"))

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot.load(self._checked_file("snapshot.safetensors"))

    def check_files(self) -> None:
        for name in self._vouched:
            self._checked_file(name)

    @property
    def _vouched(self) -> dict[str, str]:
        found = self.result.get("sha256", {})
        if not isinstance(found, dict) or any(
            not 0 < len(name) < 100 or Path(name).name != name for name in found
        ):
            raise LevelheadError(
                f"{self.path / 'done.json'}: damaged; move the folder away to train again"
            )
        return found

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
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LevelheadError(
            f"{path}: damaged, expected a JSON object; move the folder away to train again"
        )
    return found
