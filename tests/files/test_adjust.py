"""What was tuned, applied to model files: the same decision wherever a head lives, and back again byte for byte."""

import hashlib
import json
import os
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file
from sklearn.linear_model import RidgeClassifier
from torch import nn

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.locate import ModelFile
from levelhead.files.model import adjust_file, adjusted_text
from levelhead.files.undo import undo_file
from levelhead.heads import sklearn as sklearn_head
from levelhead.heads.notes import check_note
from levelhead.support.warnings import quiet

from ..heads.chosen import OFFSET, SCALE
from ..heads.chosen import tuned_for as tuned_with
from .head_in_file import read_head

K, D = 5, 16
COUNTS = np.array([1000, 300, 90, 9, 2])
RULES = ("offsets", "shift", "rescale", "tau", "scales", "vector")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2000, D)).astype(np.float32)
raw = numpy_helper.from_array


def tuned_for(rule, strength=0.4, counts=COUNTS, **more) -> lh.Tuned:
    return tuned_with(rule, strength, counts, **more)


def made(bias=True, rows=K, dtype=np.float32) -> lh.Head:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((rows, D)).astype(dtype)
    return lh.Head(weight, rng.standard_normal(rows).astype(dtype) if bias else None)


def tensors(head):
    parts = {"body.weight": torch.ones(D, D), "fc.weight": torch.from_numpy(head.weight)}
    return parts if head.bias is None else {**parts, "fc.bias": torch.from_numpy(head.bias)}


def save_graph(
    path, nodes, weights, *, ir_version=9, kind=TensorProto.FLOAT, shape=("N", D), **how
):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, list(shape))],
        [helper.make_tensor_value_info("y", kind, [f"d{i}" for i in range(len(shape))])],
        weights,
    )
    if ir_version < 4:
        graph.input.extend(
            helper.make_tensor_value_info(w.name, w.data_type, list(w.dims)) for w in weights
        )
    onnx.save(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=ir_version
        ),
        path,
        **how,
    )


def save_onnx(head, path):
    weights = [
        raw(head.weight, "fc.weight"),
        *([] if head.bias is None else [raw(head.bias, "fc.bias")]),
    ]
    save_graph(
        path,
        [helper.make_node("Gemm", ["x", *(w.name for w in weights)], ["y"], transB=1)],
        weights,
    )


SAVE = {
    ".safetensors": lambda head, path: save_file(tensors(head), path),
    ".onnx": save_onnx,
    ".pt": lambda head, path: torch.save(tensors(head), path),
}


def run(path, x=X):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def norms_of(head):
    return np.linalg.norm(head.weight.astype(float), axis=1)


def on_logits(logits, rule, strength, head, counts=COUNTS):
    """The rule on plain logits, in float64: the truth that every other place is compared with."""
    rarity = counts.max() / counts
    return {
        "rescale": logits * rarity**strength,
        "tau": logits / norms_of(head) ** strength,
        "shift": logits + strength * np.log(rarity),
        "offsets": logits + OFFSET,
        "scales": logits * SCALE,
        "vector": logits * SCALE + OFFSET,
    }[rule]


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("rule", RULES)
def test_one_decision_predicts_the_same_classes_wherever_it_is_applied(tmp_path, rule, bias):
    head = made(bias)
    tuned = tuned_for(rule, counts=COUNTS, norms=norms_of(head))
    plain = X.astype(float) @ head.weight.astype(float).T + (
        0 if head.bias is None else head.bias.astype(float)
    )
    truth = on_logits(plain, rule, 0.4, head)
    answers = {"Head": lh.adjust(head, tuned).logits(X)}
    for suffix, save in SAVE.items():
        save(head, tmp_path / f"m{suffix}")
        if tuned.adjustment.adds and not bias and suffix != ".onnx":
            continue
        adjust_file(tmp_path / f"m{suffix}", tmp_path / f"o{suffix}", tuned)
        answers[suffix] = read_head(tmp_path / f"o{suffix}").logits(X)
    answers["onnxruntime"] = run(tmp_path / "o.onnx")
    layer = nn.Linear(D, K, bias=bias)
    layer.load_state_dict(
        {key[3:]: value for key, value in tensors(head).items() if key.startswith("fc.")}
    )
    lh.adjust_(layer, tuned)
    answers["torch"] = layer(torch.from_numpy(X)).detach().numpy()
    linear = RidgeClassifier().fit(X, np.arange(len(X)) % K)
    sklearn_head.write(
        linear,
        replace(head, names=None, bias=np.zeros(K, np.float32) if head.bias is None else head.bias),
    )
    sklearn_head.write(linear, lh.adjust(sklearn_head.read(linear), tuned))
    answers["scikit-learn"] = linear.decision_function(X)
    top = np.sort(truth, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-5 * np.abs(truth).max(axis=1)
    assert clear.mean() > 0.99
    assert (truth.argmax(1) != plain.argmax(1)).any()
    for name, logits in answers.items():
        np.testing.assert_allclose(logits, truth, atol=1e-5 * np.abs(truth).max(), err_msg=name)
        assert (logits.argmax(1) == truth.argmax(1))[clear].all(), name


@pytest.mark.parametrize("suffix", SAVE)
@pytest.mark.parametrize("rule", RULES)
def test_the_adjustment_is_recorded_and_undone_byte_for_byte(tmp_path, suffix, rule):
    path, out, back = (tmp_path / f"{name}{suffix}" for name in "mob")
    SAVE[suffix](made(), path)
    tuned = tuned_for(rule)
    done = adjust_file(path, out, tuned)
    assert (done.rule, done.strength, done.head) == (rule, tuned.strength, ("fc",))
    note = ModelFile.at(out).locate_head().note
    assert (note["rule"], note.get("strength")) == (rule, tuned.strength)
    assert (note["counts"], note["head"]) == (COUNTS.tolist(), ["fc"])
    assert np.array_equal(note["scale"], tuned.adjustment.scale)
    assert np.array_equal(note["offset"], tuned.adjustment.offset)
    words = rule if tuned.strength is None else f"{rule}, strength 0.4"
    assert any(f"adjusted before: {words}, by" in text for text in inspect_file(out).warnings)
    with pytest.raises(
        lh.LevelheadError, match=rf"was adjusted before \({words}\); undo that first"
    ):
        adjust_file(out, back, tuned_for("rescale"))
    adjust_file(out, tmp_path / f"twice{suffix}", tuned_for("rescale"), again=True)
    assert undo_file(out, back).exact
    assert digest(back) == digest(path)
    undo_file(tmp_path / f"twice{suffix}", tmp_path / f"once{suffix}")
    assert digest(tmp_path / f"once{suffix}") == digest(out)
    os.remove(f"{out}.original")
    assert not undo_file(
        out, back, force=True
    ).exact  # without the kept bytes, by the recorded numbers
    for name in ("weight", "bias"):
        was, now = (getattr(read_head(file), name) for file in (path, back))
        np.testing.assert_allclose(now, was, atol=1e-5)


def test_a_damaged_record_of_two_parts_is_refused(tmp_path):
    save_file(tensors(made()), tmp_path / "m.safetensors")
    adjust_file(tmp_path / "m.safetensors", tmp_path / "o.safetensors", tuned_for("vector"))
    note = ModelFile.at(tmp_path / "o.safetensors").locate_head().note
    for change in (
        {"offset": OFFSET[:2].tolist()},
        {"offset": "x"},
        {"rule": 5},
        {"offset": [float("nan")] * K},
    ):
        with pytest.raises(lh.LevelheadError, match="record of an earlier adjustment is damaged"):
            check_note(note | change, tmp_path)


# A new bias in ONNX


W = made().weight
LAYERS = {
    "Gemm": ([helper.make_node("Gemm", ["x", "W"], ["y"], transB=1)], [raw(W, "W")], {}),
    "Gemm, an empty third input": (
        [helper.make_node("Gemm", ["x", "W", ""], ["y"], transB=1)],
        [raw(W, "W")],
        {},
    ),
    "MatMul": ([helper.make_node("MatMul", ["x", "W"], ["y"])], [raw(W.T.copy(), "W")], {}),
    "MatMul, then Softmax": (
        [
            helper.make_node("MatMul", ["x", "W"], ["h"]),
            helper.make_node("LogSoftmax", ["h"], ["y"]),
        ],
        [raw(W.T.copy(), "W")],
        {},
    ),
    "MatMul of sequences": (
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        [raw(W.T.copy(), "W")],
        {"shape": (2, 1000, D)},
    ),
    "Conv": (
        [helper.make_node("Conv", ["x", "W"], ["y"])],
        [raw(W[:, :, None, None].copy(), "W")],
        {"shape": ("N", D, 1, 1)},
    ),
    "a name that is taken": (
        [
            helper.make_node("MatMul", ["x", "W"], ["W.bias"]),
            helper.make_node("Identity", ["W.bias"], ["y"]),
        ],
        [raw(W.T.copy(), "W")],
        {},
    ),
    "an old version": (
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        [raw(W.T.copy(), "W")],
        {"ir_version": 3},
    ),
    "a weight that is cast": (
        [
            helper.make_node("Cast", ["V"], ["W"], to=TensorProto.FLOAT),
            helper.make_node("MatMul", ["x", "W"], ["y"]),
        ],
        [raw(W.T.astype(np.float16), "V")],
        {},
    ),
    "external weights": (
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        [raw(W.T.copy(), "W")],
        {"save_as_external_data": True, "location": "m.data", "size_threshold": 0},
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_an_onnx_head_without_a_bias_gets_one(tmp_path, name):
    nodes, weights, how = LAYERS[name]
    path, out, back = tmp_path / "m.onnx", tmp_path / "o.onnx", tmp_path / "back" / "m.onnx"
    for folder in (
        "back",
        "once",
        "divided",
    ):  # where external weights have room under their old names
        (tmp_path / folder).mkdir()
    save_graph(path, nodes, weights, **how)
    x = X.reshape([2000 if n == "N" else n for n in how.get("shape", ("N", D))])
    before = run(path, x)
    done = adjust_file(path, out, tuned_for("shift"))
    assert "the head had no bias and has one now" in done.notes
    shift = (0.4 * np.log(1000 / COUNTS)).astype(np.float32)
    expected = before + (shift[:, None, None] if name == "Conv" else shift)
    if "Softmax" in name:
        expected -= np.log(np.exp(expected).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(run(out, x), expected, atol=1e-4)
    np.testing.assert_allclose(read_head(out).bias, shift, rtol=1e-6)
    onnx.checker.check_model(str(out), full_check=True)
    assert undo_file(out, back).exact
    assert digest(back) == digest(path)
    again, once, divided = (
        tmp_path / "twice.onnx",
        tmp_path / "once" / "o.onnx",
        tmp_path / "divided" / "d.onnx",
    )
    adjust_file(out, again, tuned_for("shift"), again=True)
    np.testing.assert_allclose(read_head(again).bias, 2 * shift, rtol=1e-6)
    assert undo_file(again, once).exact
    assert digest(once) == digest(out)
    os.unlink(done.original)
    assert not undo_file(out, divided).exact
    np.testing.assert_allclose(run(divided, x), before, atol=1e-4)


def test_only_the_new_bias_and_the_note_are_kept_for_the_way_back(tmp_path):
    big = np.random.default_rng(0).standard_normal((D, 20_000)).astype(np.float32)
    save_graph(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "V"], ["h"]),
            helper.make_node("Gemm", ["h", "W"], ["y"]),
        ],
        [raw(big, "V"), raw(np.ones((20_000, K), np.float32), "W")],
    )
    done = adjust_file(tmp_path / "m.onnx", tmp_path / "o.onnx", tuned_for("shift"))
    assert (
        os.path.getsize(done.original)
        < 20_000 * K * 4 + 2000
        < os.path.getsize(tmp_path / "m.onnx")
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.integers(1, 300), st.sampled_from(["Gemm", "MatMul"]), st.floats(0.1, 2), st.integers(0, 3)
)
def test_lengths_of_any_size_are_corrected(tmp_path, length, op, strength, before):
    """A name of any length moves the lengths around it over the border of one, two and three bytes."""
    weight, name = raw(W if op == "Gemm" else W.T.copy(), "w" * length), "h" * length
    nodes = [helper.make_node("Identity", ["x"], [f"i{i}"]) for i in range(before)]
    nodes += [
        helper.make_node(op, ["x", weight.name], [name], **({"transB": 1} if op == "Gemm" else {})),
        helper.make_node("Identity", [name], ["y"]),
    ]
    save_graph(tmp_path / "m.onnx", nodes, [weight])
    adjust_file(tmp_path / "m.onnx", tmp_path / "o.onnx", tuned_for("shift", strength), force=True)
    np.testing.assert_allclose(
        run(tmp_path / "o.onnx"),
        run(tmp_path / "m.onnx") + strength * np.log(1000 / COUNTS),
        atol=1e-4,
    )
    undo_file(tmp_path / "o.onnx", tmp_path / "b.onnx", force=True)
    assert digest(tmp_path / "b.onnx") == digest(tmp_path / "m.onnx")


def test_a_shift_by_nothing_needs_no_bias(tmp_path):
    save_onnx(made(bias=False), tmp_path / "m.onnx")
    adjust_file(tmp_path / "m.onnx", tmp_path / "o.onnx", tuned_for("shift", 0.0))
    assert read_head(tmp_path / "o.onnx").bias is None


# One logit


@pytest.mark.parametrize("suffix", SAVE)
def test_one_logit_is_shifted_in_files_too(tmp_path, suffix):
    head, tuned = made(rows=1), tuned_for("shift", 0.7, np.array([900, 100]))
    path, out, back = (tmp_path / f"{name}{suffix}" for name in "mob")
    SAVE[suffix](head, path)
    done = adjust_file(path, out, tuned)
    now = read_head(out)
    np.testing.assert_allclose(now.bias, head.bias + 0.7 * np.log(9), rtol=1e-6)
    assert np.array_equal(now.weight, head.weight)
    assert done.counts.tolist() == [900, 100]
    assert digest(path) == undo_file(out, back).sha256[back.name]
    os.unlink(done.original)
    undo_file(out, tmp_path / f"d{suffix}")
    np.testing.assert_allclose(read_head(tmp_path / f"d{suffix}").bias, head.bias, rtol=1e-5)
    by_rule = adjust_file(path, tmp_path / f"r{suffix}", lh.rules.Shift(0.7), [900, 100])
    assert by_rule.offset == done.offset
    for rule in ("rescale", "tau", "scales", "vector"):
        with pytest.raises(
            lh.LevelheadError, match="gives a single logit, and scaling never moves its sign; use"
        ):
            adjust_file(path, back, tuned_for(rule, counts=np.array([900, 100])), force=True)


def test_a_known_head_of_one_logit_comes_before_an_unknown_matrix_of_two_rows(tmp_path):
    named = {"classifier.weight": torch.ones(1, 8), "classifier.bias": torch.ones(1)}
    save_file({"gate.weight": torch.ones(2, 8), **named}, tmp_path / "m.safetensors")
    tuned = tuned_for("shift", 1.0, np.array([9, 1]))
    done = adjust_file(tmp_path / "m.safetensors", tmp_path / "o.safetensors", tuned)
    assert done.head == ("classifier",)


# Refused


@pytest.mark.parametrize(
    ("suffix", "head", "tuned", "says"),
    [
        (
            ".safetensors",
            made(bias=False),
            tuned_for("shift"),
            "fc has no bias to add to, and a safetensors file cannot hold one that the model does not "
            r"expect; use the rule scales or rescale; pass features \(what the head takes",
        ),
        (
            ".pt",
            made(bias=False),
            tuned_for("shift"),
            "fc has no bias to add to, and a state dict file cannot hold one",
        ),
        (
            ".safetensors",
            made(rows=4),
            tuned_for("shift"),
            "fc has 4 classes, but it was tuned on 5 classes",
        ),
        (
            ".onnx",
            made(rows=4),
            tuned_for("rescale"),
            "fc has 4 classes, but it was tuned on 5 classes",
        ),
        (
            ".pt",
            made(rows=1),
            tuned_for("shift"),
            "fc gives a single logit, but it was tuned on 5 classes",
        ),
        (
            ".onnx",
            made(),
            lh.rules.Shift(1.0),
            "counts: the rule shift needs counts",
        ),
        (
            ".onnx",
            made(),
            lh.rules.Shift(),
            r"rule: expected a strength, such as lh\.rules\.Shift\(0\.5\)",
        ),
        (
            ".pt",
            made(),
            lh.rules.Offsets(),
            r"the rule offsets is fitted on held-out samples; give what lh\.tune returns",
        ),
        (
            ".pt",
            made(),
            0.5,
            r"tuned: expected what `tune` returned, .* or a rule",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path, suffix, head, tuned, says):
    SAVE[suffix](head, tmp_path / f"m{suffix}")
    before = digest(tmp_path / f"m{suffix}")
    with pytest.raises(lh.LevelheadError, match=says) as error:
        adjust_file(tmp_path / f"m{suffix}", tmp_path / f"o{suffix}", tuned)
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path) == [f"m{suffix}"]
    assert digest(tmp_path / f"m{suffix}") == before


def test_what_was_tuned_has_counts_and_a_policy_of_its_own(tmp_path):
    path, out = tmp_path / "m.safetensors", tmp_path / "o.safetensors"
    save_file(tensors(made()), path)
    with pytest.raises(lh.LevelheadError, match="counts: what was tuned has counts of its own"):
        adjust_file(path, out, tuned_for("rescale"), COUNTS)
    with pytest.raises(lh.LevelheadError, match="bias: what was tuned scales the bias"):
        adjust_file(path, out, tuned_for("rescale"), bias="keep")
    assert not out.exists()
    assert adjust_file(path, out, replace(tuned_for("offsets"), counts=())).counts is None
    assert "counts" not in ModelFile.at(out).locate_head().note


@pytest.mark.parametrize("suffix", SAVE)
def test_offsets_change_only_the_bias(tmp_path, suffix):
    path, out = tmp_path / f"m{suffix}", tmp_path / f"o{suffix}"
    SAVE[suffix](made(), path)
    adjust_file(path, out, tuned_for("offsets"))
    assert read_head(out).weight.tobytes() == made().weight.tobytes()
    np.testing.assert_allclose(read_head(out).bias, made().bias + OFFSET, rtol=1e-6)


def test_the_table_shows_counts_of_training_alone(tmp_path):
    path, out = tmp_path / "m.safetensors", tmp_path / "o.safetensors"
    save_file(tensors(made()), path)
    done = adjust_file(path, out, tuned_for("offsets", counted=True))
    assert done.counts is None
    assert "class  norm before" in adjusted_text(done)
    # A class that is left alone has the largest count of the others, for the rule, and not its own.
    alone = lh.counts.with_background(COUNTS, 4)
    done = adjust_file(path, out, lh.rules.Shift(0.5), alone, force=True)
    assert done.background == 4
    assert "left alone" in adjusted_text(done)


def test_a_background_that_would_change_is_refused(tmp_path):
    path, out = tmp_path / "m.safetensors", tmp_path / "o.safetensors"
    save_file(tensors(made()), path)
    for tuned, counts in ((tuned_for("shift"), None), (lh.rules.Tau(1.0), None)):
        with pytest.raises(lh.LevelheadError, match="background: class 4 would change"):
            adjust_file(path, out, tuned, counts, background=4)
    assert not out.exists()
    by = adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, background=4).scale
    assert by[4] == by[0] == 1
    alone = lh.counts.with_background(COUNTS, 4)
    again = adjust_file(path, out, lh.rules.Rescale(0.5), alone, force=True)
    assert np.array_equal(again.scale, by)


def test_names_in_another_order_are_refused(tmp_path):
    save_file(tensors(made()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate("edcba"))}))
    path, out = tmp_path / "model.safetensors", tmp_path / "o.safetensors"
    with pytest.raises(
        lh.LevelheadError, match=r"in another order \(e, d, c, b, a\) than the scores"
    ):
        adjust_file(path, out, tuned_for("rescale", names=tuple("abcde")))
    adjust_file(path, out, tuned_for("rescale", names=tuple("edcba")))


def test_a_choice_that_is_not_worthwhile_is_applied_and_said_to_be_so(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(K), 40)
    logits = rng.normal(size=(40 * K, K)) + 2 * np.eye(K)[labels]
    with quiet():
        tuned = lh.tune(logits, labels, COUNTS)
    save_file(tensors(made()), tmp_path / "m.safetensors")
    assert tuned.evidence is not None
    for gain, said in ((0.01, False), (-0.01, True)):
        choice = replace(tuned, evidence=replace(tuned.evidence, gain=gain))
        out = tmp_path / "o.safetensors"
        notes = adjust_file(tmp_path / "m.safetensors", out, choice, force=True).notes
        assert ("no gain was to be expected where it was chosen" in notes) == said
