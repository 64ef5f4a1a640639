"""Bad input of `inspect`, `adjust` and `undo` ends in one line, and leaves every file as it was."""

import pytest

from .model_files import rescale, state, write_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model, its counts and names, and files of many kinds of wrong."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


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
