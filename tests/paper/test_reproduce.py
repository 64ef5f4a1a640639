"""The trainings planned are those the paper's tables need; a training with a record is not repeated."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from levelhead_lab.methods import METHODS
from levelhead_lab.paper.cells import load_records
from levelhead_lab.paper.paper_tables import table1
from levelhead_lab.paper.reproduce import (
    ReproduceOptions,
    expected_seconds,
    reproduce_table,
)
from levelhead_lab.paper.tables import DATA_SIZES, SAME_WHEN_BALANCED
from levelhead_lab.paper.train_groups import (
    _record_makers,
    group_trainings,
    missing,
    train_missing,
    write_record,
)
from levelhead_lab.paper.trainings import Training, trainings
from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.spec import Spec

from .made import made

RECORDS = Path(__file__).parents[2] / "results" / "records"


def test_table_1_trains_every_cell_once():
    planned = trainings("table1", seeds=1)
    cells = [(t.column, t.spec.method) for t in planned if not t.spec.hold_out]
    assert len(cells) == len(set(cells))
    assert len({column for column, _ in cells}) == 12
    balanced = {method for column, method in cells if column == "cifar10:1"}
    assert balanced == {"baseline", "wvn", "focal", "ldam"}
    assert not {"baseline+rs", "wvn+rs"} & {method for _, method in cells}
    assert sum(method == "wvn-released" for _, method in cells) == 4


@pytest.mark.parametrize(("row", "same"), SAME_WHEN_BALANCED.items())
def test_rows_that_are_not_trained_on_balanced_data_would_do_what_another_does(row, same):
    counts, labels = np.full(10, 40), torch.arange(10).repeat(40)
    logits = torch.randn(400, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for progress in (0.0, 0.99):
        losses = [METHODS[method].loss(counts, progress)(logits, labels) for method in (row, same)]
        torch.testing.assert_close(*losses, rtol=0, atol=1e-12)
    sample = METHODS[row].sample
    if (
        sample is not None
    ):  # as many of each class as there are; over-sampling draws them with replacement
        drawn = sample(labels.numpy(), np.random.default_rng(0))
        assert len(drawn) == len(labels)
    assert METHODS[row].head == METHODS[same].head


def test_baseline_and_wvn_have_seeds_and_a_companion_that_chooses_gamma():
    column = [t.spec for t in trainings("table1", seeds=3) if t.column == "cifar100:50"]
    for method in ("baseline", "wvn"):
        assert sorted(s.seed for s in column if s.method == method and not s.hold_out) == [0, 1, 2]
        assert [s.seed for s in column if s.method == method and s.hold_out] == [0]
    assert [s.seed for s in column if s.method == "ldam"] == [0]


def test_tiny_imagenet_has_one_seed_and_a_recipe_of_ours_and_strong_one_of_its_own():
    tiny = [t.spec for t in trainings("table2") if t.column == "tiny-imagenet:step:10"]
    assert {(s.recipe, s.stem, s.seed) for s in tiny} == {("tiny", "small", 0)}
    assert sorted(s.method for s in tiny if not s.hold_out) == [
        "baseline",
        "class-balanced",
        "class-balanced-focal",
        "ldam-drw",
        "over-sample",
        "wvn",
    ]
    assert sorted(s.method for s in tiny if s.hold_out) == ["baseline", "wvn"]
    steps = [
        t.images / t.spec.resolve_recipe().batch for t in trainings("table2") if not t.spec.hold_out
    ]
    assert len(steps) == 24
    assert max(steps) < 1.05 * min(
        steps
    )  # as long in every column, which differ in size by a factor of 2.5
    strong = trainings("strong", seeds=1)
    assert {t.spec.resolve_recipe().cutout for t in strong} == {16}
    assert len(strong) == 6 * 4


def test_table_2_is_trained_by_the_recipe_of_its_copied_rows_too():
    wanted = trainings("table2-sources")
    assert {(t.spec.data, t.spec.resolve_net(), t.spec.stem) for t in wanted} == {
        ("tiny-imagenet-sorted", "resnet18-64", "small")
    }
    (recipe,) = {t.spec.resolve_recipe() for t in wanted}
    assert (recipe.epochs, recipe.milestones, recipe.lr_decay, recipe.weight_decay) == (
        120,
        (90,),
        0.1,
        2e-4,
    )
    first = [t.spec for t in wanted if t.spec.seed == 0]
    assert len(first) == 4 * 5
    assert not any(t.spec.hold_out for t in wanted)  # gamma is that of the paper
    more = sorted((t.spec.method, t.spec.seed) for t in wanted if t.spec.seed > 0)
    assert more == sorted([("baseline", 1), ("baseline", 2), ("wvn", 1), ("wvn", 2)] * 4)
    assert {t.images for t in wanted} == {120 * n for n in (21549, 39072, 50500, 55000)}


def test_frontier_repeats_four_methods_with_a_companion_each_under_its_own_recipe():
    wanted = trainings("frontier")
    assert len(wanted) == len({t.name for t in wanted}) == 6 * 4 * (3 + 1)
    specs = [t.spec for t in wanted if t.column == "frontier/cifar100:100"]
    for method in ("baseline", "wvn", "balanced-softmax", "ldam-drw"):
        runs = sorted((s.seed, s.hold_out) for s in specs if s.method == method)
        assert runs == [(0, 0.0), (0, 0.1), (1, 0.0), (2, 0.0)]
    recipes = {t.spec.resolve_recipe() for t in wanted}
    assert [(r.name, r.epochs, r.augment, r.cutout) for r in recipes] == [
        ("frontier", 400, "trivial", 16)
    ]
    assert {t.spec.resolve_net() for t in wanted} == {"resnet32"}


def test_frontier_long_repeats_two_methods_at_ratio_100_in_800_epochs():
    wanted = trainings("frontier-long")
    assert len(wanted) == len({t.name for t in wanted}) == 2 * 2 * (3 + 1)
    assert {t.column for t in wanted} == {"frontier-long/cifar10:100", "frontier-long/cifar100:100"}
    assert {t.spec.method for t in wanted} == {"baseline", "balanced-softmax"}
    recipes = {t.spec.resolve_recipe() for t in wanted}
    assert [(r.name, r.epochs, r.average) for r in recipes] == [("frontier-long", 800, 0.25)]


def test_the_cost_is_the_images_that_are_trained_on():
    by_name = {
        (t.column, t.spec.method, t.spec.seed, t.spec.hold_out): t.images
        for t in trainings("table1")
    }
    assert by_name["cifar10:100", "baseline", 0, 0.0] == 12406 * 180
    assert by_name["cifar100:1", "baseline", 0, 0.0] == 50_000 * 180
    assert by_name["cifar10:100", "under-sample", 0, 0.0] == 500 * 180


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_the_cost_shown_in_advance_is_what_the_records_took(table):
    starved = (
        "cifar100:100",
        "cifar100:50",
    )  # by the processes that made records next to them, with many threads each
    took = {
        record["name"]: record["seconds"]
        for record in load_records(RECORDS)
        if record["column"] not in starved
    }
    trained = [training for training in trainings(table) if training.name in took]
    assert expected_seconds(trained) == pytest.approx(
        sum(took[training.name] for training in trained), rel=0.1
    )


def test_a_group_is_full_of_whole_columns_and_every_run_is_in_one():
    wanted = trainings("table1", seeds=1)
    groups = group_trainings(wanted, 16)
    assert all(len(group) <= 16 for group in groups)
    assert sorted(t.name for group in groups for t in group) == sorted(t.name for t in wanted)
    columns = [list(dict.fromkeys(t.column for t in group)) for group in groups]
    assert sum(map(len, columns)) == 12  # no column is in two groups
    assert max(map(len, columns)) > 1
    assert [
        len(group)
        for group in group_trainings(trainings("table1", seeds=1, only=["cifar10:100"]), 4)
    ] == [4, 4, 4]


def test_only_takes_cells_and_columns_and_names_what_it_does_not_know():
    assert {t.spec.method for t in trainings("table1", only=["cifar10:100:wvn"])} == {"wvn"}
    assert {t.column for t in trainings("table1", only=["cifar10:100"])} == {"cifar10:100"}
    many = trainings("table1", only=["cifar10:*:wvn", "cifar100:[15]*:ldam"])
    assert {(t.column.split(":")[0], t.spec.method) for t in many} == {
        ("cifar10", "wvn"),
        ("cifar100", "ldam"),
    }
    with pytest.raises(ValueError, match="no cell 'cifar10:99'"):
        trainings("table1", only=["cifar10:99"])


@pytest.mark.parametrize("table", ["table1", "table2-sources", "readings", "frontier"])
def test_the_command_of_a_training_asks_for_it(table, levelhead, tmp_path):
    training = trainings(table)[-1]
    words = training.command.removeprefix("levelhead ").split()
    status, out, _ = levelhead(*words, "--dry-run", "--json", "--results", tmp_path)
    assert status == 0
    assert training.name in json.loads(out)["missing"]


def test_what_has_a_record_is_not_missing(tmp_path):
    planned = trainings("table3", seeds=1)
    write_record(tmp_path / f"{planned[0].name}.json", {"error": 0.1})
    assert json.loads((tmp_path / f"{planned[0].name}.json").read_text()) == {"error": 0.1}
    assert missing(planned, tmp_path) == planned[1:]


def test_a_dry_run_lists_and_trains_nothing(levelhead, tmp_path):
    words = (
        "reproduce",
        "table3",
        "--root",
        tmp_path,
        "--results",
        tmp_path / "r",
        "--dry-run",
        "--json",
    )
    status, out, _ = levelhead(*words)
    assert status == 0
    assert len(json.loads(out)["missing"]) == 16
    assert list(tmp_path.iterdir()) == []
    status, _, err = levelhead("reproduce", "table9", "--root", ".")
    assert status == 2
    assert "table9" in err


@pytest.fixture
def column(monkeypatch) -> list[Training]:
    """A column of digits, two epochs each; one training is a companion."""
    monkeypatch.setitem(DATA_SIZES, "digits", (100, 10))
    specs = [("baseline", 0.0), ("wvn", 0.0), ("under-sample", 0.0), ("ldam", 0.0), ("wvn", 0.1)]
    return [
        Training(
            "table1",
            "digits:20",
            Spec(
                "digits",
                method=method,
                profile="long-tail",
                ratio=20.0,
                hold_out=hold_out,
                epochs=2,
                engine="fast",
                dtype="float32",
            ),
        )
        for method, hold_out in specs
    ]


@pytest.mark.slow
def test_a_column_is_trained_recorded_and_not_trained_again(column, tmp_path):
    lines: list[str] = []
    rows: list[dict] = []
    results, runs = tmp_path / "records", tmp_path / "runs"
    assert (
        train_missing(
            column, results, runs, slots=4, device="cpu", say=lines.append, report=rows.append
        )
        == 5
    )
    assert [(row["title"], row["epoch"], row["of"]) for row in rows[-2:]] == [
        ("digits:20", 1, 2),
        ("digits:20", 2, 2),
    ]
    assert missing(column, results) == []
    held = json.loads((results / f"{column[-1].name}.json").read_text())
    assert held["held_out"]["rescale"]["gamma"] >= 0
    assert held["command"] == column[-1].command
    assert held["counts"] != json.loads((results / f"{column[1].name}.json").read_text())["counts"]
    assert any("digits:20: 4 runs" in line for line in lines)
    errors = [epoch["test_error"] for epoch in Run.of(column[0].spec, runs).log]
    assert [error is None for error in errors] == [
        True,
        False,
    ]  # measured once the learning rate is lowered
    assert train_missing(column, results, runs, device="cpu", say=lines.append) == 0


@pytest.fixture
def ray():
    """Ray, started by whoever needs it first and shut down after the test."""
    library = pytest.importorskip("ray")
    yield library
    library.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
def test_on_ray_the_group_of_a_lost_worker_is_begun_again_less_what_is_finished(column, tmp_path):
    results, runs, mark = tmp_path / "records", tmp_path / "runs", tmp_path / "mark"
    (tmp_path / "deadly.py").write_text(  # once, as soon as the other run of its group is finished
        "import os, pathlib, signal\nfrom levelhead_lab.methods import Method\n"
        "from levelhead_lab.methods.baseline import baseline_loss\n"
        "def sample(labels, generator, progress=0.0):\n"
        f"    mark, runs = pathlib.Path({str(mark)!r}), pathlib.Path({str(runs)!r})\n"
        "    if not mark.exists() and any(runs.glob('*/done.json')):\n"
        "        mark.touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return generator.permutation(len(labels))\n"
        "METHOD = Method('deadly', 'Deadly', baseline_loss, sample=sample)\n"
    )
    deadly = replace(column[0].spec, method=f"{tmp_path / 'deadly.py'}:METHOD", epochs=20)
    group = [column[0], replace(column[0], spec=deadly)]
    lines: list[str] = []
    assert train_missing(group, results, runs, executor="ray", device="cpu", say=lines.append) == 2
    assert mark.exists()
    assert "a worker was lost" in lines[0]
    assert "2 runs in" in lines[1]
    first = Run.of(column[0].spec, runs).path / "done.json"
    assert first.stat().st_mtime_ns <= mark.stat().st_mtime_ns  # it was not trained a second time
    assert missing(group, results) == []
    with pytest.raises(ValueError, match="this Ray cluster has no GPU"):
        train_missing(group, tmp_path / "others", runs, executor="ray", device="cuda")


@pytest.mark.slow
def test_a_run_that_diverges_is_reported_and_the_others_are_recorded(column, tmp_path):
    (tmp_path / "wild.toml").write_text("epochs = 2\nbatch = 20\nlr = 1e30\n")
    wild = replace(
        column[0], spec=replace(column[0].spec, recipe=str(tmp_path / "wild.toml"), seed=1)
    )
    lines: list[str] = []
    assert (
        train_missing(
            [wild, *column[:2]], tmp_path / "r", tmp_path / "runs", device="cpu", say=lines.append
        )
        == 2
    )
    assert missing([wild, *column[:2]], tmp_path / "r") == [wild]
    assert lines[0].startswith("digits:20: 3 runs in ")
    assert "1 left" in lines[0]
    assert "; the loss of run 1 of 3 is " in lines[0]
    assert "1 to go" in lines[-1]


def test_when_time_is_up_nothing_is_begun_and_the_rest_is_named(column, tmp_path):
    lines: list[str] = []
    results, runs = tmp_path / "r", tmp_path / "runs"
    assert (
        train_missing(column, results, runs, slots=4, device="cpu", until=-1, say=lines.append) == 0
    )
    assert "5 to go" in lines[-1]


@pytest.mark.parametrize(
    "option",
    [
        ["--dry-run"],
        ["--only", "cifar10:100:wvn"],
        ["--minutes", "0"],
        ["--root", "."],
        ["--seeds", "3"],
        ["--runs", "runs"],
        ["--dtype", "bfloat16"],
    ],
)
def test_figures_are_not_drawn_with_an_option_of_trainings(levelhead, tmp_path, option):
    words = ["--results", RECORDS, "--docs", tmp_path, "--pictures", tmp_path]
    status, out, err = levelhead("reproduce", "figures", *words, *option)
    assert (status, out) == (2, "")
    assert err == f"levelhead: {option[0]}: figures trains nothing; leave it out\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--docs", "--pictures"])
def test_a_table_is_not_trained_with_an_option_of_figures(levelhead, tmp_path, option):
    status, out, err = levelhead("reproduce", "table1", "--dry-run", option, tmp_path)
    assert (status, out) == (2, "")
    assert err == f"levelhead: {option}: only figures fills in pages; leave it out\n"


def test_figures_need_records_and_training_needs_data(levelhead, tmp_path):
    for words, message in (
        (["figures", "--results", tmp_path], f"levelhead: {tmp_path}: no records; expected"),
        (
            ["table1", "--results", tmp_path],
            "levelhead: table1 lacks 162 networks, and training them takes the files of cifar10 and "
            "cifar100; download cifar-10-binary.tar.gz (md5 ",
        ),
    ):
        status, _, err = levelhead("reproduce", *words)
        assert status == 2
        assert err.startswith(message)


@pytest.mark.parametrize("minutes", ["-5", "nan"])
def test_minutes_in_which_nothing_can_be_trained_are_refused(levelhead, tmp_path, minutes):
    status, out, err = levelhead(
        "reproduce", "table3", "--minutes", minutes, "--root", tmp_path, "--results", tmp_path
    )
    assert (status, out) == (2, "")
    assert err == f"levelhead: --minutes: expected at least 0 minutes, got {minutes}\n".replace(
        "-5", "-5.0"
    )


def test_what_is_missing_is_listed_without_data(levelhead, tmp_path):
    status, out, _ = levelhead("reproduce", "table3", "--dry-run", "--results", tmp_path)
    assert status == 0
    assert out.splitlines()[-1].startswith(
        "table3: 0 of 16 networks have a record; the others take about "
    )


def test_where_nothing_is_missing_nothing_is_asked_for(levelhead):
    for table, networks, cells in (("table1", 81, ["--only", "cifar10:*"]), ("table3", 16, [])):
        status, out, err = levelhead("reproduce", table, "--results", RECORDS, *cells)
        assert (status, err) == (0, "")
        first = f"{table}: {networks} of {networks} networks have a record; nothing to train"
        assert out.splitlines()[0] == first


def test_rows_of_other_papers_are_trained_by_their_recipes_with_settings_of_their_own():
    spec_of = {(t.column, t.spec.method): t.spec for t in trainings("sources", seeds=1)}
    assert len(spec_of) == 42
    assert all(spec.seed == 0 and not spec.hold_out for spec in spec_of.values())
    more = [t.spec for t in trainings("sources") if t.spec.seed]  # of the control alone
    assert {(spec.method, spec.seed) for spec in more} == {("baseline", 1), ("baseline", 2)}
    assert {spec.resolve_subset() for spec in more} == {"first", "cao2019"}
    assert len(more) == 24
    control = spec_of["cao2019/cifar10:100", "baseline"]
    assert (control.resolve_recipe().name, control.shortcut, control.dtype) == (
        "cao2019",
        "A",
        "bfloat16",
    )
    exact = spec_of["cao2019-init/cifar10:100", "baseline"]
    assert (exact.resolve_recipe().init, exact.shortcut, exact.subset) == ("fan-in", "A", "cao2019")
    assert spec_of["cui2019/cifar10:20", "cui-softmax-0.9999"].shortcut == "pool"
    cb = spec_of["cui2019-sigmoid/cifar100:10", "cui-focal-0.5-0.999"].resolve_method().loss
    assert (cb.focus, cb.beta) == (0.5, 0.999)
    record = {**made(method="baseline", error=0.2964), "column": "cao2019-init/cifar10:100"}
    assert "| Cross entropy, recipe and code of Cao et al. |  | 29.64, *29.64* |" in table1(
        [record], "cifar10"
    )


@pytest.mark.parametrize("table", ["table1", "table2", "table3"])
def test_every_network_of_the_papers_tables_has_a_record(table, levelhead):
    status, out, _ = levelhead("reproduce", table, "--dry-run", "--json", "--results", RECORDS)
    assert status == 0
    missing = json.loads(out)["missing"]
    assert len(missing) == (4 if table == "table2" else 0)
    assert all("-class-balanced-0-" in name for name in missing)  # what the row called CB Focal is


def test_missing_data_or_devices_are_reported_before_any_training(levelhead, column, tmp_path):
    places = ("--root", tmp_path, "--results", tmp_path / "r", "--runs", tmp_path / "runs")
    status, out, err = levelhead("reproduce", "table1", *places)
    assert (status, out) == (2, "")
    assert err.startswith(f"levelhead: {tmp_path}: no cifar10 here")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="are trained on a CUDA GPU, and torch does not see one"):
        train_missing(column, tmp_path / "r", tmp_path / "runs")


def test_networks_that_were_not_trained_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "levelhead_lab.paper.reproduce.train_missing", lambda *_, **__: 0
    )  # every run has failed
    options = ReproduceOptions(
        tmp_path, ["cifar10:100:baseline"], seeds=1, results=tmp_path / "r", runs=tmp_path
    )
    with pytest.raises(ValueError, match="2 of 2 networks were not trained, for the reasons above"):
        reproduce_table("table1", options, say=print)


@pytest.mark.slow
def test_makers_of_records_compute_with_one_thread_and_leave_the_settings_alone(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with _record_makers(1) as others:
        assert others.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
    assert (os.environ["OMP_NUM_THREADS"], os.environ.get("MKL_NUM_THREADS")) == ("3", None)


@pytest.mark.slow
def test_on_ctrl_c_the_makers_of_records_finish_the_current_one(tmp_path):
    (
        tmp_path / "work.py"
    ).write_text(  # a terminal sends Ctrl-C to all, here while the makers import what they need
        "import os, signal, time\nfrom pathlib import Path\n"
        "if __name__ != '__main__':\n"
        "    for process in (os.getppid(), os.getpid()):\n        os.kill(process, signal.SIGINT)\n"
        "def make(i):\n    Path(str(i)).touch()\n    time.sleep(0.1)\n"
        "if __name__ == '__main__':\n"
        "    from levelhead_lab.runs.signals import graceful_stop, interrupts_blocked\n"
        "    from levelhead_lab.paper.train_groups import _record_makers\n"
        "    with graceful_stop(lambda: 'some are made', print), _record_makers(1) as others:\n"
        "        with interrupts_blocked():\n            made = [others.submit(make, i) for i in range(100)]\n"
        "        time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "work.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "")
    assert (
        done.stdout == "levelhead: stopped; some are made; run the same command again to resume\n"
    )
    assert len(list(tmp_path.iterdir())) < 10
