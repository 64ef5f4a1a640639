"""Runs whose files were damaged, lost or could not be written: noticed, told, and nothing is lost that was whole."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from levelhead.support import atomic
from levelhead_lab.runs import checkpoint
from levelhead_lab.runs.packed import run_packed
from levelhead_lab.runs.run import run
from levelhead_lab.runs.run_folder import Run

from .interrupted import interrupt, weights_of


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("text", ["", '{"epoch": 1, "seconds": 0.1}\n', "{not JSON}\n", "{}\n"])
def test_a_log_that_lost_epochs_is_an_error_and_nothing_is_removed(spec, tmp_path, text):
    there = interrupt(spec, tmp_path, after=2)
    before = checkpoint.checkpoints_in(there.path)
    (there.path / "log.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"log\.jsonl: damaged.* move the folder away"):
        run(spec, tmp_path)
    assert checkpoint.checkpoints_in(there.path) == before
    assert (there.path / "log.jsonl").read_text() == text


def test_a_flipped_byte_is_noticed_and_the_checkpoint_before_is_used(spec, tmp_path):
    whole, said = run(spec, tmp_path / "whole"), []
    there = interrupt(spec, tmp_path / "parts", after=2)
    newest, before = checkpoint.checkpoints_in(there.path)
    flip(newest)
    parts = run(spec, tmp_path / "parts", say=said.append)
    assert len(said) == 1
    assert newest.name in said[0]
    assert "damaged" in said[0]
    assert weights_of(parts) == weights_of(whole)
    assert before.name != newest.name


def test_the_fast_engine_trains_again_if_only_a_checkpoint_inside_an_epoch_is_intact(
    spec, tmp_path
):
    there, said = interrupt(spec, tmp_path, after=1), []
    inside = checkpoint.latest(there.path)[0]
    assert inside is not None
    for path in checkpoint.checkpoints_in(there.path):
        path.unlink()
    checkpoint.write(there.path, replace(inside, step=4))
    flip(checkpoint.write(there.path, replace(inside, step=0)))
    run_packed([spec], tmp_path, device="cpu", say=said.append)
    assert len(said) == 2
    assert "damaged" in said[0]
    assert "from the start" in said[1]
    assert there.finished


TORCHRUN = """
import os, sys, time
import torch.distributed as dist
from levelhead_lab.runs import checkpoint
from levelhead_lab.runs.run import run
from levelhead_lab.runs.spec import Spec

def slowly(path, read=checkpoint.read):
    time.sleep(0.5 * dist.get_rank())
    return read(path)

if __name__ == "__main__":
    os.environ["WORLD_SIZE"], checkpoint.read = "2", slowly
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2)
    with open(f"{FOLDER}-{sys.argv[1]}.txt", "w") as said:
        run(SPEC, FOLDER, device="cpu", say=said.write)
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_of_two_processes_the_one_that_writes_waits_for_the_other_and_speaks_for_both(
    spec, tmp_path, in_two_processes
):
    there = interrupt(spec, tmp_path / "runs", after=2)
    flip(checkpoint.checkpoints_in(there.path)[0])
    script = TORCHRUN.replace("SPEC", repr(spec)).replace("FOLDER", repr(str(tmp_path / "runs")))
    (tmp_path / "one.py").write_text(script)
    in_two_processes(tmp_path / "one.py")  # no checkpoint is removed that the other still reads
    assert there.finished
    said = [(tmp_path / f"runs-{rank}.txt").read_text() for rank in (0, 1)]
    assert (said[0].count("damaged"), said[1]) == (1, "")
    assert [record["epoch"] for record in there.log] == [1, 2, 3]


def test_two_damaged_checkpoints_are_an_error_and_are_kept(spec, tmp_path):
    there = interrupt(spec, tmp_path, after=1)
    for path in checkpoint.checkpoints_in(there.path):
        flip(path)
    with pytest.raises(ValueError, match=r"every checkpoint is damaged .*move the folder away"):
        run(spec, tmp_path)
    assert len(checkpoint.checkpoints_in(there.path)) == 2


def test_a_full_disk_is_reported_and_loses_nothing(spec, tmp_path, monkeypatch):
    whole = run(spec, tmp_path / "whole")
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 9:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            OSError, match=r"a checkpoint, the disk is full; the last good checkpoint, .* is kept"
        ):
            run(spec, tmp_path / "parts", save_steps=1)
    there = Run.of(spec, tmp_path / "parts")
    assert len(checkpoint.checkpoints_in(there.path)) == 2
    assert checkpoint.latest(there.path)[0] is not None
    assert not list(there.path.glob("*.tmp"))
    assert weights_of(run(spec, tmp_path / "parts")) == weights_of(whole)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            "checkpoint-000002",
            r"a checkpoint, the disk is full; the last good checkpoint, checkpoint-000001-.* is kept",
        ),
        ("model", "trained, but the result cannot be written"),
        ("snapshot", "trained, but the result cannot be written"),
    ],
)
def test_a_disk_full_for_one_of_several_runs_ends_that_one_alone(
    spec, tmp_path, monkeypatch, file, message
):
    both = [replace(spec, seed=seed, engine="fast") for seed in (0, 1)]
    expected = [weights_of(one) for one in run_packed(both, tmp_path / "whole", device="cpu")]
    there, write = [Run.of(one, tmp_path / "parts") for one in both], atomic.write

    def full(path, content):
        if path.parent == there[0].path and path.name.startswith(file):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write", full)
        with pytest.raises(
            OSError, match=rf"{there[0].path}: .*{message}.* same command .*1 of the 2 runs"
        ):
            run_packed(both, tmp_path / "parts", device="cpu", save_every=0)
    assert [one.finished for one in there] == [False, True]
    epochs = []
    run_packed(
        both, tmp_path / "parts", device="cpu", report=lambda _, row: epochs.append(row["epoch"])
    )
    assert epochs == ([2, 3] if file.startswith("checkpoint") else [])
    assert [weights_of(one) for one in there] == expected


@pytest.mark.parametrize("name", ["model.safetensors", "snapshot.safetensors"])
def test_a_finished_run_with_a_flipped_bit_is_not_trusted(spec, tmp_path, name):
    done = run(spec, tmp_path)
    assert run(spec, tmp_path) == done
    content = bytearray((done.path / name).read_bytes())
    content[-5] ^= 1
    (done.path / name).write_bytes(content)
    told = rf"{name}: not the file that the run wrote: its sha256 is not the one in done.json; move the folder away"
    with pytest.raises(ValueError, match=told):
        run(spec, tmp_path)
    if name.startswith("snapshot"):
        with pytest.raises(ValueError, match=told):
            _ = done.snapshot


def test_a_finished_run_of_before_there_were_sums_is_still_read(spec, tmp_path):
    done = run(spec, tmp_path)
    result = json.loads((done.path / "done.json").read_text())
    assert set(result.pop("sha256")) == {"model.safetensors", "snapshot.safetensors"}
    (done.path / "done.json").write_text(json.dumps(result))
    assert run(spec, tmp_path).snapshot.head.classes == 4
