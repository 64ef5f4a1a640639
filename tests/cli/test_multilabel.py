"""Several labels per sample, from held-out files to a model's file: every place decides as the offsets do."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import balanced_accuracy_score
from torch import nn

import levelhead as lh
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

K = 6
COUNTS = list(range(6, 0, -1))


def at(rule):
    """Return a rule at a strength."""
    return replace(lh.rules.find_rule(rule), strength=0.3)


@pytest.fixture(scope="module")
def trained():
    """A small network with a sigmoid for each label, trained by binary cross-entropy, and held-out samples."""
    x, y = make_multilabel_classification(
        1500, 20, n_classes=K, n_labels=1, allow_unlabeled=True, random_state=0
    )
    x, y = torch.tensor(x / x.std(), dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, K))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x[:700]), y[:700]).backward()
        optimizer.step()
    return model, x[700:], y[700:].numpy().astype(int)


@pytest.fixture(scope="module")
def tuned(trained):
    model, x, y = trained
    with torch.no_grad():
        choice = lh.tune_labels(model(x[:400]), y[:400], metric="balanced_error")
    assert choice.worthwhile
    return choice


def copy_of(model, *more):
    """The network again, with its own parameters, and modules after it."""
    other = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, K), *more)
    other.load_state_dict(model.state_dict(), strict=True)
    return other


def decisions(model, x, tuned):
    with torch.no_grad():
        return model(x).numpy().astype(float) + tuned.adjustment.offset > 0


@pytest.mark.slow
def test_leveling_gains_on_samples_that_nothing_has_seen(trained, tuned):
    model, x, y = trained
    with torch.no_grad():
        plain = model(x[400:]).numpy() > 0

    def mean_score(predicted):
        return np.mean([balanced_accuracy_score(y[400:, k], predicted[:, k]) for k in range(K)])

    assert mean_score(decisions(model, x[400:], tuned)) > mean_score(plain) + 0.01


def test_a_model_in_memory_decides_as_the_offsets_do(trained, tuned):
    model, x, _ = trained
    expected = decisions(model, x, tuned)
    other = copy_of(model, nn.Sigmoid())
    with lh.adjust_(other, tuned) as adjusted, torch.no_grad():
        np.testing.assert_array_equal(other(x).numpy() > 0.5, expected)
        assert "bias" in repr(adjusted)
    assert all(
        torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True)
    )


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_file_of_tensors_decides_as_the_offsets_do_and_is_undone(
    trained, tuned, tmp_path, suffix
):
    model, x, _ = trained
    path, out, back = (tmp_path / f"{name}{suffix}" for name in ("model", "leveled", "back"))
    save = save_file if suffix == ".safetensors" else torch.save
    save(model.state_dict(), path)
    assert adjust_file(path, out, tuned).rule == "offsets"
    state = load_file(out) if suffix == ".safetensors" else torch.load(out, weights_only=True)
    other = copy_of(model)
    other.load_state_dict(state)
    with torch.no_grad():
        np.testing.assert_array_equal(other(x).numpy() > 0, decisions(model, x, tuned))
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


def onnx_file(model, path, last="Sigmoid", bias=True):
    """Write the network as ONNX by hand: Gemm, Relu, Gemm and one more node."""
    onnx = pytest.importorskip("onnx")
    helper, arrays = (
        onnx.helper,
        {name: value.numpy() for name, value in model.state_dict().items()},
    )
    if not bias:
        del arrays["2.bias"]
    head = ["h", "2.weight", "2.bias"] if bias else ["h", "2.weight"]
    nodes = [
        helper.make_node("Gemm", ["x", "0.weight", "0.bias"], ["g"], transB=1),
        helper.make_node("Relu", ["g"], ["h"]),
        helper.make_node("Gemm", head, ["z"], transB=1),
        *(
            [
                helper.make_node(
                    last, ["z"], ["y"], **({"axis": 1} if last in ("Softmax", "ArgMax") else {})
                )
            ]
            if last
            else []
        ),
    ]
    kind, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    shape = ["n", 1 if last == "ArgMax" else K]
    output = helper.make_tensor_value_info(
        "y" if last else "z", whole if last == "ArgMax" else kind, shape
    )
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", kind, ["n", 20])],
        [output],
        [onnx.numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    onnx.save(proto, path)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_an_onnx_file_decides_as_the_offsets_do_before_its_sigmoid(trained, tuned, tmp_path, bias):
    runtime = pytest.importorskip("onnxruntime")
    model, x, _ = trained
    onnx_file(model, tmp_path / "model.onnx", bias=bias)

    def run(name):
        return runtime.InferenceSession(tmp_path / name).run(None, {"x": x.numpy()})[0]

    before = run("model.onnx")
    adjust_file(tmp_path / "model.onnx", tmp_path / "adjusted.onnx", tuned)
    moved = np.log(before / (1 - before)) + tuned.adjustment.offset
    apart = np.abs(moved) > 1e-4
    np.testing.assert_array_equal((run("adjusted.onnx") > 0.5)[apart], (moved > 0)[apart])
    undo_file(tmp_path / "adjusted.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()


REFUSED = r"several labels per sample \({}\), .* changes no decision; tune with the task multilabel"


@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
def test_a_sigmoid_in_an_onnx_file_refuses_rules_of_classes(trained, tmp_path, rule):
    onnx_file(trained[0], tmp_path / "model.onnx")
    with pytest.raises(lh.LevelheadError, match=REFUSED.format("a Sigmoid follows it")):
        adjust_file(tmp_path / "model.onnx", tmp_path / "out.onnx", at(rule), COUNTS)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("last", ["Softmax", "ArgMax"])
def test_a_softmax_or_argmax_in_an_onnx_file_refuses_labels(trained, tuned, tmp_path, last):
    onnx_file(trained[0], tmp_path / "model.onnx", last)
    with pytest.raises(
        lh.LevelheadError, match=r"one class per sample .* but several labels were tuned"
    ):
        adjust_file(tmp_path / "model.onnx", tmp_path / "out.onnx", tuned)
    adjust_file(tmp_path / "model.onnx", tmp_path / "out.onnx", at("rescale"), COUNTS)


def test_nothing_is_guessed_of_a_graph_that_ends_in_logits(trained, tuned, tmp_path):
    onnx_file(trained[0], tmp_path / "model.onnx", "")
    adjust_file(tmp_path / "model.onnx", tmp_path / "a.onnx", tuned)
    adjust_file(tmp_path / "model.onnx", tmp_path / "b.onnx", at("rescale"), COUNTS)
    assert len({(tmp_path / f"{name}.onnx").read_bytes() for name in ("model", "a", "b")}) == 3


def test_a_config_next_to_the_file_says_the_task(trained, tuned, tmp_path):
    save_file(trained[0].state_dict(), tmp_path / "model.safetensors")
    path, out = tmp_path / "model.safetensors", tmp_path / "out.safetensors"
    (tmp_path / "config.json").write_text(
        json.dumps({"problem_type": "multi_label_classification"})
    )
    with pytest.raises(
        lh.LevelheadError, match=REFUSED.format("its config says multi_label_classification")
    ):
        adjust_file(path, out, at("rescale"), COUNTS)
    adjust_file(path, out, tuned)
    (tmp_path / "config.json").write_text(
        json.dumps({"problem_type": "single_label_classification"})
    )
    with pytest.raises(
        lh.LevelheadError, match=r"one class per sample .* but several labels were tuned"
    ):
        adjust_file(path, out, tuned, force=True)


class Configured(nn.Linear):
    """A head that says its task as transformers do."""

    class config:
        problem_type = "multi_label_classification"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Configured(20, K), "its config says multi_label_classification"),
        (nn.Sequential(nn.Linear(20, K), nn.Sigmoid()), "a Sigmoid follows it"),
        (
            nn.Sequential(nn.Sequential(nn.Linear(20, K)), nn.Dropout(), nn.Sigmoid()),
            "a Sigmoid follows it",
        ),
    ],
    ids=["config", "Sigmoid", "block"],
)
def test_a_model_known_to_be_multi_label_refuses_rules_of_classes(model, reason, tuned):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    classes = lh.tune_unlabelled(np.eye(K) + 1, counts=COUNTS, rule="shift")
    for call in (
        lambda: lh.rescale_(model, range(6, 0, -1), gamma=0.3),
        lambda: lh.adjust_(model, classes),
    ):
        with pytest.raises(lh.LevelheadError, match=REFUSED.format(reason)) as error:
            call()
        assert "\n" not in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    lh.adjust_(model, tuned)


def test_a_model_known_to_be_of_classes_refuses_labels(tuned):
    with pytest.raises(
        lh.LevelheadError, match=r"0 gives one class per sample \(a softmax follows it\)"
    ):
        lh.adjust_(nn.Sequential(nn.Linear(20, K), nn.Softmax(1)), tuned)


def test_a_head_of_other_labels_is_refused(tuned):
    with pytest.raises(lh.LevelheadError, match="has 4 outputs, but 6 labels were tuned"):
        lh.adjust_(nn.Linear(20, 4), tuned)
    with pytest.raises(lh.LevelheadError, match="the head has 4 outputs, but 6 labels were tuned"):
        lh.adjust(lh.Head(np.ones((4, 3))), tuned)


def test_one_label_is_one_logit():
    tuned = lh.tune_labels([[-1.0], [-2.0], [-3.0], [-2.5]], [[1], [1], [0], [0]])
    head = lh.Head(np.ones((1, 2)), np.zeros(1))
    assert lh.adjust(head, tuned).bias == pytest.approx(2.25)
    model = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
    before = model[0].bias.item()
    lh.adjust_(model, tuned)
    assert model[0].bias.item() == pytest.approx(before + 2.25)


# The command line


def test_from_held_out_files_to_a_leveled_file(levelhead, trained, tmp_path):
    model, x, y = trained
    logits, truth, names = model(x[:400]).detach().numpy(), y[:400], list("abcdef")

    def write(path, titles, rows):
        path.write_text(
            "\n".join(",".join(map(str, row)) for row in [titles, *rows.tolist()]) + "\n"
        )

    write(tmp_path / "logits.csv", names, logits)
    write(
        tmp_path / "labels.csv",
        ["id", *names[::-1]],
        np.column_stack([np.arange(400) + 7, truth[:, ::-1]]),
    )
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    words = (
        "--logits",
        tmp_path / "logits.csv",
        "--labels",
        tmp_path / "labels.csv",
        "--task",
        "multilabel",
    )
    status, output, told = levelhead(
        "tune", *words, "--floor", "b=0.7", "-o", tmp_path / "tuned.json"
    )
    assert status == 0, told
    assert "(b)" in output
    expected = lh.tune_labels(
        logits, truth, metric=lh.Goal("macro_f1", floors={"b": 0.7}), names=names
    )
    assert expected.metric == "macro_f1"
    written = json.loads((tmp_path / "tuned.json").read_text())
    np.testing.assert_allclose(written["offset"], expected.adjustment.offset, rtol=1e-5)
    assert written["counts"] == truth.sum(axis=0).tolist()
    model_file, out = tmp_path / "model.safetensors", tmp_path / "o.safetensors"
    status, _, told = levelhead("adjust", model_file, "--tuned", tmp_path / "tuned.json", "-o", out)
    assert status == 0, told
    bias = load_file(tmp_path / "o.safetensors")["2.bias"] - model.state_dict()["2.bias"]
    np.testing.assert_allclose(bias, expected.adjustment.offset, atol=1e-5)
    words = ("apply", tmp_path / "logits.csv", "--tuned", tmp_path / "tuned.json")
    status, _, told = levelhead(*words, "--labels-out", tmp_path / "there.csv")
    assert status == 0, told
    there = pd.read_csv(tmp_path / "there.csv")
    assert list(there) == names
    np.testing.assert_array_equal(there > 0, expected.apply(logits) > 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "z.npy: no array 'labels' next to the logits in this file; pass --labels to give"),
        (
            ("--labels", "classes.npy"),
            "--labels: expected 0 or 1 for each label of each sample, [N, K]",
        ),
        (
            ("--labels", "y.npy", "--rule", "tau"),
            "--rule: not for several labels per sample; leave it out",
        ),
        (
            ("--labels", "y.npy", "--target", "0.5,0.5"),
            "--target: not for several labels per sample",
        ),
    ],
)
def test_bad_words_end_in_one_line(levelhead, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("z.npy", rng.normal(size=(50, 2)))
    np.save("y.npy", rng.integers(2, size=(50, 2)))
    np.save("classes.npy", rng.integers(2, size=50))
    status, _, told = levelhead("tune", "--logits", "z.npy", "--task", "multilabel", *words)
    assert status == 2
    assert message in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
def test_who_forgets_the_task_is_told_of_it(levelhead, tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    truth = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]] * 20)
    tables = {"scores": 2.5 * truth - 1, "truth": truth}
    for name, values in tables.items():
        np.save(f"{name}.npy", values)
        pd.DataFrame(values, columns=["cat", "dog", "owl"]).to_csv(f"{name}.csv", index=False)
    status, _, told = levelhead("tune", "--logits", f"scores{suffix}", "--labels", f"truth{suffix}")
    assert (status, told.count("\n")) == (2, 1)
    assert "multilabel" in told


def test_several_labels_have_no_probabilities_to_write(levelhead, tuned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("z.npy", np.zeros((4, K)))
    tuned.save("tuned.json")
    status, _, told = levelhead("apply", "z.npy", "--tuned", "tuned.json", "-o", "p.npy", "--proba")
    assert (status, told.count("\n")) == (2, 1)
    assert "several labels per sample" in told
    assert "tune with labels" not in told
