"""A grid in a file, trained by `levelhead sweep`."""

import json

import pytest

from levelhead.runs import sweep_command

from .. import layouts


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Two methods and two seeds, a second each, on a hundred small images."""
    monkeypatch.chdir(tmp_path)
    layouts.small(tmp_path, epochs=2)
    (tmp_path / "grid.toml").write_text('data = "small.npz"\nnet = "digits"\nrecipe = "short.toml"\nhold_out = 0.2\n'
                                        'method = ["baseline", "wvn"]\nseed = [0, 1]\n')
    return tmp_path / "grid.toml"


def test_a_list_stands_for_each_of_its_values(file):
    assert [(s.method, s.seed) for s in sweep_command.read(file)] == [("baseline", 0), ("baseline", 1), ("wvn", 0), ("wvn", 1)]
    file.write_text('data = "digits"\nratio = [10, 50]\n')
    assert [(s.profile, s.ratio) for s in sweep_command.read(file)] == [("long-tail", 10), ("long-tail", 50)]


def test_every_run_is_trained_once_and_judged(file, levelhead):
    status, out, err = levelhead("sweep", file, "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("baseline", 0), ("baseline", 1), ("wvn", 0), ("wvn", 1)]
    assert all(0 <= row["leveled_error"] <= 1 for row in rows)
    assert err.count("finished") == 4
    status, out, err = levelhead("sweep", file)
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 5


@pytest.mark.parametrize(("text", "says"), [
    ("data = ", "not TOML"),
    ('data = "digits"\ncolour = 1\n', "unknown key 'colour'; the keys are data, root, method"),
    ("seed = 1\n", "expected data = ..."),
    ('data = "gone.npz"\n', "none of the 1 runs could be trained; the first: "),
    ('data = "digits"\nseed = -1\n', "expected a seed from 0 on, got -1"),
])
def test_bad_input_is_one_line_at_the_end(file, levelhead, text, says):
    file.write_text(text)
    status, out, err = levelhead("sweep", file)
    assert (status, out) == (2, "")
    assert says in err.splitlines()[-1]
    assert not list(file.parent.glob("runs/*/done.json"))


def test_those_that_cannot_be_trained_are_named_beside_those_that_are(file, levelhead):
    file.write_text(file.read_text().replace('"small.npz"', '["small.npz", "gone.npz"]').replace("[0, 1]", "0"))
    status, out, err = levelhead("sweep", file)
    assert status == 2
    assert len(out.splitlines()) == 3
    assert err.splitlines()[-1].startswith("levelhead: 2 runs could not be trained: gone-baseline-0")
