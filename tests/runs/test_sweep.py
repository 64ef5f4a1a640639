"""Lists of specs, and grids of them in a file, trained once each."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from levelhead_lab.runs.run import run
from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.spec import Spec
from levelhead_lab.runs.sweep import read_grid, sweep
from tools import layouts


@pytest.fixture
def specs(tmp_path) -> list[Spec]:
    """Two trainings of a second each, and a third name for the first of them."""
    layouts.write_small_npz(tmp_path, epochs=4)
    base = Spec(str(tmp_path / "small.npz"), net="digits", recipe=str(tmp_path / "short.toml"))
    return [base, replace(base, method="wvn"), replace(base, method="baseline+rs")]


@pytest.mark.slow
def test_each_spec_is_trained_once_and_a_failure_does_not_stop_the_others(specs, tmp_path):
    bad = replace(specs[0], data=str(tmp_path / "gone.npz"))
    told = []
    outcomes = sweep(
        [*specs, bad], tmp_path / "runs", report=lambda spec, what: told.append((spec.method, what))
    )
    assert [outcome.error is None for outcome in outcomes] == [True, True, True, False]
    assert "no such file or folder" in outcomes[3].error
    assert outcomes[0].run == outcomes[2].run
    assert sorted(told) == [("baseline", "failed"), ("baseline", "finished"), ("wvn", "finished")]
    assert len(list((tmp_path / "runs").glob("*/done.json"))) == 2
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*")}
    sweep(specs, tmp_path / "runs")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*")} == before


def test_packed_on_one_device(specs, tmp_path):
    seeds = [replace(specs[0], seed=seed, dtype="float64") for seed in range(3)]
    outcomes = sweep(
        seeds, tmp_path / "packed", executor="packed", workers=2, options={"device": "cpu"}
    )
    plain = [run(spec, tmp_path / "plain") for spec in seeds]
    for ours, theirs in zip(outcomes, plain, strict=True):
        np.testing.assert_allclose(
            ours.run.snapshot.head.weight, theirs.snapshot.head.weight, rtol=0, atol=1e-12
        )


def test_nothing_is_trained_without_a_gpu_to_pack_the_runs_on(specs, tmp_path):
    outcomes = sweep(specs[:1], tmp_path / "runs", executor="packed")
    assert (outcomes[0].error or "").startswith(
        "packed networks are trained on a CUDA GPU, and torch does not see one"
    )
    assert not (tmp_path / "runs").exists()


def test_packed_runs_next_to_one_that_diverges_are_trained(specs, tmp_path):
    (tmp_path / "wild.toml").write_text("epochs = 4\nbatch = 20\nlr = 1e30\n")
    told = []
    outcomes = sweep(
        [specs[0], replace(specs[1], recipe=str(tmp_path / "wild.toml"))],
        tmp_path / "runs",
        executor="packed",
        report=lambda spec, what: told.append((spec.method, what)),
        options={"device": "cpu"},
    )
    assert told == [("baseline", "finished"), ("wvn", "failed")]
    assert outcomes[0].error is None
    assert "diverged" in (outcomes[1].error or "")


def kill_whoever_holds(lock: Path) -> None:
    """kill -9 the process that holds the run's lock, as soon as it has logged an epoch."""
    while not (
        lock.with_name("log.jsonl").is_file() and lock.with_name("log.jsonl").stat().st_size
    ):
        time.sleep(0.02)
    for held in Path("/proc/locks").read_text().splitlines():
        _, kind, _, _, process, file, *_ = held.split()
        if kind == "FLOCK" and file.endswith(f":{lock.stat().st_ino}"):
            os.kill(int(process), signal.SIGKILL)


def lose_a_worker(specs, tmp_path, executor):
    slow = replace(specs[0], epochs=20)
    lock = Run.of(slow, tmp_path / "runs").path / "lock"
    killer = Thread(target=kill_whoever_holds, args=(lock,), daemon=True)
    killer.start()
    told = []
    outcomes = sweep(
        [slow],
        tmp_path / "runs",
        executor=executor,
        workers=2,
        report=lambda _, what: told.append(what),
    )
    assert outcomes[0].error is None
    assert told == ["lost", "finished"]
    assert [record["epoch"] for record in outcomes[0].run.log] == list(range(1, 21))


@pytest.mark.slow
def test_the_spec_of_a_lost_worker_is_resumed(specs, tmp_path):
    lose_a_worker(specs, tmp_path, "local")


@pytest.mark.slow
def test_a_worker_lost_every_time_is_a_failure(specs, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    spec = replace(specs[0], method=f"{broken}:METHOD")
    outcomes = sweep([spec], tmp_path / "runs", workers=1, tries=2)
    assert outcomes[0].error == "its worker was lost 2 times"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_on_a_real_ray_with_a_worker_killed(specs, tmp_path, start_ray):
    ray = pytest.importorskip("ray")
    quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    start_ray(lambda: ray.init("local", num_cpus=2, **quiet))
    try:
        lose_a_worker(specs, tmp_path, "ray")
    finally:
        ray.shutdown()


def test_bad_input(specs, tmp_path):
    with pytest.raises(
        ValueError, match="executor: expected 'local', 'packed' or 'ray', got 'cloud'"
    ):
        sweep(specs, tmp_path, executor="cloud")
    with pytest.raises(ValueError, match="workers: expected at least 1 worker, got 0"):
        sweep(specs, tmp_path, workers=0)


# A grid in a file


@pytest.fixture
def grid(tmp_path, monkeypatch):
    """Two methods and two seeds, a second each, on a hundred small images."""
    monkeypatch.chdir(tmp_path)
    layouts.write_small_npz(tmp_path, epochs=2)
    (tmp_path / "grid.toml").write_text(
        'data = "small.npz"\nnet = "digits"\nrecipe = "short.toml"\nhold_out = 0.2\n'
        'method = ["baseline", "wvn"]\nseed = [0, 1]\n'
    )
    return tmp_path / "grid.toml"


def test_a_list_stands_for_each_of_its_values(grid):
    assert [(s.method, s.seed) for s in read_grid(grid)] == [
        ("baseline", 0),
        ("baseline", 1),
        ("wvn", 0),
        ("wvn", 1),
    ]
    grid.write_text('data = "digits"\nratio = [10, 50]\n')
    assert [(s.profile, s.ratio) for s in read_grid(grid)] == [("long-tail", 10), ("long-tail", 50)]


@pytest.mark.slow
def test_every_run_is_trained_once_and_judged(grid, levelhead):
    grid.write_text(
        grid.read_text().replace('["baseline", "wvn"]', '"wvn"')
    )  # each run is a process of its own
    status, out, err = levelhead("sweep", grid, "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert [(row["method"], row["seed"]) for row in rows] == [("wvn", 0), ("wvn", 1)]
    assert all(0 <= row["adjusted_error"] <= 1 for row in rows)
    assert err.count("finished") == 2
    status, out, err = levelhead("sweep", grid)
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("data = ", "not TOML"),
        ('data = "digits"\ncolour = 1\n', "unknown key 'colour'; the keys are data, root, method"),
        ("seed = 1\n", "expected data = ..."),
        pytest.param(
            'data = "gone.npz"\n',
            "none of the 1 runs could be trained; the first: ",
            marks=pytest.mark.slow,
        ),
        ('data = "digits"\nseed = -1\n', "seed: expected a seed from 0 to 2**64 - 1, got -1"),
    ],
)
def test_a_bad_grid_is_one_line_at_the_end(grid, levelhead, text, says):
    grid.write_text(text)
    status, out, err = levelhead("sweep", grid)
    assert (status, out) == (2, "")
    assert says in err.splitlines()[-1]
    assert not list(grid.parent.glob("runs/*/done.json"))


@pytest.mark.slow
def test_runs_that_cannot_be_trained_are_named_after_those_that_are(grid, levelhead):
    grid.write_text(
        'data = ["gone.npz", "small.npz", "lost.npz"]\nnet = "digits"\nrecipe = "short.toml"\nhold_out = 0.2\n'
    )
    status, out, err = levelhead("sweep", grid)
    assert status == 2
    assert len(out.splitlines()) == 2
    assert err.splitlines()[-1].startswith(
        "levelhead: 2 runs could not be trained: gone-baseline-0"
    )
