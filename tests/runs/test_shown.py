"""What `levelhead train` shows: the counts first, then batches and epochs as they are done."""

from dataclasses import replace

import pytest

from levelhead_lab.runs.packed import run_packed
from levelhead_lab.runs.run import run
from levelhead_lab.runs.spec import Spec
from levelhead_lab.runs.train_command import data_text
from tools import layouts


@pytest.fixture
def spec(tmp_path):
    layouts.write_small_npz(tmp_path, epochs=2)
    return Spec(
        str(tmp_path / "small.npz"),
        method="baseline",
        net="digits",
        recipe=str(tmp_path / "short.toml"),
        hold_out=0.1,
    )


def test_every_batch_of_every_epoch_is_told_after_the_data(spec, tmp_path):
    seen = []
    run(
        spec,
        tmp_path / "runs",
        device="cpu",
        on_data=lambda data: seen.append(data.counts.tolist()),
        on_batch=lambda record: seen.append(
            (record["epoch"], record["of"], record["batch"], record["batches"])
        ),
        report=lambda record: seen.append(record["epoch"]),
    )
    counts = seen[0]
    batches = -(-sum(counts) // 20)
    epochs = [[*((epoch, 2, i + 1, batches) for i in range(batches)), epoch] for epoch in (1, 2)]
    assert seen[1:] == [told for epoch in epochs for told in epoch]


@pytest.mark.parametrize("methods", [("baseline",), ("baseline", "wvn")])
def test_fast_engine_tells_batches_between_the_epochs_they_are_of(
    spec, tmp_path, monkeypatch, methods
):
    monkeypatch.setattr("levelhead_lab.fast.pack.STEPS_PER_GRAPH", 2)
    specs = [replace(spec, method=method, engine="fast", dtype="float32") for method in methods]
    seen = [[] for _ in specs]
    run_packed(
        specs,
        tmp_path / "runs",
        device="cpu",
        on_batch=lambda i, record: seen[i].append(
            (record["epoch"], record["of"], record["batch"], record["batches"])
        ),
        report=lambda i, record: seen[i].append(record["epoch"]),
    )
    batches = -(-sum(spec.load().counts) // 20)
    told = [*range(2, batches, 2), batches]
    epochs = [[*((epoch, 2, done, batches) for done in told), epoch] for epoch in (1, 2)]
    assert seen == [[one for epoch in epochs for one in epoch]] * len(specs)


def test_run_with_the_fast_engine_tells_the_same(spec, tmp_path):
    seen = []
    fast = replace(spec, engine="fast", dtype="float32")
    run(fast, tmp_path / "runs", device="cpu", on_batch=lambda record: seen.append(record["epoch"]))
    assert sorted(set(seen)) == [1, 2]


def test_counts_are_said_in_one_line_per_class_or_few(spec):
    text = data_text(spec.load())
    assert "3 classes" in text
    assert "training images" in text
    assert "held-out" in text
    assert max(map(len, text.splitlines())) <= 80


def test_command_shows_the_counts_on_a_terminal_before_it_trains(
    levelhead, tmp_path, spec, monkeypatch
):
    words = (
        "--data",
        spec.data,
        "--net",
        "digits",
        "--recipe",
        spec.recipe,
        "--runs",
        tmp_path / "runs",
    )
    status, _, err = levelhead("train", *words)
    assert (status, err) == (0, "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for more, shown in ((), True), (("--json",), False):
        status, out, err = levelhead("train", *words, "--seed", len(more) + 1, *more)
        assert (status, "3 classes, " in err) == (0, shown), err
        assert "balanced" in out
