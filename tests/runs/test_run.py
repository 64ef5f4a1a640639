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

from levelhead_lab.runs import checkpoint
from levelhead_lab.runs import run as runs
from levelhead_lab.runs.lock import BusyError, lock_folder
from levelhead_lab.runs.packed import run_packed
from levelhead_lab.runs.run import run
from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.spec import Spec
from tools import layouts

from .interrupted import Interrupted, interrupt, weights_of

REPOSITORY = Path(__file__).parents[2]


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
    assert [weights_of(trained) for trained in there] == [weights_of(trained) for trained in whole]
    assert [[row["epoch"] for row in trained.log] for trained in there] == [[1, 2, 3]] * 2
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
    summary = json.loads(done.stdout)
    assert summary["kills"] >= 5
    assert summary["same_sha256"]


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
    with_counts = replace(spec, counts=(40, 30, 20, 10))
    assert with_counts.key == replace(with_counts, counts=(40.0, 30.0, 20.0, 10.0)).key
    assert (
        replace(with_counts, counts=(("a", 40),)).key
        == replace(with_counts, counts=(("a", 40.0),)).key
    )
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
    by_file = replace(spec, method=f"{mine}:METHOD")
    there = run(by_file, tmp_path / "runs")
    np.testing.assert_array_equal(
        there.snapshot.head.weight, run(spec, tmp_path / "runs").snapshot.head.weight
    )
    assert there.path.name.startswith("small-mine-METHOD-0-")
    mine.write_text(mine.read_text() + "# changed\n")
    assert by_file.key not in there.path.name


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
