"""Offsets in a head without a bias: along the direction in which its features are 1, so that only weights change."""

import json
import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, save
from onnx.numpy_helper import from_array
from safetensors.torch import load_file, save_file
from torch import nn

import levelhead as lh
from levelhead.cli import app
from levelhead.core.constant_direction import RIDGES, constant_direction
from levelhead.files import large as large_heads
from levelhead.files.model import adjust_file, adjusted_text
from levelhead.files.undo import undo_file
from levelhead.heads.adjust import check_adjust

from .chosen import tuned_for

# Not installed with the tests alone, as its wheels ask for CUDA.
resnet18 = pytest.importorskip("torchvision.models").resnet18

COUNTS = [400, 100, 50, 10]
K = len(COUNTS)
SHIFT = lh.rules.Shift(1.0)
OFFSETS = np.log(400 / np.array(COUNTS))
DRAW = np.random.default_rng(0)
FEATURES = np.maximum(DRAW.normal(size=(300, 12)) + 0.5, 0).astype(
    np.float32
)  # as a ReLU gives them


@pytest.mark.parametrize("shape", [(60, 5), (12, 30)], ids=["samples", "features"])
def test_direction_is_a_ridge_regression_of_one_judged_on_samples_left_out(shape):
    features = np.random.default_rng(1).normal(size=shape) + 1
    direction, unseen = constant_direction(features)
    unit = (features**2).sum() / shape[1]
    naive = []
    for ridge in RIDGES * unit:

        def fit(rows, ridge=ridge):
            gram = rows.T @ rows + ridge * np.eye(shape[1])
            return np.linalg.solve(gram, rows.sum(axis=0))

        left_out = [features[i] @ fit(np.delete(features, i, axis=0)) for i in range(shape[0])]
        naive.append((np.mean((np.array(left_out) - 1) ** 2), fit(features), left_out))
    _, expected, left_out = min(naive, key=lambda each: each[0])
    np.testing.assert_allclose(direction, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(unseen, left_out, rtol=1e-4, atol=1e-5)


def test_head_takes_offsets_along_that_direction():
    head = lh.Head(DRAW.normal(size=(K, 12)).astype(np.float32))
    adjusted = lh.adjust(head, SHIFT, COUNTS, features=FEATURES)
    assert adjusted.bias is None
    direction, _ = constant_direction(FEATURES.astype(np.float64))
    moved = adjusted.logits(FEATURES) - head.logits(FEATURES)
    np.testing.assert_allclose(moved, np.outer(FEATURES @ direction, OFFSETS), atol=1e-4)
    assert lh.adjust(head, SHIFT, COUNTS).bias is not None


def test_head_with_a_bias_needs_no_features():
    layer = nn.Linear(12, K)
    weight = layer.weight.detach().clone()
    adjusted = lh.adjust_(layer, SHIFT, COUNTS, features=FEATURES)
    assert adjusted.along is None
    assert torch.equal(layer.weight, weight)


def test_scales_and_offsets_together():
    layer = nn.Linear(12, K, bias=False)
    tuned = tuned_for("vector", counts=COUNTS)
    before = layer(torch.tensor(FEATURES)).detach().numpy()
    with lh.adjust_(layer, tuned, features=FEATURES) as adjusted:
        assert layer.bias is None
        reach = FEATURES @ adjusted.along.direction
        wanted = before * tuned.adjustment.scale + np.outer(reach, tuned.adjustment.offset)
        np.testing.assert_allclose(layer(torch.tensor(FEATURES)).detach(), wanted, atol=1e-4)
    np.testing.assert_array_equal(layer(torch.tensor(FEATURES)).detach(), before)


def test_result_says_how_far_the_offsets_reach():
    layer = nn.Linear(12, K, bias=False)
    adjusted = lh.adjust_(layer, SHIFT, COUNTS, features=torch.tensor(FEATURES))
    _, unseen = constant_direction(FEATURES.astype(np.float64))
    assert adjusted.along.mean == pytest.approx(unseen.mean())
    assert adjusted.along.spread == pytest.approx(unseen.std())
    assert adjusted.along.samples == 300
    assert 0.5 < adjusted.along.agrees <= 1
    for text in (repr(adjusted), adjusted._repr_html_()):
        assert f"{unseen.mean():.2f} ± {unseen.std():.2f}" in text


def test_second_adjustment_is_noticed():
    layer = nn.Linear(12, K, bias=False)
    lh.adjust_(layer, SHIFT, COUNTS, features=FEATURES)
    with pytest.raises(lh.LevelheadError, match="was adjusted already"):
        lh.adjust_(layer, SHIFT, COUNTS, features=FEATURES)


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (FEATURES[:, :5], r"features: expected numbers \[N, 12\].*got \[300, 5\]"),
        (FEATURES[:1], "features: expected several samples"),
        (np.full((5, 12), np.nan), "features: expected finite numbers"),
        (FEATURES.astype(int), "features: expected numbers"),
        (np.vstack([FEATURES, -FEATURES]), r"features: no direction in them is 1.*rule scales"),
    ],
)
def test_features_that_do_not_fit_are_refused_and_nothing_changes(features, reason):
    layer = nn.Linear(12, K, bias=False)
    before = layer.weight.detach().clone()
    with pytest.raises(lh.LevelheadError, match=reason):
        lh.adjust_(layer, SHIFT, COUNTS, features=features)
    assert torch.equal(layer.weight, before)
    assert layer.bias is None


# The head's inputs


def test_collected_features_are_what_the_head_takes():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, K, bias=False))
        x = torch.randn(50, 6)
    labels = torch.arange(50) % K
    held_out = lh.collect(model, [(x[:30], labels[:30]), (x[30:], labels[30:])], features=True)
    logits, kept = held_out
    assert torch.equal(kept, labels)
    assert torch.allclose(held_out.features, model[:2](x), atol=1e-6)
    assert torch.allclose(held_out.features @ model[2].weight.T, logits, atol=1e-5)
    assert lh.collect(model, [(x, labels)]).features is None


class Tokens(nn.Module):
    def __init__(self, pool=None):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.fc = nn.Linear(8, K, bias=False)
        self.pool = pool or (lambda z: z)

    def forward(self, x):
        return self.pool(self.fc(self.body(x).relu()))


@pytest.mark.parametrize(
    "pool", [lambda z: z[:, 0], lambda z: z[torch.arange(len(z)), torch.arange(len(z)) % 3], lambda z: z.mean(1)]
)  # fmt: skip
def test_features_of_a_sample_are_those_of_the_token_that_stands_for_it(pool):
    model = Tokens(pool)
    x = torch.randn(20, 3, 6)
    logits, _ = held_out = lh.collect(model, [(x, torch.arange(20) % K)], features=True)
    assert held_out.features.shape == (20, 8)
    assert torch.allclose(held_out.features @ model.fc.weight.T, logits, atol=1e-5)


def test_features_of_tokens_leave_out_what_is_ignored():
    model = Tokens()
    x, labels = torch.randn(5, 7, 6), torch.arange(35).reshape(5, 7) % K
    labels[:, 4:] = -100
    logits, _ = held_out = lh.collect(model, [(x, labels)], features=True)
    assert held_out.features.shape == (20, 8)
    assert torch.allclose(held_out.features @ model.fc.weight.T, logits, atol=1e-5)


def test_features_of_pixels_and_of_their_mean():
    x = torch.randn(4, 3, 5, 5)
    head = nn.Conv2d(6, K, 1, bias=False)
    for pool, labels in (
        ((), torch.zeros(4, 5, 5, dtype=torch.long)),
        ((nn.AdaptiveAvgPool2d(1), nn.Flatten()), torch.zeros(4, dtype=torch.long)),
    ):
        model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), head, *pool)
        logits, _ = held_out = lh.collect(model, [(x, labels)], features=True)
        assert torch.allclose(held_out.features @ head.weight.flatten(1).T, logits, atol=1e-5)


def test_features_that_do_not_make_the_logits_are_refused():
    model = Tokens(lambda z: z.amax(1))
    with pytest.raises(lh.LevelheadError, match="features: the model's logits"):
        lh.collect(model, [(torch.randn(20, 3, 6), torch.arange(20) % K)], features=True)


# Saved and loaded by their own libraries


def offsets_of(adjusted, features):
    """Return what each logit got, [N, K]."""
    return np.outer(features @ adjusted.along.direction, adjusted.adjustment.offset)


def network():
    """A ResNet without a bias in its head."""
    model = resnet18(num_classes=K)
    model.fc = nn.Linear(512, K, bias=False)
    return model.eval()


def test_resnet_without_a_bias_is_adjusted_saved_and_loaded(tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = network()
        images = torch.randn(40, 3, 32, 32)
    labels = torch.arange(40) % K
    logits, _ = held_out = lh.collect(model, [(images, labels)], features=True)
    adjusted = lh.adjust_(model, SHIFT, COUNTS, features=held_out.features)
    assert adjusted.checked == "forward"
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = network()
    loaded.load_state_dict(torch.load(tmp_path / "model.pt"))
    with torch.no_grad():
        after = loaded(images)
    wanted = logits.numpy() + offsets_of(adjusted, held_out.features.numpy())
    assert np.allclose(after, wanted, atol=1e-5 * np.abs(wanted).max())
    assert np.allclose(after - logits, OFFSETS, atol=0.3)


@pytest.mark.parametrize("suffix", ["safetensors", "pt", "onnx"])
def test_file_of_a_resnet_without_a_bias_is_adjusted_as_the_network_is(tmp_path, suffix):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = network()
        images = torch.randn(40, 3, 32, 32)
    path, out = (tmp_path / f"{name}.{suffix}" for name in ("plain", "adjusted"))
    if suffix == "onnx":
        options = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}, "dynamo": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's exporter
            torch.onnx.export(model, (images,), str(path), **options)
    elif suffix == "pt":
        torch.save(model.state_dict(), path)
    else:
        save_file(model.state_dict(), path)
    held_out = lh.collect(model, [(images, torch.arange(40) % K)], features=True)
    lh.adjust_(model, SHIFT, COUNTS, features=held_out.features)
    with torch.no_grad():
        wanted = model(images).numpy()
    adjust_file(path, out, SHIFT, COUNTS, features=held_out.features)
    if suffix == "onnx":
        (after,) = onnxruntime.InferenceSession(out).run(None, {"x": images.numpy()})
    else:
        loaded = network()
        loaded.load_state_dict(torch.load(out) if suffix == "pt" else load_file(out))
        with torch.no_grad():
            after = loaded(images).numpy()
    assert np.allclose(after, wanted, atol=1e-5 * np.abs(wanted).max())
    assert np.array_equal(after.argmax(axis=1), wanted.argmax(axis=1))


SMALL = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "num_labels": K,
    "pad_token_id": 0,
}


@pytest.fixture(scope="module")
def llama():
    """A function that makes the same small Llama, and held-out samples: tokens of different lengths, and labels."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    def make():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = LlamaForSequenceClassification(LlamaConfig(**SMALL)).eval()
            # A norm of one's own gives features a direction of their mean, as training does.
            model.model.norm.weight.data = torch.rand(16)
            model.model.embed_tokens.weight.data += 1
            return model

    tokens = torch.randint(1, 20, (60, 5), generator=torch.Generator().manual_seed(1))
    tokens[::2, 3:] = 0
    return make, [{"input_ids": tokens, "labels": torch.arange(60) % K}]


def scores(model, batches):
    return lh.collect(model.eval(), batches)[0].float().numpy()


@pytest.mark.slow  # transformers takes seconds to import
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # torch's own, where a CPU lacks BF16
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_llama_is_adjusted_saved_and_loaded(llama, tmp_path, dtype):
    make, batches = llama
    model = make().to(dtype)
    with pytest.raises(lh.LevelheadError, match=r"bias.*would not load it again.*features"):
        lh.adjust_(model, SHIFT, COUNTS)
    logits, _ = held_out = lh.collect(model, batches, features=True)
    adjusted = lh.adjust_(model, SHIFT, COUNTS, features=held_out.features)
    assert adjusted.checked == "own inputs"
    after = scores(model, batches)
    wanted = logits.float().numpy() + offsets_of(adjusted, held_out.features.float().numpy())
    assert np.allclose(after, wanted, atol=1e-5 if dtype == torch.float32 else 0.1)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype=dtype)
    assert np.allclose(scores(loaded, batches), after, atol=1e-5)
    with pytest.raises(lh.LevelheadError, match="was adjusted already"):
        lh.adjust_(loaded, SHIFT, COUNTS, features=held_out.features)


@pytest.mark.slow
def test_bias_that_would_be_lost_is_refused_before_training(llama):
    make, _ = llama
    with pytest.raises(lh.LevelheadError, match="would not load it again"):
        check_adjust(make(), SHIFT, COUNTS)
    check_adjust(make(), lh.rules.Rescale(0.5), COUNTS)


@pytest.mark.slow
def test_file_of_a_llama_is_adjusted_as_the_model_is(llama, tmp_path, capsys):
    make, batches = llama
    model = make()
    model.save_pretrained(tmp_path / "plain")
    held_out = lh.collect(model, batches, features=True)
    np.save(tmp_path / "features.npy", held_out.features.numpy())
    path = tmp_path / "plain" / "model.safetensors"
    out = tmp_path / "plain" / "adjusted.safetensors"
    with pytest.raises(lh.LevelheadError, match=r"no bias to add to.*features"):
        adjust_file(path, out, SHIFT, COUNTS)
    app(
        ["adjust", str(path), "--rule", "shift", "--strength", "1", "--counts", "400,100,50,10",
         "--features", str(tmp_path / "features.npy"), "-o", str(out)], standalone_mode=False,
    )  # fmt: skip
    assert "of each offset" in capsys.readouterr().out
    lh.adjust_(model, SHIFT, COUNTS, features=held_out.features)
    assert torch.allclose(load_file(out)["score.weight"], model.score.weight, atol=1e-5)
    (tmp_path / "loaded").mkdir()
    for name, source in (("model.safetensors", out), ("config.json", path.parent / "config.json")):
        (tmp_path / "loaded" / name).write_bytes(source.read_bytes())
    loaded = type(model).from_pretrained(tmp_path / "loaded")
    assert np.allclose(scores(loaded, batches), scores(model, batches), atol=1e-5)
    with pytest.raises(lh.LevelheadError, match="was adjusted already"):
        lh.adjust_(loaded, SHIFT, COUNTS, features=held_out.features)
    undo_file(out, tmp_path / "back.safetensors")
    assert (tmp_path / "back.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_adapter_of_a_llama_is_adjusted_saved_and_loaded(llama, tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model

    make, batches = llama
    lora = LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj"], init_lora_weights=False)
    model = get_peft_model(make(), lora).eval()
    model.save_pretrained(tmp_path / "plain")
    held_out = lh.collect(model, batches, features=True)
    with pytest.raises(lh.LevelheadError, match=r"PEFT.*features"):
        lh.adjust_(model, SHIFT, COUNTS)
    lh.adjust_(model, SHIFT, COUNTS, features=held_out.features)
    model.save_pretrained(tmp_path / "adjusted")
    loaded = PeftModel.from_pretrained(make(), tmp_path / "adjusted")
    assert np.allclose(scores(loaded, batches), scores(model, batches), atol=1e-5)
    name = "adapter_model.safetensors"
    adjust_file(
        tmp_path / "plain" / name, tmp_path / name, SHIFT, COUNTS, features=held_out.features
    )
    (tmp_path / "plain" / name).write_bytes((tmp_path / name).read_bytes())
    loaded = PeftModel.from_pretrained(make(), tmp_path / "plain")
    assert np.allclose(scores(loaded, batches), scores(model, batches), atol=1e-5)


@pytest.mark.slow  # Keras takes seconds to import
@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_keras_model_without_a_bias_is_adjusted_saved_and_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    top = keras.layers.Dense(K, use_bias=False)
    model = keras.Sequential([keras.Input((12,)), top])
    before = keras.ops.convert_to_numpy(model(FEATURES))
    adjusted = lh.adjust_(model, SHIFT, COUNTS, features=FEATURES)
    assert adjusted.checked == "graph"
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    after = keras.ops.convert_to_numpy(loaded(FEATURES))
    assert np.allclose(after, before + offsets_of(adjusted, FEATURES), atol=1e-4)


# Files


def test_offsets_in_the_weights_of_a_file_are_noted_and_undone(tmp_path):
    path, out, back = (tmp_path / f"{name}.safetensors" for name in ("model", "out", "back"))
    save_file({"fc.weight": torch.randn(K, 12)}, path)
    done = adjust_file(path, out, SHIFT, COUNTS, features=FEATURES)
    assert "of each offset" in adjusted_text(done)
    with pytest.raises(lh.LevelheadError, match="was adjusted before"):
        adjust_file(out, back, SHIFT, COUNTS, features=FEATURES)
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()
    (tmp_path / "out.safetensors.original").unlink()
    with pytest.raises(lh.LevelheadError, match=r"in the weights.*out\.safetensors\.original"):
        undo_file(out, tmp_path / "again.safetensors")


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_onnx_head_without_a_bias_takes_offsets_into_its_weights(tmp_path, op):
    weight = DRAW.normal(size=(12, K)).astype(np.float32)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", n])
        for name, n in (("x", 12), ("y", K))
    ]
    node = helper.make_node(op, ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", values[:1], values[1:], [from_array(weight, "w")])
    opset = [helper.make_opsetid("", 17)]
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    done = adjust_file(path, out, SHIFT, COUNTS, features=FEATURES)
    session = onnxruntime.InferenceSession(out)
    (after,) = session.run(None, {"x": FEATURES})
    wanted = FEATURES @ weight + np.outer(FEATURES @ done.along.direction, OFFSETS)
    assert np.allclose(after, wanted, atol=1e-5)
    undo_file(out, tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == path.read_bytes()


def test_result_of_the_command_line_is_json(tmp_path, capsys):
    save_file({"fc.weight": torch.randn(K, 12)}, tmp_path / "model.safetensors")
    np.save(tmp_path / "features.npy", FEATURES)
    app(
        ["adjust", str(tmp_path / "model.safetensors"), "--rule", "shift", "--strength", "1",
         "--counts", "400,100,50,10", "--features", str(tmp_path / "features.npy"),
         "-o", str(tmp_path / "out.safetensors"), "--json"], standalone_mode=False,
    )  # fmt: skip
    along = json.loads(capsys.readouterr().out)["along"]
    assert along["samples"] == 300
    assert len(along["direction"]) == 12


def test_file_says_whether_its_gain_was_judged_for_these_weights(tmp_path):
    save_file({"fc.weight": torch.randn(K, 12)}, tmp_path / "model.safetensors")
    labels = np.repeat(np.arange(K), [150, 70, 50, 30])
    logits = 2 * np.eye(K)[labels] + DRAW.normal(size=(300, K)) + np.log(COUNTS)
    for features, judged in ((None, False), (FEATURES, True)):
        tuned = lh.tune(logits, labels, COUNTS, features=features)
        out = tmp_path / f"{judged}.safetensors"
        done = adjust_file(tmp_path / "model.safetensors", out, tuned, features=FEATURES)
        assert ("note: its gain was judged for a bias" in adjusted_text(done)) is not judged


def test_large_head_is_changed_as_a_small_one(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    save_file({"fc.weight": torch.randn(K, 12)}, path)
    adjust_file(path, tmp_path / "small.safetensors", SHIFT, COUNTS, features=FEATURES)
    monkeypatch.setattr(large_heads, "LARGE", 1)
    adjust_file(path, tmp_path / "large.safetensors", SHIFT, COUNTS, features=FEATURES)
    small, large = (tmp_path / f"{name}.safetensors" for name in ("small", "large"))
    assert small.read_bytes() == large.read_bytes()
