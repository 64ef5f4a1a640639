"""The training of one run: its folder is checked, its log and its result are written.

What both engines share lives here, so that a run which one of them began can be resumed and read by
the other: `run` (the plain engine) and `packed` (the fast one) build a `TrainingSession`, hold
`lock.lock_folder`, and call its methods in the order of its docstring. How a step is taken is theirs;
what is written, when, and what happens on a full disk is decided here.

`check_same` and `check_finished` compare a folder with the spec that asks for it.
"""

import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version

import torch
from safetensors.torch import save as to_bytes

from levelhead._version import __version__
from levelhead.files.edits import file_sha256
from levelhead.support import atomic
from levelhead.support.errors import LevelheadError

from ..fast.precision import PRECISIONS
from ..lab.data import Data
from ..lab.nets import build, parameter_count
from ..lab.preprocess import Preprocess, errors, snapshot
from ..lab.progress import EpochProgress
from ..lab.stages import stages
from ..lab.train import OnBatch, State, check_last_batch
from . import checkpoint
from .run_folder import MODEL_KEY, EpochRecord, JsonObject, Run
from .spec import Spec

MOST_THREADS = 1024  # torch crashes with more than the system gives


class TrainingSession:
    """A spec's network and its folder.

    Both engines go the same way:

    1. `begin` writes or checks spec.json.
    2. `latest_checkpoint` finds the State to resume from, and `resume_from` cuts the log to it.
    3. `end_epoch` adds a line to the log, after each epoch.
    4. `finish` writes model, snapshot and, last of all, done.json: a run that has it is finished.

    Nothing changes in the folder before `begin`; hold `lock_folder` from there on. What is sure to
    fail, such as a batch that the network cannot take, fails here in the constructor, before a
    folder is made.

    Args:
        run: the folder.
        spec: what to train.
        data: of the spec, loaded.
        device: to train on. The network is built on the CPU and moved there, so that its first
            weights do not depend on the device.
        writes: whether this process writes; under torchrun only the first one does.
        half: keep the features of the snapshot in half precision.
        report: called after every epoch with its record, once that is on disk.

    Attributes:
        recipe, method: what the names in the spec stand for.
        net: in the precision of the spec, on the device; the engine trains it in place.
        preprocess: how images are prepared for it.
        epochs: of the whole training.

    Raises:
        LevelheadError: if the network cannot be built or cannot take the last batch of an epoch.
    """

    def __init__(
        self,
        run: Run,
        spec: Spec,
        data: Data,
        device: torch.device,
        *,
        writes: bool = True,
        half: bool = False,
        report: EpochProgress | None = None,
    ):
        self.run = run
        self.folder = run.path
        self.spec = spec
        self.data = data
        self.device = device
        self.writes = writes
        self.half = half
        self.report = report
        dtype = PRECISIONS[spec.dtype].weights
        self.recipe = spec.resolve_recipe()
        self.method = spec.resolve_method()
        self.net = build(
            spec.resolve_net(),
            data.classes,
            head=self.method.head,
            shape=data.shape,
            shortcut=spec.shortcut,
            stem=spec.stem,
            bias=self.recipe.bias,
            init=self.recipe.init,
            seed=spec.seed,
        ).to(device, dtype)
        self.preprocess = Preprocess(self.recipe, data, dtype)
        check_last_batch(self.net, data, self.recipe, self.method, seed=spec.seed)
        # Those of a second stage, which retrains the head, included.
        self.epochs = stages(self.recipe, self.method)[-1].end
        # On this process's clock, and as if it had trained the epochs before a checkpoint too: so
        # the seconds in log and result are those of the whole training, without the breaks.
        self.began = time.monotonic()

    def begin(self, say: Callable[[str], None] = print) -> None:
        """Write spec.json or, where there is one, check that it agrees and take over its number of threads.

        Raises:
            LevelheadError: if the folder holds a run with other settings or data, or is damaged.
        """
        if (self.folder / "spec.json").is_file():
            # Begun before: by this command, by another one, or with other versions.
            check_same(self.run, self.spec, self.data)
            facts = _complete_facts(self.run)
            # The order of sums, and so their rounding, depends on the number of threads.
            if self.device.type == "cpu":
                torch.set_num_threads(facts["threads"])
            for name, now in (("torch", version("torch")), ("levelhead", __version__)):
                before = facts.get("versions", {}).get(name, now)
                if before != now:
                    say(
                        f"{self.folder}: begun with {name} {before}, resumed with {now}: the result may differ in its "
                        "last bits"
                    )
        elif self.writes:
            atomic.write(self.folder / "spec.json", json.dumps(self._describe(), indent=2).encode())

    def _describe(self) -> JsonObject:
        """Return what spec.json holds: all that decides the numbers of the run, and on what it was begun.

        `spec` is as the user gave it, `identity` what it stands for. `threads` and `versions` are
        there because rounding depends on them: a CPU run that is resumed with the same ones ends with
        the same bits. `data_sha256` is of all splits together, and `split_sha256` tells which differs.
        """
        spec = self.spec
        data = self.data
        packages = ("torch", "numpy", "safetensors")
        device = "cpu"
        if self.device.type == "cuda":
            device = torch.cuda.get_device_name(self.device)
        return {
            "spec": spec.to_dict(),
            "identity": spec.identity(),
            "seed": spec.seed,
            "versions": {
                "levelhead": __version__,
                "python": platform.python_version(),
                **{package: version(package) for package in packages},
            },
            "machine": platform.machine(),
            "device": device,
            "threads": torch.get_num_threads(),
            "memory_format": "channels_last",
            "counts": data.counts.tolist(),
            "names": list(data.names),
            "shape": list(data.shape),
            "sizes": {title: len(part) for title, part in data.splits.items()},
            "data_sha256": data.sha256,
            "split_sha256": {title: part.sha256 for title, part in data.splits.items()},
        }

    def latest_checkpoint(
        self, say: Callable[[str], None], *, mid_epoch: bool = True
    ) -> State | None:
        """Return the State to resume from, or None to train from the start; say which were damaged.

        Args:
            say: called with a line for each damaged checkpoint that was passed over.
            mid_epoch: whether one from inside an epoch will do. The fast engine, whose epochs are
                planned whole, cannot resume from one.
        """
        state, damaged = checkpoint.latest(self.folder, mid_epoch=mid_epoch)
        for line in damaged:
            say(f"{line}; resuming from the one before")
        return state

    def resume_from(self, start: State | None) -> None:
        """Cut the folder back to a State: drop later records and checkpoints, and half-written files.

        A log may be ahead of the last intact checkpoint, as it gets its line first. Without the cut
        the epochs trained again would be in it twice.

        Raises:
            LevelheadError: if the State is of another network, or the log lacks an epoch before it.
        """
        records: list[EpochRecord] = []
        if start is not None:
            self._check_weights(start)
            records = [record for record in self.run.log if record["epoch"] <= start.epoch]
            if len(records) != start.epoch:
                raise LevelheadError(
                    f"{self.folder / 'log.jsonl'}: damaged, it has {len(records)} of the {start.epoch} "
                    "epochs before the last checkpoint; move the folder away to train again"
                )
        spent = 0.0  # seconds of training so far
        if records:
            spent = records[-1].get("seconds")
        if not isinstance(spent, int | float):
            raise LevelheadError(
                f"{self.folder / 'log.jsonl'}: damaged, its last epoch has no seconds; move the folder away to train "
                "again"
            )
        # Everything is checked: only now does the folder change.
        checkpoint.remove_newer(self.folder, start)
        # What a killed process was writing; nobody else writes here while we hold the lock.
        for scratch in self.folder.glob("*.tmp"):
            scratch.unlink()
        lines = "".join(json.dumps(record) + "\n" for record in records)
        atomic.write(self.folder / "log.jsonl", lines.encode())
        self.began = time.monotonic() - spent

    def _check_weights(self, start: State) -> None:
        """Raise LevelheadError if a State is of another network, as after an update of timm."""
        here = {name: tensor.shape for name, tensor in self.net.state_dict().items()}
        there = {name: tensor.shape for name, tensor in start.weights.items()}
        for name in {**here, **there}:
            if here.get(name) != there.get(name):
                raise LevelheadError(
                    f"{self.folder}: its checkpoints are of another network ({name} differs); train with the versions "
                    "in its spec.json, or move the folder away to train again"
                )

    def batch_report(self, report: EpochProgress | None) -> OnBatch | None:
        """Return what an engine calls after a batch, to tell a progress bar how far the epoch is.

        Args:
            report: the bar; None if there is none, and then nothing is to be called.
        """
        if report is None:
            return None
        return lambda epoch, done, total: report(
            {"epoch": epoch, "of": self.epochs, "batch": done, "batches": total}
        )

    def end_epoch(self, record: EpochRecord) -> None:
        """Add an epoch to the log, then report it.

        The fast engine measures errors on the device and has them in its record; for the plain one
        they are measured here, on the held-out and test samples.

        Args:
            record: of the epoch, as the engine gives it; `of`, `seconds` and missing errors are added.

        Raises:
            OSError: if the line cannot be written; its message says how to resume.
        """
        if "test_error" not in record:
            measured = errors(self.net, self.data, self.preprocess)
            record = record | {f"{split}_error": error for split, error in measured.items()}
        record = record | {"of": self.epochs, "seconds": round(time.monotonic() - self.began, 3)}
        try:
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                # On disk before its checkpoint is: a checkpoint needs the records before it.
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(
                f"{self.folder}: cannot write the log ({error.strerror}); make room and run the same command "
                "again to resume"
            ) from error
        if self.report is not None:
            self.report(record)

    def finish(self) -> None:
        """Write the trained network, its snapshot and, when these are whole, done.json with a digest of each.

        Raises:
            OSError: if one cannot be written. The checkpoints are still there: the same command
                goes on from the last one.
        """
        seconds = round(time.monotonic() - self.began, 3)
        # What is kept of the training: weights on the host, where it came from, the last epoch's numbers.
        weights = {}
        for name, tensor in self.net.state_dict().items():
            weights[name] = tensor.detach().cpu().contiguous()
        meta = {"spec": self.spec.to_dict(), "seconds": seconds}
        result: JsonObject = {}
        for key, value in self.run.log[-1].items():
            if key.endswith("error") or key in ("epoch", "loss"):
                result[key] = value
        result |= {"seconds": seconds, "parameters": parameter_count(self.net)}
        # done.json last: whoever sees it may rely on the two files that it vouches for.
        try:
            network = to_bytes(weights, {MODEL_KEY: json.dumps(self._network_facts())})
            atomic.write(self.folder / "model.safetensors", network)
            trained = snapshot(self.net, self.data, self.preprocess, meta=meta, half=self.half)
            trained.save(self.folder / "snapshot.safetensors")
            result["sha256"] = {
                name: file_sha256(self.folder / name)
                for name in ("model.safetensors", "snapshot.safetensors")
            }
            atomic.write(self.folder / "done.json", json.dumps(result, indent=2).encode())
        except OSError as error:
            raise OSError(
                f"{self.folder}: trained, but the result cannot be written ({error.strerror}); make room and "
                "run the same command again"
            ) from error

    def _network_facts(self) -> JsonObject:
        """Return what it takes to build the network again, and to prepare images for it.

        It is the metadata of model.safetensors, which `export.Classifier` reads.
        """
        return {
            "levelhead": __version__,
            "net": self.spec.resolve_net(),
            "head": self.method.head,
            "shortcut": self.spec.shortcut,
            "stem": self.spec.stem,
            "shape": self.data.shape,
            "method": self.spec.trained_as,
            "counts": self.data.counts.tolist(),
            "names": list(self.data.names),
            "mean": self.preprocess.mean,
            "std": self.preprocess.std,
        }


def check_finished(run: Run, spec: Spec, data: Data | None = None) -> None:
    """Check that a finished run is what a spec asks for, and whole, so that it can stand for a training.

    Official data are known by their name. Others are read, for their hash: a folder of images may
    have got another image since.

    Args:
        run: finished.
        spec: what is asked for.
        data: of the spec, if they are loaded already.

    Raises:
        LevelheadError: if the run has other settings, other data or damaged files.
    """
    official = spec.official and not _complete_facts(run)["spec"].get("unofficial")
    if official:
        check_same(run, spec)
    else:
        check_same(run, spec, data or spec.load())
    run.check_files()
    result = run.result
    for key in ("epoch", "seconds", "parameters"):
        if not isinstance(result.get(key), int | float):
            raise LevelheadError(
                f"{run.path / 'done.json'}: damaged, it has no {key}; move the folder away to train again"
            )


def check_same(run: Run, spec: Spec, data: Data | None = None) -> None:
    """Raise LevelheadError if a folder holds a run with other settings or, where data are given, on other data.

    The key of a spec is in the folder's name, but it is a short hash, and folders can be renamed: so
    the settings themselves are compared, and the message names the first that differs.

    Args:
        run: begun, at least.
        spec: what is asked for.
        data: of the spec; None to compare settings alone.
    """
    facts = _complete_facts(run)
    asked = spec.identity()
    stated = facts["identity"]  # by spec.json
    what_to_do = "choose another name for the new run, or move this folder away"
    for key in {**stated, **asked}:
        if stated.get(key) != asked.get(key):
            raise LevelheadError(
                f"{run.path}: a run with other settings is here: its {key} is {stated.get(key)!r}, not "
                f"{asked.get(key)!r}; {what_to_do}"
            )
    if data is not None and data.sha256 != facts["data_sha256"]:
        raise LevelheadError(
            f"{run.path}: a run with the same settings on other data is here (it had "
            f"{facts['sizes']}; now images or labels differ); {what_to_do}"
        )


def _complete_facts(run: Run) -> JsonObject:
    """Return what spec.json holds; raise LevelheadError if a part is missing that is needed here.

    Everything that is read from it later is checked at once, so that no KeyError of a folder which
    somebody edited, or which another version wrote, comes up in the middle of a training.
    """
    facts = run.facts
    threads = facts.get("threads")
    sound = {
        "spec": isinstance(facts.get("spec"), dict),
        "identity": isinstance(facts.get("identity"), dict),
        "sizes": isinstance(facts.get("sizes"), dict),
        "versions": isinstance(facts.get("versions", {}), dict),
        "data_sha256": isinstance(facts.get("data_sha256"), str),
        # `true` is an int to Python, but not a number of threads.
        "threads": type(threads) is int and 1 <= threads <= MOST_THREADS,
    }
    for key, holds in sound.items():
        if not holds:
            raise LevelheadError(
                f"{run.path / 'spec.json'}: damaged, it has no {key} that can be used; move the folder away to train "
                "again"
            )
    return facts
