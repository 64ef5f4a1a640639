"""The commands `inspect`, `adjust` and `undo`: what they print, and that bad input ends in one line and no file."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import levelhead as lh
from levelhead.core.metrics import Tables, find_metric
from levelhead.core.tuned import Floor
from levelhead.support.extras import install_command

K = 4
COUNTS = [400, 100, 25, 4]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model, its counts and names, and files of many kinds of wrong."""
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    fc = torch.randn(K, 8)
    save_file(
        {"body.weight": torch.randn(8, 8), "fc.weight": fc, "fc.bias": torch.randn(K)},
        "m.safetensors",
        {"format": "pt"},
    )
    save_file({"a.weight": fc, "b.weight": fc + 1}, "two.safetensors")
    save_file({"conv.weight": torch.randn(8, 3, 3, 3)}, "none.safetensors")
    for bad in ("nan", "inf"):
        save_file(
            {"fc.weight": fc.where(fc != fc[2, 3], torch.tensor(float(bad)))}, f"{bad}.safetensors"
        )
    save_file({"fc.weight": torch.ones(K, 8, dtype=torch.int8)}, "int8.safetensors")
    whole = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "short.safetensors").write_bytes(whole[:-10])
    (tmp_path / "short.onnx").write_bytes(b"\x08\x08\x3a\xff")
    torch.save({"fc.weight": fc}, "m.pt")
    torch.save(torch.nn.Linear(2, 2), "module.pt")
    (tmp_path / "short.pt").write_bytes((tmp_path / "m.pt").read_bytes()[:300])
    for name in ("p.pkl", "p.pickle", "p.joblib", "p.pt2", "p.pt"):
        (tmp_path / name).write_bytes(pickle.dumps({"fc.weight": 1}))
    (tmp_path / "m.h5").write_bytes(b"x")
    np.save("probabilities.npy", np.full((5, K), 1 / K, np.float32))
    for name, value in {
        "c": COUNTS,
        "few": COUNTS[:3],
        "zero": [400, 0, 25, 4],
        "negative": [400, -1, 25, 4],
        "half": [400, 0.5, 25, 4],
        "named": {"cat": 1, "dog": 2, "cow": 3, "emu": 4},
        "unknown": {"0": 1, "1": 2, "2": 3, "7": 4},
        "word": ["a", 1, 2, 3],
        "tuned": {"gamma": 0.5, "rule": "rescale", "chosen_on": "held-out"},
        "untuned": {"beta": 1},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    save_file({"fc.weight": fc.half() / 1000}, "half.safetensors")
    save_file({"fc.weight": fc * 1e30}, "huge.safetensors")
    save_file({"body.weight": torch.randn(8, 4), "fc.weight": fc[:1]}, "one.safetensors")
    (tmp_path / "two.json").write_text("[9, 1]", encoding="utf-8")
    np.save("scalar.npy", np.array(4))
    np.save("two-classes.npy", np.ones((5, 2)))
    (tmp_path / "folder.safetensors").mkdir()
    for name, entries in {"sharded": {"fc.weight": "s.safetensors"}, "empty": {}}.items():
        (tmp_path / name).mkdir()
        save_file({"fc.weight": fc}, tmp_path / name / "s.safetensors")
        index = tmp_path / name / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": entries}), encoding="utf-8")
    note = {
        "rule": "rescale",
        "strength": "1",
        "bias": "scale",
        "head": '["fc"]',
        "scale": "[2, 2, 2, 2]",
        "offset": "[0, 0, 0, 0]",
        "counts": "[8, 4, 2, 1]",
        "version": "1",
    }
    notes = {
        "noted": {"rule": "rescale"},
        "noted-2": note | {"strength": "x"},
        "noted-3": note | {"offset": "[0, 0, 0, 1]"},
        "noted-4": note | {"scale": "[1, 0, 1, 1]"},
    }
    for name, one in notes.items():
        save_file(
            {"fc.weight": fc},
            f"{name}.safetensors",
            {f"levelhead.{key}": value for key, value in one.items()},
        )
    torch.save({"fc.weight": fc}, "noted.pt")
    with zipfile.ZipFile("noted.pt", "a") as archive:
        archive.writestr("noted/levelhead.json", "[1]")
    torch.save({"fc.weight": fc.to_sparse()}, "sparse.pt")
    torch.save({"fc.weight": fc[:, ::2]}, "strided.pt")
    with warnings.catch_warnings(action="ignore"):
        torch.save(
            {"fc.weight": torch.quantize_per_tensor(fc, 0.1, 0, torch.qint8)}, "quantized.pt"
        )
    plain = {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}
    for name, header in {
        "list": {"__metadata__": [1], "fc.weight": plain},
        "five": {"__metadata__": {"a": 5}, "fc.weight": plain},
        "minus": {"fc.weight": {**plain, "shape": [-4, -8]}},
        "deep": None,
    }.items():
        text = b"[" * 100_000 if header is None else json.dumps(header).encode()
        (tmp_path / f"{name}.safetensors").write_bytes(
            len(text).to_bytes(8, "little") + text + fc.numpy().tobytes()
        )
    (tmp_path / "nothing.npy").touch()
    (tmp_path / "taken.safetensors").write_bytes(b"mine")
    return tmp_path


def state(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else sorted(path.iterdir())
        for path in folder.iterdir()
    }


def rescale(
    model="m.safetensors",
    counts="c.json",
    out="o.safetensors",
    strength="0.5",
    *more,
    rule="rescale",
):
    by = ["--rule", rule, "--strength", strength, "--counts", counts]
    return ["adjust", model, *by, "-o", out, *more]


BAD = {
    "too few counts": (rescale(counts="few.json"), "expected 4 counts, one per class, got 3"),
    "a zero count": (rescale(counts="zero.json"), "class 1 has no samples"),
    "a negative count": (rescale(counts="negative.json"), "class 1 is negative"),
    "a fractional count": (rescale(counts="half.json"), "class 1 is fractional"),
    "counts that are words": (rescale(counts="word.json"), "expected counts as numbers"),
    "counts by names nobody knows": (rescale(counts="named.json"), "'cat'"),
    "counts of an unknown class": (rescale(counts="unknown.json"), "unknown class '7'"),
    "counts that are no JSON": (rescale(counts="broken.json"), "broken.json: not JSON"),
    "counts that are not there": (rescale(counts="x.json"), "x.json"),
    "counts of another kind": (rescale(counts="m.h5"), "m.h5: expected counts as .npy"),
    "strength nan": (rescale(strength="nan"), "--strength: expected a finite number, got nan"),
    "strength infinite": (rescale(strength="inf"), "--strength: expected a finite number, got inf"),
    "no strength": (
        [
            "adjust",
            "m.safetensors",
            "--rule",
            "rescale",
            "--counts",
            "c.json",
            "-o",
            "o.safetensors",
        ],
        "--strength: expected a number, such as 0.5; for one that is chosen on samples, use `levelhead tune`",
    ),
    "no counts": (
        ["adjust", "m.safetensors", "--rule", "rescale", "--strength", "1", "-o", "o.safetensors"],
        "--counts: the rule rescale needs counts",
    ),
    "neither a choice nor a rule": (
        ["adjust", "m.safetensors", "-o", "o.safetensors"],
        "--tuned: expected what `levelhead tune` wrote, or --rule and --strength",
    ),
    "a choice and a rule": (
        rescale("m.safetensors", "c.json", "o.safetensors", "1", "--tuned", "t.json"),
        "--rule: t.json has it already; leave it out",
    ),
    "a strength of a rule that has none": (
        rescale(rule="offsets"),
        "--strength: the rule offsets does not take it; leave it out",
    ),
    "a rule of the past": (
        ["rescale", "m.safetensors", "--counts", "c.json", "--gamma", "1", "-o", "o.safetensors"],
        "no such command 'rescale'",
    ),
    "not tuned": (
        ["adjust", "m.safetensors", "-o", "o.safetensors", "--tuned", "untuned.json"],
        "untuned.json: not",
    ),
    "an unknown rule": (
        rescale(rule="magic"),
        "--rule: expected 'offsets', 'shift', 'rescale', 'tau', 'scales' or 'vector', got 'magic'",
    ),
    "an unknown bias policy": (
        rescale("m.safetensors", "c.json", "o.safetensors", "1", "--bias", "x"),
        "'x' is not",
    ),
    "an unknown layer": (
        rescale("m.safetensors", "c.json", "o.safetensors", "1", "--head", "clf"),
        "no layer 'clf'",
    ),
    "NaN weights": (
        rescale("nan.safetensors"),
        "nan.safetensors: fc has NaN or infinite weight values in class 2",
    ),
    "infinite weights": (
        rescale("inf.safetensors"),
        "inf.safetensors: fc has NaN or infinite weight values in class 2",
    ),
    "weights that overflow": (rescale(strength="100"), "class"),
    "probabilities for logits": (
        rescale("m.safetensors", "c.json", "o.safetensors", "1", "--logits", "probabilities.npy"),
        "looks like probabilities",
    ),
    "no file": (rescale("x.safetensors"), "x.safetensors: no such file"),
    "no tuned.json": (
        ["adjust", "m.safetensors", "-o", "o.safetensors", "--tuned", "x.json"],
        "levelhead: x.json: no such file; expected one that `levelhead tune` wrote",
    ),
    "an empty file of counts": (rescale(counts="nothing.npy"), "nothing.npy: the file is empty"),
    "a truncated safetensors": (rescale("short.safetensors"), "short.safetensors: cut short"),
    "a truncated onnx": (rescale("short.onnx", out="o.onnx"), "short.onnx: cut short"),
    "a truncated pt": (rescale("short.pt", out="o.pt"), "short.pt: cut short"),
    "output is input": (rescale(out="m.safetensors"), "is the input itself"),
    "output is input, by force": (
        rescale("m.safetensors", "c.json", "./m.safetensors", "1", "--force"),
        "is the input itself",
    ),
    "output exists": (
        rescale(out="taken.safetensors"),
        "taken.safetensors exists; pass --force to replace it",
    ),
    "output of another kind": (
        rescale(out="o.onnx"),
        "o.onnx: expected an output that ends in .safetensors",
    ),
    "no folder for the output": (rescale(out="nowhere/o.safetensors"), "nowhere: no such folder"),
    "no head": (rescale("none.safetensors"), "none.safetensors: no head found"),
    "several heads": (
        rescale("two.safetensors"),
        "more than one layer could be the head: a [4, 8], b [4, 8]; pass --head to name it",
    ),
    "quantized": (rescale("int8.safetensors"), "fc.weight holds I8"),
    "a pickle": (rescale("p.pkl", out="o.pkl"), "p.pkl: a pickle"),
    "a pickle by another name": (rescale("p.pickle"), "p.pickle: a pickle"),
    "a pickle in disguise": (rescale("p.pt", out="o.pt"), "p.pt: a pickle"),
    "a joblib": (rescale("p.joblib"), "p.joblib: a joblib pickle"),
    "a pt2": (rescale("p.pt2"), "p.pt2: a torch.export archive"),
    "a module": (rescale("module.pt", out="o.pt"), "module.pt: needs torch.nn"),
    "another kind of file": (
        rescale("m.h5"),
        "m.h5: a model in Keras's old format; save it as .keras or .weights.h5",
    ),
    "counts of no class": (
        rescale(counts="scalar.npy"),
        "expected one count per class, got shape []",
    ),
    "a layer named twice": (
        rescale("m.safetensors", "c.json", "o.safetensors", "1", "--head", "fc,fc"),
        "--head: expected different layers, got fc,fc",
    ),
    "logits of another model": (
        rescale("m.safetensors", "c.json", "o.safetensors", "1", "--logits", "two-classes.npy"),
        "--logits: expected [N, 4], got [5, 2]",
    ),
    "weights that vanish": (
        rescale(strength="1e300", rule="tau"),
        "the factor of class 0 would be 0, which removes the class",
    ),
    "weights that vanish in half precision": (
        rescale("half.safetensors", strength="-8"),
        "half.safetensors: fc, in F16, would become 0 in class 1",
    ),
    "weights too long": (
        rescale("huge.safetensors"),
        "the weight vector of class 0 in fc is too long to measure",
    ),
    "a file of one logit": (
        rescale("one.safetensors", "two.json"),
        "one.safetensors: fc gives a single logit, and scaling never moves its sign; use the rule offsets or shift",
    ),
    "output is a folder, by force": (
        rescale("m.safetensors", "c.json", "folder.safetensors", "1", "--force"),
        "levelhead: folder.safetensors: a folder; expected the name of a file to write",
    ),
    "output of a folder is a file, by force": (
        rescale("sharded", "c.json", "taken.safetensors", "1", "--force"),
        "levelhead: taken.safetensors: a file; expected the name of a folder to write",
    ),
    "a broken record of an adjustment": (
        ["inspect", "noted.safetensors"],
        "noted.safetensors: its record of an",
    ),
    "a record that is no JSON": (
        ["undo", "noted-2.safetensors", "-o", "b.safetensors"],
        "its record of an earlier",
    ),
    "a record without a bias": (
        ["undo", "noted-3.safetensors", "-o", "b.safetensors"],
        "its record adds to a bias, but its head has none",
    ),
    "a record that divides by 0": (
        ["undo", "noted-4.safetensors", "-o", "b.safetensors"],
        "its record of an earlier",
    ),
    "a broken record in a pt": (
        ["inspect", "noted.pt"],
        "noted.pt: its record of an earlier adjustment is damaged",
    ),
    "undo of a folder without a name": (
        ["undo", "empty/..", "-o", "b"],
        "expected one safetensors model in it",
    ),
    "sparse weights": (
        ["inspect", "sparse.pt"],
        "sparse.pt: fc.weight holds float32, sparse; expected F64, F32",
    ),
    "quantized weights": (
        ["inspect", "quantized.pt"],
        "quantized.pt: holds quantized tensors; adjust the model",
    ),
    "strided weights": (
        ["inspect", "strided.pt"],
        "fc.weight holds float32, not contiguous; expected F64, F32",
    ),
    "an index of nothing": (
        ["inspect", "empty"],
        "safetensors.index.json: not an index of shards (it lists none)",
    ),
    "metadata that are a list": (
        ["inspect", "list.safetensors"],
        "list.safetensors: not a safetensors file, its",
    ),
    "metadata that are numbers": (
        ["inspect", "five.safetensors"],
        "five.safetensors: not a safetensors file, its",
    ),
    "a shape below zero": (
        ["inspect", "minus.safetensors"],
        "minus.safetensors: not a safetensors file, its",
    ),
    "a header without an end": (
        ["inspect", "deep.safetensors"],
        "deep.safetensors: not a safetensors file, its",
    ),
    "nothing to undo": (
        ["undo", "m.safetensors", "-o", "b.safetensors"],
        "m.safetensors: nothing to undo",
    ),
    "undo of nothing": (
        ["undo", "x.safetensors", "-o", "b.safetensors"],
        "x.safetensors: no such file",
    ),
    "inspect of nothing": (["inspect", "x.safetensors"], "x.safetensors: no such file"),
    "inspect with wrong counts": (
        ["inspect", "m.safetensors", "--counts", "few.json"],
        "expected 4 counts",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_in_one_line_and_leaves_everything_as_it_was(levelhead, folder, name):
    arguments, message = BAD[name]
    before = state(folder)
    status, out, err = levelhead(*arguments)
    assert status == 2
    assert message in err
    assert err.startswith("levelhead: ")
    assert err.count("\n") == 1
    assert out == ""
    assert state(folder) == before


def test_rescale_prints_what_changed_and_undo_gives_the_input_back(levelhead, folder):
    status, out, err = levelhead(*rescale())
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == ["m.safetensors -> o.safetensors", "  fc: RS, strength 0.5, bias scaled"]
    assert lines[3].split() == ["class", "count", "norm", "before", "after", "scale"]
    assert [line.split()[-1] for line in lines[4:8]] == ["1", "2", "4", "10"]
    assert "kept o.safetensors.original" in out
    assert levelhead("undo", "o.safetensors", "-o", "b.safetensors")[0] == 0
    assert (folder / "b.safetensors").read_bytes() == (folder / "m.safetensors").read_bytes()


def test_nothing_is_said_of_a_bias_that_is_not_there(levelhead, folder):
    save_file({"fc.weight": torch.ones(K, 3)}, folder / "m.safetensors")
    assert levelhead(*rescale())[1].splitlines()[1] == "  fc: RS, strength 0.5"


def test_json_is_one_object_and_nothing_else(levelhead, folder):
    status, out, _ = levelhead(*rescale(), "--json")
    done = json.loads(out)
    assert status == 0
    assert done["scale"] == [1, 2, 4, 10]
    assert done["sha256"] == {
        "o.safetensors": hashlib.sha256((folder / "m.safetensors").read_bytes()).hexdigest()
    }
    seen = json.loads(levelhead("inspect", "o.safetensors", "--counts", "c.json", "--json")[1])
    assert seen["layers"][0]["shape"] == [K, 8]
    assert seen["adjusted"]["strength"] == 0.5
    assert (
        json.loads(levelhead("undo", "o.safetensors", "-o", "b.safetensors", "--json")[1])["exact"]
        is True
    )


def test_json_is_json_also_of_a_head_whose_norms_are_all_equal(levelhead, folder):
    save_file({"fc.weight": torch.eye(K, 8)}, "level.safetensors")
    text = levelhead("inspect", "level.safetensors", "--counts", "c.json", "--json")[1]
    seen = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert seen["correlation"] is None
    assert "correlation" not in levelhead("inspect", "level.safetensors", "--counts", "c.json")[1]


def test_one_logit_is_told_which_rule_suits_it(levelhead, folder):
    assert (
        "a single logit; use the rule offsets or shift"
        in levelhead("inspect", "one.safetensors", "--counts", "two.json")[1]
    )


def test_the_command_that_undoes_can_be_pasted(levelhead, folder):
    assert (
        "`levelhead undo 'o ü.safetensors' -o BACK`"
        in levelhead(*rescale(out="o ü.safetensors"))[1]
    )


def test_a_folder_without_a_name_is_written_and_undone_under_its_own(
    levelhead, folder, monkeypatch
):
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    assert levelhead(*rescale("../sharded", "../c.json", ".", "0.5", "--force"))[::2] == (0, "")
    assert sorted(os.listdir()) == ["model.safetensors.index.json", "s.safetensors"]
    assert (folder / "here.original").is_file()
    assert levelhead("undo", ".", "-o", "../back")[::2] == (0, "")
    assert (folder / "back" / "s.safetensors").read_bytes() == (
        folder / "sharded" / "s.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_inspect_knows_the_head_that_was_rescaled(levelhead, folder, suffix):
    tensors = {"a.weight": torch.randn(K, 8), "b.weight": torch.randn(K, 8)}
    save_file(tensors, "pair.safetensors") if suffix == "safetensors" else torch.save(
        tensors, "pair.pt"
    )
    assert "more than one layer could be the head" in levelhead("inspect", f"pair.{suffix}")[2]
    words = rescale(f"pair.{suffix}", "c.json", f"out.{suffix}", "0.3", "--head", "b")
    assert levelhead(*words)[0] == 0
    status, out, _ = levelhead("inspect", f"out.{suffix}", "--json")
    assert status == 0
    found = json.loads(out)
    assert [layer["key"] for layer in found["layers"]] == ["b"]
    assert found["adjusted"]["strength"] == 0.3


def test_inspect_draws_norms_largest_count_first(levelhead, folder):
    (folder / "c.json").write_text("[1, 2, 3, 4]", encoding="utf-8")
    out = levelhead("inspect", "m.safetensors", "--counts", "c.json")[1]
    rows = [line.split() for line in out.splitlines() if "█" in line]
    assert [row[:2] for row in rows] == [["3", "4"], ["2", "3"], ["1", "2"], ["0", "1"]]
    norms = np.array([float(row[2]) for row in rows])
    assert [len(row[3]) for row in rows] == [round(30 * n / norms.max()) for n in norms]


def test_many_classes_are_shown_from_both_ends(levelhead, folder):
    save_file({"fc.weight": torch.randn(100, 8)}, "many.safetensors")
    (folder / "many.json").write_text(json.dumps(list(range(100, 0, -1))), encoding="utf-8")
    out = levelhead(*rescale("many.safetensors", "many.json"))[1]
    first = [line.split()[0] for line in out.splitlines()[4:25]]
    assert first == [*map(str, range(10)), "...", *map(str, range(90, 100))]


def test_no_original_keeps_nothing(levelhead, folder):
    levelhead(*rescale(), "--no-original")
    assert not (folder / "o.safetensors.original").exists()
    out = levelhead("undo", "o.safetensors", "-o", "b.safetensors")[1]
    assert "exact only up to rounding" in out


@pytest.mark.parametrize("suffix", ["safetensors", "onnx"])
def test_inspect_and_rescale_import_no_torch(folder, suffix):
    if suffix == "onnx":
        from onnx import TensorProto, helper, numpy_helper, save

        weight = numpy_helper.from_array(np.ones((K, 8), np.float32), "fc.weight")
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", n])
            for name, n in (("x", 8), ("y", K))
        ]
        gemm = helper.make_node("Gemm", ["x", "fc.weight"], ["y"], transB=1)
        save(
            helper.make_model(helper.make_graph([gemm], "g", ends[:1], ends[1:], [weight])),
            "m.onnx",
        )
    code = (
        "import sys; from levelhead.cli import app\n"
        f"for words in (['inspect', 'm.{suffix}'], ['adjust', 'm.{suffix}', '-o', 'o.{suffix}', '--counts', 'c.json', "
        "'--rule', 'rescale', '--strength', '1'], ['--help']):\n    app(words, standalone_mode=False)\n"
        "heavy = {'torch', 'sklearn', 'rich', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\nassert ('onnx' in sys.modules) == ('" + suffix + "' == 'onnx')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr


def check_named_where_missing(module: str, words: list[str], folder: Path) -> None:
    """Check that a command, where the module of an extra is missing, says in one line how to install it."""
    code = (
        f"import sys\nsys.modules[{module!r}] = None\nsys.argv = ['levelhead', *{words}]\n"
        "from levelhead.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.endswith(f"needs {module}: {install_command(module)}\n")
    assert done.stderr.count("\n") == 1


def test_what_is_not_installed_is_named_with_its_extra(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    check_named_where_missing("onnx", ["inspect", "model.onnx"], tmp_path)


# What was tuned


def choice(folder, name="shift.json", gain=0.1, error=0.01, **entries):
    """Write a file as `levelhead tune` does; with a gain and its standard error."""
    before = Tables(np.full(K, 5.0), np.full(K, 10.0), np.full(K, 10.0))
    after = Tables(np.full(K, 6.0), np.full(K, 10.0), np.full(K, 10.0))
    given = {
        "rule": "shift",
        "adjustment": lh.Adjustment.adding(0.5 * np.log(COUNTS[0] / np.array(COUNTS))),
        "strength": 0.5,
        "counts": tuple(map(float, COUNTS)),
        "evidence": lh.Evidence(find_metric("balanced_error"), before, after, gain, error, 9, 40),
    }
    lh.Tuned(**given | entries).save(folder / name)
    return name


def adjust(tuned, model="m.safetensors", out="o.safetensors", *more):
    return ["adjust", model, "--tuned", tuned, "-o", out, *more]


@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
def test_adjust_does_what_its_rule_does_at_that_strength_and_is_undone(levelhead, folder, rule):
    weight = load_file("m.safetensors")["fc.weight"].numpy().astype(float)
    given = lh.rules.find_rule(rule).with_norms(np.linalg.norm(weight, axis=1))
    by = replace(given, strength=0.5).on_head(lh.Head(weight), np.array(COUNTS))
    tuned = choice(folder, rule=rule, adjustment=by)
    status, out, err = levelhead(*adjust(tuned), "--json")
    assert (status, err) == (0, "")
    done = json.loads(out)
    assert (done["rule"], done["strength"], done["counts"]) == (rule, 0.5, COUNTS)
    assert levelhead(*rescale(out="r.safetensors", rule=rule))[0] == 0
    tuned_so, given_so = load_file("o.safetensors"), load_file("r.safetensors")
    for name, values in given_so.items():
        torch.testing.assert_close(tuned_so[name], values)
    assert f"adjusted before: {rule}, strength 0.5" in levelhead("inspect", "o.safetensors")[1]
    assert levelhead("undo", "o.safetensors", "-o", "b.safetensors")[0] == 0
    assert (folder / "b.safetensors").read_bytes() == (folder / "m.safetensors").read_bytes()
    twice = adjust("shift.json", "o.safetensors", "p.safetensors")
    assert "pass --again to adjust it a second time" in levelhead(*twice)[2]
    assert levelhead(*twice, "--again", "--no-original")[0] == 0
    assert not (folder / "p.safetensors.original").exists()


@pytest.mark.parametrize(("gain", "error"), [(-0.01, 0.01), (0.0, 0.01), (-0.2, 0.05)])
def test_where_nothing_is_to_be_gained_the_status_is_3_and_nothing_is_written(
    levelhead, folder, gain, error
):
    tuned = choice(folder, gain=gain, error=error)
    before = state(folder)
    status, out, err = levelhead(*adjust(tuned))
    assert (status, out) == (3, "")
    read = lh.Tuned.load(tuned)
    assert err == (
        f"levelhead: shift.json: nothing to gain: {read.change_text()}: {read.verdict_text()}; "
        "nothing is written; pass --anyway to go on\n"
    )
    assert state(folder) == before
    status, out, _ = levelhead(*adjust(tuned), "--anyway")
    assert status == 0
    assert (folder / "o.safetensors").exists()


@pytest.mark.parametrize("given", [{"gain": 0.01, "error": 0.5}, {"gain": 0.01, "error": 0.0001}])
def test_a_gain_above_0_is_taken_however_sure_it_is(levelhead, folder, given):
    assert levelhead(*adjust(choice(folder, **given)))[0] == 0


def test_where_the_gain_is_not_known_the_model_is_adjusted(levelhead, folder):
    assert levelhead(*adjust(choice(folder, evidence=None, chosen_on="unlabelled")))[0] == 0


def test_floors_that_are_met_only_so_are_worth_it(levelhead, folder):
    floor = Floor(3, 0.5, 0.95, held_before=False)
    assert levelhead(*adjust(choice(folder, gain=-0.01, floors=(floor,))))[0] == 0


def test_a_head_of_one_logit_is_one_row_of_the_table(levelhead, folder):
    save_file({"fc.weight": torch.ones(1, 8), "fc.bias": torch.zeros(1)}, "logit.safetensors")
    by = lh.Adjustment.adding([0.0, 0.5 * np.log(9)])
    tuned = choice(folder, adjustment=by, counts=(900.0, 100.0), evidence=None)
    status, out, _ = levelhead(*adjust(tuned, "logit.safetensors"))
    assert status == 0
    assert "the logit  900/100" in out
    assert load_file("o.safetensors")["fc.bias"].item() == pytest.approx(0.5 * np.log(9))


THREE = {"adjustment": lh.Adjustment.adding([0.0, 1.0, 2.0]), "counts": (3, 2, 1), "evidence": None}
TWO = {"adjustment": lh.Adjustment.scaling([1.0, 2.0]), "counts": (9, 1), "evidence": None}
BAD_CHOICES = {
    "other classes": (
        THREE,
        "m.safetensors",
        "m.safetensors: fc has 4 classes, but it was tuned on 3 classes; tune on this model's own scores",
    ),
    "no bias": (
        {},
        "m.pt",
        "m.pt: fc has no bias to add to, and a state dict file cannot hold one that the model does",
    ),
    "one logit": (
        {"rule": "tau", **TWO},
        "one.safetensors",
        "fc gives a single logit, and",
    ),
    "several heads": ({}, "two.safetensors", "a [4, 8], b [4, 8]; pass --head to name it"),
    "no model": ({}, "x.safetensors", "x.safetensors: no such file"),
    "a choice of nothing": (
        {"rule": "magic"},
        "m.safetensors",
        "shift.json: not a file that `levelhead tune` wrote",
    ),
}


@pytest.mark.parametrize("name", BAD_CHOICES)
def test_what_cannot_be_adjusted_ends_in_one_line_and_leaves_everything_as_it_was(
    levelhead, folder, name
):
    entries, model, message = BAD_CHOICES[name]
    tuned = choice(folder, **entries)
    before = state(folder)
    status, out, err = levelhead(*adjust(tuned, model, f"o{os.path.splitext(model)[1]}"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("levelhead: ")
    assert message in err
    assert state(folder) == before
    assert "x.json: no such file; expected one that" in levelhead(*adjust("x.json"))[2]


def test_a_file_of_an_older_levelhead_is_told_to_be_tuned_again(levelhead, folder):
    status, _, err = levelhead(*adjust("tuned.json"))
    assert (status, err.count("\n")) == (2, 1)
    assert "tune again" in err


def test_what_tune_writes_is_what_adjust_reads(levelhead, folder):
    rng = np.random.default_rng(0)
    labels = rng.integers(K, size=400)
    logits = (2 + rng.normal(size=(400, K)) + 2 * np.eye(K)[labels]) * [1.0, 0.8, 0.6, 0.4]
    np.save("L.npy", logits)
    np.save("Y.npy", labels)
    given = ("--logits", "L.npy", "--labels", "Y.npy", "--counts", "c.json", "-o", "t.json")
    assert levelhead("tune", *given)[0] == 0
    assert levelhead(*adjust("t.json"))[0] == 0
    before, after = load_file("m.safetensors"), load_file("o.safetensors")
    offset = torch.tensor(lh.tune(logits, labels, COUNTS).adjustment.offset)
    torch.testing.assert_close(after["fc.bias"], (before["fc.bias"] + offset).float())
    assert torch.equal(after["fc.weight"], before["fc.weight"])
