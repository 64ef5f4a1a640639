"""Commands of levelhead in forked processes, and a folder of inputs for each of them.

A fork of this process has torch, onnx and levelhead in memory already, so a command takes milliseconds. It can be
killed, traced, forbidden to open sockets, or measured, without an effect on this process.
"""

import contextlib
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# Of a head of four classes.
COUNTS = [400, 100, 25, 4]
# Modules that are not imported beforehand: they need Triton, are for other people's trainers, which no command imports,
# or run the command.
WITHOUT = (
    "levelhead_lab.fast.kernels",
    "levelhead_lab.fast.conv_norm",
    "levelhead_lab.lab.augment_kernel",
)
WITHOUT += ("levelhead.hosts", "levelhead.__main__")
# When and how long: on a page; in the log, the record and the snapshot of a run; the record's digest of that snapshot.
TIMES = re.compile(
    rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    rb'|seconds\\?": [0-9.e-]+'
    rb'|"snapshot.safetensors": "[0-9a-f]{64}"'
)


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    `status` is the exit status, minus the signal that ended it, or None if it was stopped at the time limit. `peak` is
    the largest memory in use, in KiB.
    """

    status: int | None
    out: str
    err: str
    peak: int
    seconds: float

    @property
    def refusal(self) -> str:
        """What is wrong with this as the end of a command that got bad input: empty if nothing is."""
        if self.status is None:
            return "did not end"
        if self.status != 2:
            return f"status {self.status}: {self.err.strip()[-200:]}"
        if self.out or not self.err.startswith("levelhead: ") or self.err.count("\n") != 1:
            return f"not one line: {self.out[:60]!r} {self.err[:200]!r}"
        return ""


def preload() -> None:
    """Import what commands import, once, and let torch use one thread, so that forks are safe and quick."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
    for name in (
        "torch._dynamo",
        "onnx.reference",
        "onnxruntime",
        "sklearn.datasets",
        "pyarrow.parquet",
        "PIL.Image",
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for package in ("levelhead", "levelhead_lab"):
        for module in pkgutil.walk_packages(
            importlib.import_module(package).__path__, f"{package}."
        ):
            if not module.name.startswith(WITHOUT):
                with contextlib.suppress(ImportError):  # an extra that is not installed
                    importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the memory that it shares with this process


def run(
    words: list[str],
    folder: Path,
    *,
    prepare: Callable[[], object] | None = None,
    trace: list[str] | None = None,
    limit: float = 60.0,
    kill_after: float | None = None,
) -> Ended:
    """Run `levelhead WORDS` in a folder and wait for its end.

    Args:
        words: after `levelhead`.
        folder: to run in.
        prepare: called in the new process first.
        trace: options of strace, which is attached before the command begins.
        limit: seconds after which the command and its children are killed.
        kill_after: seconds after which they are killed on purpose.
    """
    with tempfile.TemporaryDirectory() as place:
        for name in ("out", "err"):
            Path(place, name).touch()  # a command may be killed before it can
        # It waits for a byte, so that a tracer can be attached before its first call.
        go, pid = _fork(words, folder, Path(place), prepare)
        began = time.monotonic()
        tracer = None
        if trace is not None:
            command = ["strace", "-f", "-p", str(pid), *trace]
            tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            assert tracer.stderr is not None
            tracer.stderr.readline()  # attached
        os.write(go, b"x")
        os.close(go)
        status, peak = _wait(pid, limit, kill_after)
        seconds = time.monotonic() - began
        if tracer is not None:
            tracer.communicate()
        texts = [Path(place, name).read_text(errors="replace") for name in ("out", "err")]
        return Ended(status, *texts, peak, seconds)


def _fork(
    words: list[str], folder: Path, place: Path, prepare: Callable[[], object] | None
) -> tuple[int, int]:
    """Fork a process that waits for a byte; return where to write it, and the process."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(read)
        return write, pid
    code = 70
    try:
        os.close(write)
        # A group of its own: it is ended with its children, and with nobody else.
        os.setsid()
        os.chdir(folder)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(place / name, os.O_CREAT | os.O_WRONLY), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        sys.argv = ["levelhead", *words]
        from levelhead.cli import main

        os.read(read, 1)
        if prepare is not None:
            prepare()
        main()
    except SystemExit as end:
        code = 1  # a text, as of `sys.exit("why")`
        if end.code is None:
            code = 0
        elif isinstance(end.code, int):
            code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _wait(pid: int, limit: float, kill_after: float | None) -> tuple[int | None, int]:
    """Wait for a process; return its status, or None if it had to be stopped, and the largest memory
    it used, in KiB.

    Args:
        pid: of the process, which leads a group.
        limit: seconds after which it is stopped.
        kill_after: seconds after which it is killed on purpose; its status then is minus the signal, as for any other.
    """
    began = time.monotonic()
    killed = False  # at the limit
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        passed = time.monotonic() - began
        if done:
            with contextlib.suppress(ProcessLookupError):
                # Workers that it left, which would end by themselves a moment later.
                os.killpg(pid, signal.SIGKILL)
            if killed:
                return None, used.ru_maxrss
            return os.waitstatus_to_exitcode(status), used.ru_maxrss
        if kill_after is not None and passed >= kill_after:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            kill_after = None
        elif passed > limit and not killed:
            killed = True
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.0005 if passed < 0.5 else 0.005)


def digests(folder: Path) -> dict[str, str]:
    """Return {relative path: sha256} of the files below a folder: links by their targets, all without their times."""
    digest_of = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or path.is_file():
            if path.is_symlink():
                content = os.readlink(path).encode()
            else:
                content = path.read_bytes()
            timeless = _timeless(content, path.suffix)
            digest_of[str(path.relative_to(folder))] = hashlib.sha256(timeless).hexdigest()
    return digest_of


def _timeless(content: bytes, suffix: str) -> bytes:
    """Return the content of a file without times and durations, in which two runs may differ.

    The header of a safetensors file is as long as its text, and so as the digits of a duration: its
    length is left out too.
    """
    if suffix == ".safetensors":
        end = 8 + int.from_bytes(content[:8], "little")  # of the header
        if b"seconds" in content[:end]:
            return TIMES.sub(b"", content[8:end].rstrip()) + content[end:]
        return content
    if suffix in (".html", ".json", ".jsonl"):
        return TIMES.sub(b"", content)
    return content


@dataclass(frozen=True)
class Command:
    """A command that writes to the folder `out`, from inputs next to it.

    `again` are the words that a user adds to write over what is there. `keeps_parts` says that the command resumes what
    it had begun, so that an interrupted one leaves parts on purpose. `progress` matches the lines that it writes to
    stderr as it goes, whatever becomes of it.
    """

    words: list[str]
    again: tuple[str, ...] = ("--force",)
    keeps_parts: bool = False
    progress: str = "(?!)"  # none

    def words_now(self, out: Path) -> list[str]:
        """Return what a user types: with `again`, if something is in the folder already."""
        if any(out.iterdir()):
            return [*self.words, *self.again]
        return self.words


def _rescale(model: str, out: str) -> Command:
    """Return the command that adjusts a model by RS."""
    rule = ["--rule", "rescale", "--strength", "0.5", "--counts", "c.json"]
    return Command(["adjust", model, *rule, "-o", f"out/{out}"])


TUNE = ["--logits", "L.npy", "--labels", "Y.npy", "--counts", "c.json"]
# Every command that writes, with inputs that `make_inputs` writes.
COMMANDS = {
    "rescale .safetensors": _rescale("m.safetensors", "o.safetensors"),
    "rescale .pt": _rescale("m.pt", "o.pt"),
    "rescale .onnx": _rescale("m.onnx", "o.onnx"),
    "rescale shards": _rescale("sharded", "shards"),
    "adjust": Command(
        ["adjust", "m.safetensors", "--tuned", "tuned.json", "-o", "out/o.safetensors"]
    ),
    "adjust .onnx": Command(["adjust", "m.onnx", "--tuned", "tuned.json", "-o", "out/o.onnx"]),
    "undo": Command(["undo", "adjusted.safetensors", "-o", "out/b.safetensors"]),
    "undo shards": Command(["undo", "adjusted-shards", "-o", "out/shards"]),
    "tune": Command(["tune", *TUNE, "--rule", "shift", "-o", "out/tuned.json"]),
    # A page shows its command, so that with --force it would be another page.
    "report": Command(
        ["report", "L.npy", *TUNE[2:], "--rule", "shift", "-o", "out/page.html", "--force"],
        again=(),
    ),
    "train": Command(
        [
            "train",
            "--data",
            "digits",
            "--ratio",
            "50",
            "--hold-out",
            "0.2",
            "--epochs",
            "2",
            "--threads",
            "1",
        ]
        + ["--rule", "rescale", "--strength", "0.3", "--runs", "out"],
        again=(),
        keeps_parts=True,
    ),
    "sweep": Command(
        ["sweep", "grid.toml", "--runs", "out", "--workers", "1"],
        again=(),
        keeps_parts=True,
        progress=r"^digits-lt50-\w+-0: .*\n",  # how the run ended, and of one that failed why
    ),
}


def make_inputs(folder: Path) -> None:
    """Write the inputs of every command to a folder; numbers come from fixed seeds."""
    import torch
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import save_file

    from levelhead.core.head import Head
    from levelhead.core.rules import Rescale, Shift
    from levelhead.core.tuned import Tuned
    from levelhead.files.model import adjust_file

    rng = np.random.default_rng(0)
    weight = rng.normal(size=(4, 8)).astype(np.float32)
    bias = rng.normal(size=4).astype(np.float32)
    body = rng.normal(size=(64, 256)).astype(np.float32)
    tensors = {"body.weight": body, "fc.weight": weight, "fc.bias": bias}
    save_file(tensors, folder / "m.safetensors")
    momentum = {"state": {0: {"momentum_buffer": torch.ones(4, 8)}}}
    torch.save(
        {"model": {name: torch.tensor(t) for name, t in tensors.items()}, "optimizer": momentum},
        folder / "m.pt",
    )
    shards = folder / "sharded"
    shards.mkdir()
    where = {"a.safetensors": ["body.weight"], "b.safetensors": ["fc.weight", "fc.bias"]}
    for name, keys in where.items():
        save_file({key: tensors[key] for key in keys}, shards / name)
    index = {
        "metadata": {},
        "weight_map": {key: name for name, keys in where.items() for key in keys},
    }
    (shards / "model.safetensors.index.json").write_text(json.dumps(index))
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", size])
        for n, size in (("x", 8), ("y", 4))
    ]
    gemm = helper.make_node("Gemm", ["x", "W", "b"], ["y"], transB=1)
    constants = [numpy_helper.from_array(weight, "W"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph([gemm], "g", ends[:1], ends[1:], constants)
    onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (folder / "m.onnx").write_bytes(onnx_model.SerializeToString())
    (folder / "c.json").write_text(json.dumps(COUNTS))
    labels = rng.integers(4, size=400)
    np.save(
        folder / "L.npy",
        (2 + rng.normal(size=(400, 4)) + 2 * np.eye(4)[labels]) * [1.0, 0.8, 0.6, 0.4],
    )
    np.save(folder / "Y.npy", labels)
    shift = Shift(0.5).on_head(Head(np.eye(4)), np.array(COUNTS))
    tuned = Tuned("shift", shift, None, 0.5, counts=tuple(map(float, COUNTS)))
    tuned.save(folder / "tuned.json")
    (folder / "grid.toml").write_text(
        'data = "digits"\nmethod = ["baseline", "wvn"]\nratio = 50\nepochs = 1\nhold_out = 0.2\n'
    )
    rule = Rescale(0.5)
    adjust_file(folder / "m.safetensors", folder / "adjusted.safetensors", rule, COUNTS)
    adjust_file(shards, folder / "adjusted-shards", rule, COUNTS)


class Workspace:
    """A folder with all inputs and an empty folder `out`; `check_inputs` says which inputs have changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        make_inputs(folder)
        self.inputs = digests(folder)
        self.empty()

    def empty(self) -> None:
        """Remove what commands have written."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()

    def check_inputs(self) -> list[str]:
        """Return a line for each input that is not as it was written."""
        now = {
            name: digest
            for name, digest in digests(self.folder).items()
            if not name.startswith("out/")
        }
        names = sorted(now.keys() | self.inputs.keys())
        return [f"input {name} changed" for name in names if now.get(name) != self.inputs.get(name)]

    def complete(
        self, command: Command, *, prepare: Callable[[], object] | None = None
    ) -> tuple[dict[str, str], float]:
        """Return the digests of what an undisturbed command writes, and its seconds."""
        self.empty()
        ended = run(command.words, self.folder, prepare=prepare, limit=600)
        if ended.status != 0:
            raise SystemExit(f"{command.words}: {ended}")
        return digests(self.out), ended.seconds
