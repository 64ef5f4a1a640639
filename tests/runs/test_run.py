import errno
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from levelhead.support import atomic
from levelhead_lab.runs import checkpoint
from levelhead_lab.runs import run as runs
from levelhead_lab.runs.lock import BusyError, lock_folder
from levelhead_lab.runs.packed import run_packed
from levelhead_lab.runs.run import run
from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.spec import Spec
from tools import layouts

REPOSITORY = Path(__file__).parents[2]


class Interrupted(Exception):
    pass


@pytest.fixture
def spec(tmp_path) -> Spec:
    """Four classes of grey 8x8 pictures, 3 epochs of 6 steps."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [80, 60, 40, 24])
    images = rng.integers(0, 200, (len(labels), 8, 8)).astype(np.uint8)
    images[np.arange(len(labels)), labels] += 55
    np.savez(tmp_path / "small.npz", images=images, labels=labels)
    recipe = tmp_path / "short.toml"
    recipe.write_text("epochs = 3\nbatch = 25\nlr = 0.1\npad = 1\n")
    return Spec(
        str(tmp_path / "small.npz"), method="wvn", net="digits", hold_out=0.2, recipe=str(recipe)
    )


def weights_of(there: Run) -> str:
    return hashlib.sha256((there.path / "model.safetensors").read_bytes()).hexdigest()


def interrupt(spec, folder, *, after: int) -> Run:
    def stop(record):
        if record["epoch"] == after + 1:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(spec, folder, report=stop, save_steps=2)
    return Run.of(spec, folder)


def test_runs_on_one_device_resume_from_their_checkpoints(spec, tmp_path):
    both = [replace(spec, seed=seed, engine="fast", dtype="float32") for seed in (0, 1)]
    whole = run_packed(both, tmp_path / "whole", device="cpu")

    def stop(i, record):
        if record["epoch"] == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        run_packed(both, tmp_path / "runs", device="cpu", report=stop, save_every=0)
    epochs = []
    there = run_packed(
        both, tmp_path / "runs", device="cpu", report=lambda _, row: epochs.append(row["epoch"])
    )
    assert sorted(epochs) == [2, 2, 3, 3]
    assert [weights_of(one) for one in there] == [weights_of(one) for one in whole]
    assert [[row["epoch"] for row in one.log] for one in there] == [[1, 2, 3]] * 2
    assert [row["loss"] for row in there[1].log] == [row["loss"] for row in whole[1].log]


def test_the_fast_engine_says_that_it_cannot_resume_inside_an_epoch(spec, tmp_path):
    there, said = interrupt(spec, tmp_path, after=0), []
    for path in checkpoint.checkpoints_in(there.path):
        if checkpoint.read(path).step == 0:
            path.unlink()
    assert checkpoint.checkpoints_in(there.path)
    run_packed([spec], tmp_path, device="cpu", say=said.append)
    assert ["inside an epoch" in line and "from the start" in line for line in said] == [True]
    assert [row["epoch"] for row in there.log] == [1, 2, 3]


def test_old_checkpoints_beyond_the_start_do_not_outlive_new_ones(spec, tmp_path):
    there = interrupt(spec, tmp_path / "runs", after=1)
    for path in checkpoint.checkpoints_in(there.path):
        if checkpoint.read(path).step == 0:
            path.unlink()
    old = {path.name for path in checkpoint.checkpoints_in(there.path)}

    def stop(i, record):
        if record["epoch"] == 2:
            raise Interrupted

    with pytest.raises(
        Interrupted
    ):  # from the start, as the fast engine cannot resume inside an epoch
        run_packed(
            [spec], tmp_path / "runs", device="cpu", report=stop, save_every=0, say=[].append
        )
    assert [checkpoint.read(path).epoch for path in checkpoint.checkpoints_in(there.path)] == [1]
    assert not old & {path.name for path in there.path.iterdir()}
    run(spec, tmp_path / "runs")
    assert [record["epoch"] for record in there.log] == [1, 2, 3]


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


@pytest.mark.slow
def test_the_plain_loop_resumes_what_the_fast_engine_left_in_a_second_stage(spec, tmp_path):
    both = replace(spec, method="crt", dtype="float64", epochs=18)
    whole = run(both, tmp_path / "whole", device="cpu")

    def stop(i, record):
        if record["epoch"] == 20:  # of 18 and 2 of the head alone
            raise Interrupted

    with pytest.raises(Interrupted):
        run_packed([both], tmp_path / "runs", device="cpu", report=stop, save_every=0)
    there = run(both, tmp_path / "runs", device="cpu")
    np.testing.assert_allclose(there.snapshot.head.weight, whole.snapshot.head.weight, atol=1e-5)


@pytest.mark.parametrize("text", ["", '{"epoch": 1, "seconds": 0.1}\n', "{not JSON}\n", "{}\n"])
def test_a_log_that_lost_epochs_is_an_error_and_nothing_is_removed(spec, tmp_path, text):
    there = interrupt(spec, tmp_path, after=2)
    before = checkpoint.checkpoints_in(there.path)
    (there.path / "log.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"log\.jsonl: damaged.* move the folder away"):
        run(spec, tmp_path)
    assert checkpoint.checkpoints_in(there.path) == before
    assert (there.path / "log.jsonl").read_text() == text


def test_a_run_writes_the_files_that_its_folder_promises(spec, tmp_path):
    there = run(spec, tmp_path / "runs")
    assert there.path.name == f"small-wvn-0-{spec.key}"
    facts, log, left = there.facts, there.log, there.snapshot
    assert facts["versions"]["torch"] == version("torch")
    assert facts["threads"] == torch.get_num_threads()
    assert facts["memory_format"] == "channels_last"
    assert facts["counts"] == left.counts.tolist() == [51, 38, 26, 15]
    assert [record["epoch"] for record in log] == [1, 2, 3]
    assert set(log[0]) >= {
        "loss",
        "train_error",
        "held-out_error",
        "test_error",
        "norms",
        "lr",
        "seconds",
    }
    np.testing.assert_allclose(log[-1]["norms"], 1, atol=1e-6)
    assert {split: len(x) for split, x in left.features.items()} == {
        "train": 130,
        "held-out": 33,
        "test": 41,
    }
    wrong = (left.logits("test").argmax(axis=1) != left.labels["test"]).mean()
    assert wrong == pytest.approx(there.result["test_error"])
    assert len(checkpoint.checkpoints_in(there.path)) == 2
    assert not list(there.path.glob("*.tmp"))


def test_a_finished_run_is_neither_trained_again_nor_changed(spec, tmp_path, monkeypatch):
    there = run(spec, tmp_path / "runs")
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in there.path.iterdir()}
    monkeypatch.setattr(runs, "fit", lambda *_, **__: pytest.fail("trained again"))
    assert run(spec, tmp_path / "runs") == there
    assert (
        run(replace(spec, method="wvn+rs"), tmp_path / "runs") == there
    )  # RS comes after training
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in there.path.iterdir()} == before


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupted_run_ends_as_if_nothing_had_happened(spec, tmp_path, after):
    whole = run(spec, tmp_path / "whole")
    there = interrupt(spec, tmp_path / "parts", after=after)
    with pytest.raises(
        ValueError, match="not finished; run its `levelhead train` command again to resume it"
    ):
        assert there.snapshot
    parts = run(spec, tmp_path / "parts")
    assert weights_of(parts) == weights_of(whole)
    assert [r["epoch"] for r in parts.log] == [1, 2, 3]
    assert [r["loss"] for r in parts.log] == [r["loss"] for r in whole.log]


def test_threads_of_the_first_part_are_those_of_the_second(spec, tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        interrupt(spec, tmp_path, after=1)
        torch.set_num_threads(2)
        run(spec, tmp_path)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_kill_9_at_random_moments_changes_no_bit():
    command = [
        sys.executable,
        "-m",
        "bench.trust.killed_trainings",
        "--kills",
        "5",
        "--epochs",
        "3",
        "--seed",
        "1",
    ]
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=quiet, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] >= 5
    assert found["same_sha256"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


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
    run(SPEC, FOLDER, device="cpu")
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_of_two_processes_the_one_that_writes_removes_no_checkpoint_that_the_other_still_reads(
    spec, tmp_path, in_two_processes
):
    there = interrupt(spec, tmp_path / "runs", after=2)
    flip(checkpoint.checkpoints_in(there.path)[0])
    script = TORCHRUN.replace("SPEC", repr(spec)).replace("FOLDER", repr(str(tmp_path / "runs")))
    (tmp_path / "one.py").write_text(script)
    in_two_processes(tmp_path / "one.py")
    assert there.finished
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


def test_a_run_with_other_settings_or_data_in_the_same_folder_is_refused(spec, tmp_path):
    there = interrupt(spec, tmp_path / "runs", after=1)
    facts = json.loads((there.path / "spec.json").read_text())
    facts["identity"]["seed"] = 7
    (there.path / "spec.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="a run with other settings is here: its seed is 7, not 0"):
        run(spec, tmp_path / "runs")
    facts["identity"]["seed"] = 0
    (there.path / "spec.json").write_text(json.dumps(facts))
    images = np.load(spec.data)["images"]
    np.savez(spec.data, images=255 - images, labels=np.load(spec.data)["labels"])
    with pytest.raises(ValueError, match="same settings on other data"):
        run(spec, tmp_path / "runs")


def test_only_one_process_trains_a_run(spec, tmp_path):
    busy = pytest.raises(BusyError, match="another process is training this run")
    with lock_folder(Run.of(spec, tmp_path).path), busy:
        run(spec, tmp_path)
    assert run(spec, tmp_path).finished


def test_identity_is_what_decides_the_numbers(spec, tmp_path):
    assert replace(spec, method="wvn+rs").key == spec.key
    assert replace(spec, root="/elsewhere", skip_bad=True).key == spec.key
    for change in (
        {"seed": 1},
        {"method": "baseline"},
        {"hold_out": 0.1},
        {"epochs": 2},
        {"net": "resnet32"},
    ):
        assert replace(spec, **change).key != spec.key
    before = spec.key
    (tmp_path / "short.toml").write_text("epochs = 3\nbatch = 25\nlr = 0.2\npad = 1\n")
    assert spec.key != before


def test_a_number_is_one_identity_however_it_is_written(spec, tmp_path):
    tail = replace(spec, profile="long-tail", ratio=10, hold_out=0)
    assert tail.key == replace(tail, ratio=10.0, hold_out=0.0).key
    own = replace(spec, counts=(40, 30, 20, 10))
    assert own.key == replace(own, counts=(40.0, 30.0, 20.0, 10.0)).key
    assert replace(own, counts=(("a", 40),)).key == replace(own, counts=(("a", 40.0),)).key
    keys = set()
    for lr, mean in ((1, [0]), (1.0, [0.0])):
        (tmp_path / "short.toml").write_text(
            f"epochs = 3\nbatch = 25\nlr = {lr}\nmean = {mean}\nstd = [0.5]\n"
        )
        keys.add(spec.key)
    assert len(keys) == 1


def test_a_method_of_ones_own_is_part_of_the_identity(spec, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from dataclasses import replace\nfrom levelhead_lab.methods import METHODS\n"
        "METHOD = replace(METHODS['wvn'], name='mine')\n"
    )
    own = replace(spec, method=f"{mine}:METHOD")
    there = run(own, tmp_path / "runs")
    np.testing.assert_array_equal(
        there.snapshot.head.weight, run(spec, tmp_path / "runs").snapshot.head.weight
    )
    assert there.path.name.startswith("small-mine-METHOD-0-")
    mine.write_text(mine.read_text() + "# changed\n")
    assert own.key not in there.path.name


def test_features_in_half_precision(spec, tmp_path):
    left = run(spec, tmp_path, half=True).snapshot
    assert left.features["test"].dtype == np.float16


def test_a_run_of_the_fast_engine_keeps_the_same_folder(spec, tmp_path):
    fast = replace(spec, engine="fast", dtype="float64")
    there, plain = (
        run(fast, tmp_path, device="cpu"),
        run(replace(spec, dtype="float64"), tmp_path, device="cpu"),
    )
    assert [r["epoch"] for r in there.log] == [1, 2, 3]
    np.testing.assert_allclose(
        [r["loss"] for r in there.log], [r["loss"] for r in plain.log], rtol=1e-9
    )
    np.testing.assert_allclose(
        there.snapshot.head.weight, plain.snapshot.head.weight, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profile": "long-tail", "ratio": 0.5}, "ratio of at least 1, got 0.5"),
        ({"ratio": 10.0}, "ratio: 10 needs the profile"),
        ({"seed": -1}, r"seed: expected a seed from 0 to 2\*\*64 - 1, got -1"),
        ({"epochs": 0}, "epochs: expected at least 1 epoch, got 0"),
        ({"method": "wnv"}, "unknown method 'wnv'; the methods are baseline, "),
        ({"net": "resnet33"}, "net: expected resnet32, .* or timm:NAME, got 'resnet33'"),
        ({"recipe": "kim2021"}, "recipe: expected kim2020, .* or a .toml file, got 'kim2021'"),
        ({"hold_out": 1.0}, "hold_out: expected a share from 0 to below 1, got 1.0"),
        ({"subset": "last"}, "subset: expected 'first', 'cao2019' or a seed"),
        ({"dtype": "bfloat16", "engine": "plain"}, "bfloat16 needs the fast engine"),
    ],
)
def test_bad_input_is_one_line(spec, tmp_path, change, message):
    with pytest.raises(ValueError, match=message) as error:
        run(
            replace(spec, **({"profile": "step"} | change if "subset" in change else change)),
            tmp_path / "runs",
        )
    assert "\n" not in str(error.value)


def test_an_image_folder_trains(tmp_path):
    folder = layouts.write_image_folder(tmp_path / "pets", {"cat": 12, "dog": 8}, size=12)
    spec = Spec(str(folder), size=8, hold_out=0.2, epochs=1, net="digits")
    assert run(spec, tmp_path / "runs").facts["names"] == ["cat", "dog"]


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


def test_a_run_begun_by_another_torch_says_so_when_it_is_resumed(spec, tmp_path):
    done, lines = run(spec, tmp_path), []
    (done.path / "done.json").unlink()
    facts = json.loads((done.path / "spec.json").read_text())
    facts["versions"] |= {"torch": "2.5.1"}
    (done.path / "spec.json").write_text(json.dumps(facts))
    run(spec, tmp_path, say=lines.append)
    versions = f"begun with torch 2.5.1, resumed with {version('torch')}"
    told = f"{done.path}: {versions}: the result may differ in its last bits"
    assert [line for line in lines if "torch" in line] == [told]


def test_auto_compiles_for_a_gpu_only_where_that_saves_time():
    gpu, short = torch.device("cuda"), Spec("cifar10", profile="long-tail", ratio=100, epochs=10)
    assert not runs.uses_fast_engine(
        short, 12_406, gpu
    )  # 27 s by the plain loop, of 137 with compiling
    assert runs.uses_fast_engine(replace(short, epochs=None), 12_406, gpu)
    assert runs.uses_fast_engine(
        replace(short, dtype="bfloat16"), 12_406, gpu
    )  # the plain loop has no bfloat16
    assert runs.uses_fast_engine(replace(short, engine="fast"), 12_406, gpu)
    assert not runs.uses_fast_engine(replace(short, engine="plain", epochs=None), 12_406, gpu)
    assert not runs.uses_fast_engine(replace(short, epochs=None), 12_406, torch.device("cpu"))
