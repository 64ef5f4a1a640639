"""A run's folder and what can be read from it, without torch.

A run is one training, kept in a folder of its own:

runs/<name>-<key of the spec>/
    spec.json               what was asked for, and on what: versions, threads, memory format, counts, data's sha256
    log.jsonl               one line per epoch: losses, errors, head norms
    checkpoint-*            the last two, checksummed
    model.safetensors       the trained network
    snapshot.safetensors    head, counts, features and labels of every split: all that is needed after training
    adjusted-<rule>.*       the adjusted model, a file for each rule that was asked for
    done.json               the result and the sha256 of model and snapshot; a run that has it is finished
    lock                    held by the process that trains the run; see `lock`

`session`, `checkpoint` and `export` write these files; this module only reads them. It does not
trust the folder: a file may be cut off by a crash, edited, or come from another version. The message
then names the file and says what to do about it. It knows nothing of torch, so that pages and
evaluations of finished runs need not import it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from levelhead.files.edits import file_sha256
from levelhead.support.errors import LevelheadError
from levelhead.support.regular_file import check_regular_file
from levelhead.support.text import parse_json

from ..lab.snapshot import Snapshot
from .spec import Spec

MODEL_KEY = "levelhead.model"  # of the metadata of model.safetensors that describes the network

# What a JSON file of a run holds. Of what type a value is, only the file says: check before use.
JsonObject: TypeAlias = dict[str, Any]

# One line of log.jsonl. Both engines give `epoch` (from 1 on), `lr`, `loss`, `train_error` and
# `norms`, the length of each class's weight vector; a session adds `of`, the number of epochs,
# `seconds` since the training began, and `<split>_error` of the other splits.
EpochRecord: TypeAlias = JsonObject


@dataclass(frozen=True)
class Run:
    """A run, by its folder.

    Two are equal if their folders are. Each property reads its file anew, so that a Run can watch
    a training that another process is at.
    """

    path: Path

    @staticmethod
    def open(path: str | Path) -> "Run":
        """Return the run in a folder, finished or not.

        Raises:
            FileNotFoundError: if the folder has no spec.json, which is the first file of every run.
        """
        if not (Path(path) / "spec.json").is_file():
            raise FileNotFoundError(
                f"{path}: not a run; expected a folder that `levelhead train` wrote (no spec.json)"
            )
        return Run(Path(path))

    @staticmethod
    def of(spec: Spec, runs: str | Path = "runs", name: str | None = None) -> "Run":
        """Return the run of a spec, whether or not it was begun.

        Args:
            spec: what to train. Its key is part of the folder's name, so another spec has another
                folder, even under the same name.
            runs: the folder that holds all runs.
            name: the first part of the folder's name; the spec's title if None.

        >>> Run.of(Spec("digits", method="wvn", seed=1)).path.name
        'digits-wvn-1-...'
        """
        return Run(Path(runs) / f"{name or spec.title}-{spec.key}")

    @property
    def finished(self) -> bool:
        """Whether the run has its result: done.json is written last, when all else is whole."""
        return (self.path / "done.json").is_file()

    @property
    def facts(self) -> JsonObject:
        """What spec.json holds: the spec, what identifies it, and on what the run was begun."""
        return _read_object(self.path / "spec.json")

    @property
    def log(self) -> list[EpochRecord]:
        """The records of the epochs so far, without a last line that a crash cut off.

        Raises:
            LevelheadError: if a whole line is not JSON, or not the record of an epoch.
        """
        path = self.path / "log.jsonl"
        try:
            lines = []
            if path.is_file():
                lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            # A line is appended at the end of every epoch: one that was cut off lacks its end.
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
    def result(self) -> JsonObject:
        """What done.json holds: the last epoch's loss and errors, seconds, parameters, digests.

        Raises:
            LevelheadError: if the run is not finished, or the file is damaged.
        """
        return _read_object(self._finished_file("done.json"))

    @property
    def snapshot(self) -> Snapshot:
        """The trained head with features and labels of every split.

        Raises:
            LevelheadError: if the run is not finished, or the file is not as the run wrote it.
        """
        return Snapshot.load(self._checked_file("snapshot.safetensors"))

    def check_files(self) -> None:
        """Raise LevelheadError if model or snapshot is not as the run wrote it. Reads both whole."""
        for name in self._vouched:
            self._checked_file(name)

    @property
    def _vouched(self) -> dict[str, str]:
        """The sha256 of each file that done.json vouches for, by its name.

        A done.json from elsewhere could name any file, such as `../../secret`, and would have it
        read: only plain names are let through, which are of files in this folder.
        """
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
        """Return the path of a file, after comparing its sha256 with the one in done.json.

        Results of older versions have no digests: their files are taken as they are.

        Raises:
            LevelheadError: if the digests differ, or it is no plain file.
        """
        path = self.path / name
        vouched = self._vouched.get(name)
        # First, as hashing a named pipe would wait for ever.
        check_regular_file(path, "what the run wrote")
        if vouched not in (None, file_sha256(path)):
            raise LevelheadError(
                f"{path}: not the file that the run wrote: its sha256 is not the one in done.json; "
                "move the folder away to train again"
            )
        return path

    def _finished_file(self, name: str) -> Path:
        """Return the path of a file that only a finished run has; raise LevelheadError if it is not."""
        if not self.finished:
            raise LevelheadError(
                f"{self.path}: not finished; run its `levelhead train` command again to resume it"
            )
        return self.path / name


def _read_object(path: Path) -> JsonObject:
    """Return what a file that the run wrote holds.

    Raises:
        LevelheadError: if it is not a JSON object.
    """
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise LevelheadError(
            f"{path}: damaged, expected a JSON object; move the folder away to train again"
        )
    return content
