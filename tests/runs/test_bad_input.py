"""Bad input to a training: options, grids and the user's own method."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from levelhead_lab.methods import METHODS
from levelhead_lab.runs import checkpoint
from levelhead_lab.runs.evaluate import evaluate, rule_for
from levelhead_lab.runs.packed import run_packed
from levelhead_lab.runs.run import run
from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.spec import Spec
from levelhead_lab.runs.sweep import read_grid, sweep, sweep_row
from levelhead_lab.runs.train_command import imbalance_fields
from tools import layouts


def pictures(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, *shape)).astype(np.uint8)


@pytest.fixture
def words(tmp_path, monkeypatch) -> list[str]:
    """The words of a command that trains for a second, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    np.savez("small.npz", images=pictures(60, 8, 8), labels=np.repeat(np.arange(3), [30, 20, 10]))
    Path("short.toml").write_text("epochs = 1\nbatch = 25\nlr = 0.1\n")
    return ["train", "--data", "small.npz", "--net", "digits", "--recipe", "short.toml"]


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--largest", "5"], "--largest: needs a ratio"),
        (["--largest", "0", "--ratio", "2"], "expected a count of at least 1, got 0"),
        (["--subset", "4"], "--subset: needs a ratio or counts"),
        (["--counts", "9,8"], "--counts: expected 3 counts, one per class, got 2"),
        (["--counts", "9,8,0"], "--counts: class 2 has no samples"),
        (["--counts", "9,8,x"], "--counts: expected numbers with commas between them or a file"),
        (["--size", "64"], "only the images of a folder can be resized, not those of small.npz"),
        (
            ["--seed", "99999999999999999999999"],
            "--seed: expected a seed from 0 to 2**64 - 1, got 9999",
        ),
        (["--strength", "nan"], "expected a finite number, got nan"),
        (
            ["--subset", "²", "--ratio", "2"],
            "--subset: expected 'first', 'cao2019' or a seed of at least 0, got '²'",
        ),
        (["--data", ""], "--data: expected a name or a path, got an empty text"),
        (
            ["--name", "../mine"],
            "--name: expected the name of one folder, got '../mine'; pass --runs to say where",
        ),
        (["--name", ""], "--name: expected the name of one folder, got ''"),
        (["--threads", "100000"], "--threads: expected 1 to 1024 threads, got 100000"),
    ],
)
def test_options_that_would_do_nothing_or_fail_at_the_end_are_refused_at_the_start(
    words, levelhead, options, message
):
    status, out, err = levelhead(*words, *options)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_a_last_batch_of_one_image_is_refused_before_training_where_statistics_need_two(
    words, levelhead, engine
):
    labels = np.repeat(np.arange(3), [30, 20, 10])
    np.savez(
        "tiny.npz",
        x_train=pictures(60, 4, 4)[9:],
        y_train=labels[9:],
        x_test=pictures(60, 4, 4),
        y_test=labels,
    )
    words[2] = (
        "tiny.npz"  # the network's last feature map is of one pixel; 51 images are two batches of 25, and one
    )
    status, _, err = levelhead(*words, "--hold-out", "0", "--engine", engine)
    assert status == 2
    assert "last batch of an epoch has a single image (51 images in batches of 25)" in err
    assert not Path("runs").exists()
    Path("short.toml").write_text("epochs = 1\nbatch = 26\nlr = 0.1\n")
    assert levelhead(*words, "--hold-out", "0", "--engine", engine)[0] == 0
    np.savez("larger.npz", images=pictures(64, 8, 8), labels=np.arange(64) % 2)  # 51 are trained on
    words[2] = "larger.npz"
    Path("short.toml").write_text("epochs = 1\nbatch = 25\nlr = 0.1\n")
    assert levelhead(*words, "--hold-out", "0", "--engine", engine)[0] == 0


def test_counts_come_from_any_file_and_empty_ones_are_refused(words, tmp_path):
    def spec(file: str) -> Spec:
        return Spec(
            "small.npz",
            **imbalance_fields(
                ratio=None, profile="long-tail", counts=Path(file), largest=None, subset="first"
            ),
        )

    np.save("n.npy", np.array([9, 8, 7]))
    np.savez("n.npz", counts=np.array([9, 8, 7]))
    Path("n.json").write_text("[9, 8, 7]")
    specs = [spec(name) for name in ("n.npy", "n.npz", "n.json")]
    assert {spec.key for spec in specs} == {specs[0].key}
    assert specs[0].load().counts.tolist() == [9, 8, 7]
    for name, text in {"a.json": "[]", "b.json": "{}", "c.txt": "", "d.csv": "class,n\n"}.items():
        Path(name).write_text(text)
        with pytest.raises(
            ValueError, match=rf"{name}: (expected one count per class, got none|the file is empty)"
        ):
            spec(name)


def test_a_demo_seed_is_checked(levelhead, tmp_path):
    for seed in ("-1", "1" + "0" * 30):
        status, _, err = levelhead("demo", "--seed", seed, "--report", tmp_path / "page.html")
        assert (status, err) == (
            2,
            f"levelhead: --seed: expected a seed from 0 to 2**64 - 1, got {seed}\n",
        )
        assert list(tmp_path.iterdir()) == []


# Recipes and grids


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("milestones = 3", "milestones: expected a list of whole numbers, got 3"),
        ('milestones = ["a"]', r"milestones: expected a list of whole numbers, got \['a'\]"),
        ('nesterov = "no"', "nesterov: expected true or false, got 'no'"),
        ("flip = 1", "flip: expected true or false, got 1"),
        ("mean = 0.5\nstd = 1.0", "mean: expected a list of numbers"),
        ('mean = ["a"]\nstd = [1]', "mean: expected a list of numbers"),
        ("mean = [0.5]\nstd = [0.0]", "std: expected numbers above 0"),
        ("nesterov = true\nmomentum = 0", "nesterov: it needs a momentum"),
    ],
)
def test_a_recipe_is_checked_before_it_is_used(words, levelhead, line, message):
    Path("short.toml").write_text(f"epochs = 1\nbatch = 25\nlr = 0.1\n{line}\n")
    with pytest.raises(ValueError, match=f"recipe short: {message}"):
        Spec("digits", recipe="short.toml").resolve_recipe()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"data = 5", "data: expected text, got 5"),
        (b"data = []", "data has no values"),
        (b'data = "digits"\nmethod = []', "method has no values"),
        (b'data = "digits"\nmethod = 3', "method: expected text, got 3"),
        (b'data = "digits"\nmethod = [["wvn"]]', r"method: expected text, got \['wvn'\]"),
        (b'data = "digits"\nseed = true', "seed: expected a whole number, got True"),
        (b'data = "digits"\nepochs = "3"', "epochs: expected a whole number, got '3'"),
        (b'data = "digits"\nratio = "ten"', "ratio: expected a number, got 'ten'"),
        (b'data = "digits"\nhold_out = "a"', "hold_out: expected a number, got 'a'"),
        (b'data = "digits"\nskip_bad = "no"', "skip_bad: expected true or false, got 'no'"),
        (b'data = "digits"\nstem = "large"', "stem: expected small, half or imagenet, got 'large'"),
        (b'data = "digits"\n[recipe]\nepochs = 3', "recipe: expected text, got "),
        (b'data = "digits"\nprofile = ["given", "step"]', "profile: needs a ratio"),
        (b'data = "digits"\nhold_out = 2', "hold_out: expected a share from 0 to below 1, got 2.0"),
        (b'data = "digits"\nrecipe = "best"', "recipe: expected kim2020, .* got 'best'"),
        (b'data = "digits"\nmethod = ["wvn", "best"]', "unknown method 'best'"),
        (b'data = "\xff"', "not TOML"),
    ],
)
def test_a_grid_is_checked_before_anything_is_trained(tmp_path, text, message):
    (tmp_path / "grid.toml").write_bytes(text)
    with pytest.raises(ValueError, match=f"grid.toml: {message}"):
        read_grid(tmp_path / "grid.toml")


def test_a_missing_grid_or_recipe_is_called_what_it_is(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"g\.toml: no such file; expected a grid"):
        read_grid(tmp_path / "g.toml")
    with pytest.raises(FileNotFoundError, match=r"r\.toml: no such file; expected a recipe"):
        Spec("digits", recipe="r.toml").resolve_recipe()


@pytest.mark.slow
def test_a_sweep_levels_by_the_methods_own_rule(words, levelhead):
    spec = Spec(
        "small.npz", net="digits", recipe="short.toml", hold_out=0.3, method="tau-norm", epochs=4
    )
    [row] = [sweep_row(outcome) for outcome in sweep([spec], "runs", workers=1)]
    left = Run.open(row["run"]).snapshot
    by_tau = evaluate(left, rule="tau")
    assert (row["rule"], row["strength"]) == ("tau", by_tau.tuned.strength)
    assert row["adjusted_balanced_error"] == by_tau.after.balanced_error


# A user's own method


def own(text: str) -> str:
    Path("mine.py").write_text(
        "from dataclasses import replace\nimport torch\nfrom levelhead_lab.methods import METHODS\n"
        f"METHOD = replace(METHODS['baseline'], name='mine', {text})\n"
    )
    return "mine.py:METHOD"


@pytest.mark.parametrize("engine", ["plain", "fast"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "loss=lambda counts, progress=0.0: torch.nn.CrossEntropyLoss()",
            r"method mine: expected one loss per sample, \[25\], got \[\]",
        ),
        (
            "sample=lambda labels, generator, progress: labels[:0]",
            "method mine: expected indices of an epoch's samples",
        ),
        (
            "sample=lambda labels, generator, progress: labels + len(labels)",
            "method mine: expected indices .* 0 to 47",
        ),
        ("sample=lambda labels, generator, progress: labels / 2", "method mine: expected indices"),
        ("adjust=lambda head, counts, gamma: head", "method mine: .*adjust .*neither RS nor tau"),
    ],
)
def test_a_method_that_breaks_its_contract_is_named(words, levelhead, engine, text, message):
    status, _, err = levelhead(*words, "--hold-out", "0", "--method", own(text), "--engine", engine)
    assert status == 2
    assert re.search(message, err)
    assert err.count("\n") == 1


def test_a_grid_runs_no_code_unless_it_is_allowed_to(tmp_path, monkeypatch, levelhead):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(
        "from pathlib import Path\nPath('run').touch()\nraise ValueError('was run')\n"
    )
    for method in ("evil.py:X", "evil.py:X+rs"):
        Path("grid.toml").write_text(f'data = "digits"\nmethod = ["baseline", "{method}"]\n')
        status, _, err = levelhead("sweep", "grid.toml")
        assert (status, Path("run").exists()) == (2, False)
        assert (
            f"the method '{method}' is code, which this file would run; pass --allow-code if you trust both"
            in err
        )
    status, _, err = levelhead("sweep", "grid.toml", "--allow-code")
    assert (status, Path("run").exists()) == (2, True)
    assert "was run" in err


def test_a_grid_of_more_runs_than_anyone_trains_is_refused(tmp_path):
    lists = "".join(f"{key} = {list(range(1, 1001))}\n" for key in ("seed", "epochs", "size"))
    (tmp_path / "grid.toml").write_text(f'data = "digits"\n{lists}')
    with pytest.raises(ValueError, match="1,000,000,000 runs in one grid"):
        read_grid(tmp_path / "grid.toml")


def test_a_file_that_ends_the_program_is_an_error(words, levelhead):
    Path("mine.py").write_text("import sys\nsys.exit(0)\n")
    assert levelhead(*words, "--method", "mine.py:METHOD")[0] == 2
    Path("mine.py").unlink()
    assert (
        "mine.py: no such file; expected a Python file"
        in levelhead(*words, "--method", "mine.py:METHOD")[2]
    )
    assert (
        "expected a method as FILE.py:NAME, got 'mine.py'"
        in levelhead(*words, "--method", "mine.py")[2]
    )


# Runs that are there


def test_a_finished_run_on_other_data_of_the_same_name_is_not_taken_for_this_one(words, tmp_path):
    for home, seed in (("one", 0), ("two", 1)):
        layouts.write_image_folder(tmp_path / home / "own", {"a": 6, "b": 5}, seed=seed)
    first = Spec("one/own", net="digits", recipe="short.toml", size=8)
    there = run(first, "runs")
    assert run(first, "runs") == there
    for again in (
        lambda spec: run(spec, "runs"),
        lambda spec: run_packed([spec], "runs", device="cpu"),
    ):
        with pytest.raises(ValueError, match="same settings on other data"):
            again(replace(first, data="two/own"))
    with pytest.raises(ValueError, match="one/own and two/own would be one run"):
        sweep([first, replace(first, data="two/own")], "runs", workers=1)
    [outcome] = sweep([replace(first, data="two/own")], "runs", workers=1)
    assert "same settings on other data" in (outcome.error or "")


def test_a_damaged_spec_is_named(words):
    spec = Spec("small.npz", net="digits", recipe="short.toml")
    there = run(spec, "runs")
    for text in ("", "{}", "[]"):
        (there.path / "spec.json").write_text(text)
        with pytest.raises(ValueError, match=r"spec\.json: .*damaged"):
            run(spec, "runs")
    shutil.rmtree(there.path)
    assert run(spec, "runs").finished


def test_every_file_that_a_run_resumes_from_is_named_if_it_is_damaged(words, levelhead):
    assert levelhead(*words)[0] == 0
    [there] = Path("runs").iterdir()
    whole = shutil.copytree(there, "whole")
    facts, done = (json.loads((there / name).read_text()) for name in ("spec.json", "done.json"))
    damages = [
        *(("spec.json", facts | {"threads": wrong}) for wrong in ("x", 0, True, 10**30)),
        ("spec.json", facts | {"identity": [1]}),
        ("spec.json", facts | {"versions": [1]}),
        ("spec.json", facts | {"sizes": "all"}),
        ("log.jsonl", {"epoch": 1}),
        ("log.jsonl", {"epoch": 1, "seconds": "x"}),
        *(
            ("done.json", {key: done[key] for key in done if key != lost})
            for lost in ("epoch", "seconds", "parameters")
        ),
        ("done.json", done | {"seconds": "x"}),
    ]
    said = {}
    for i, (name, content) in enumerate(damages):
        shutil.rmtree(there)
        shutil.copytree(whole, there)
        (there / name).write_text(json.dumps(content) + "\n")
        if name != "done.json":
            (there / "done.json").unlink()
        status, _, err = levelhead(*words)
        if status != 2 or f"{there / name}: damaged" not in err or err.count("\n") != 1:
            said[i, name] = err
    assert said == {}


def test_a_checkpoint_of_another_network_is_refused_and_kept(words, levelhead):
    assert levelhead(*words)[0] == 0
    [there] = Path("runs").iterdir()
    (there / "done.json").unlink()
    [kept] = there.glob("checkpoint-*")
    state = checkpoint.read(kept)
    kept.unlink()
    weights = state.weights | {"head.weight": torch.zeros(4, 64)}
    kept = checkpoint.write(there, replace(state, weights=weights))
    status, _, err = levelhead(*words)
    assert status == 2
    assert f"{there}: its checkpoints are of another network (head.weight differs)" in err
    assert kept.is_file()


@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_a_network_that_diverges_in_the_last_step_is_an_error(words, levelhead, engine):
    Path("short.toml").write_text("epochs = 1\nbatch = 60\nlr = 1e38\n")
    status, out, err = levelhead(*words, "--method", "baseline", "--engine", engine)
    assert (status, out) == (2, "")
    assert "has diverged; lower the learning rate" in err
    assert not list(Path("runs").glob("*/done.json"))


def test_every_method_of_the_table_has_a_rule():
    assert {name for name, method in METHODS.items() if rule_for(method) == "tau"} == {"tau-norm"}
