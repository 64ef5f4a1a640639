"""The places where a head can live: how to make one of each, and what must happen. No edit may be wrong.

A row is judged by what its scores do: after RS at strength 0.5 each must be the old one times (n_1 / n)^0.5 or,
where the rule is the shift, plus its logarithm, as numpy computes it. A refusal must leave everything as it was, and
name what could be the head or what to do.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("KERAS_BACKEND", "torch")

import numpy as np
import torch
from torch import nn

import levelhead as lh
from levelhead.files.model import adjust_file

COUNTS = [100, 25, 4]
FACTORS = np.array([1.0, 2.0, 5.0])
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 8)).astype(np.float32)
IDS = torch.arange(1, 11).reshape(2, 5)
TEXT = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}
TEXT |= {"num_labels": 3, "pad_token_id": 0}


@dataclass(frozen=True)
class Place:
    """One row: a kind of model, and what must happen.

    Args:
        name, library: of the model, and what is needed to make it.
        judge: (folder to work in) -> what was edited; raises LevelheadError for a refusal, AssertionError for a wrong
            edit.
        expected: `right`, or `refused`.
        says: what the layer, or the reason of a refusal, must contain.
    """

    name: str
    library: str
    judge: Callable[[Path], str]
    expected: Literal["right", "refused"] = "right"
    says: str = ""


@dataclass(frozen=True)
class Verdict:
    """What happened: `right`, `refused` or `wrong`, with the layers or the reason."""

    verdict: str
    detail: str


def judge(place: Place, folder: Path) -> Verdict:
    """Make a model, try to adjust it, and say what happened."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Verdict("right", place.judge(folder))
    except lh.LevelheadError as error:
        return Verdict("refused", str(error).replace(f"{folder}/", ""))
    except AssertionError as error:
        return Verdict("wrong", str(error))


def as_expected(place: Place, found: Verdict) -> bool:
    return found.verdict == place.expected and place.says in found.detail


def check_scaled(before: Any, after: Any, by: Any = FACTORS) -> None:
    before, expected = np.asarray(before, np.float64), np.asarray(before, np.float64) * by
    off = float(np.abs(np.asarray(after, np.float64) - expected).max() / np.abs(expected).max())
    assert off < 1e-4, f"scores are {off:.3g} off"
    assert np.abs(before - expected).max() > 1e-2 * np.abs(expected).max(), (
        "the factors change nothing here"
    )


# torch modules: (model, example as keyword arguments)


def run_torch(model: nn.Module, example: dict[str, Any]) -> np.ndarray:
    model.eval()
    with torch.no_grad():
        output = model(**example) if "x" not in example else model(example["x"])
    values = output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)
    values = values if isinstance(values, torch.Tensor) else output["out"]
    return (values.movedim(1, -1) if values.ndim == 4 else values).double().numpy()


def in_torch(make: Callable[[], tuple[Any, dict[str, Any]]], folder: Path, **options: Any) -> str:
    model, example = make()
    if options.pop("example", False):
        options["example"] = example.get("x", example)
    counts, by = options.pop("counts", COUNTS), options.pop("by", FACTORS)
    state = {
        name: p.clone() for name, p in model.state_dict().items() if isinstance(p, torch.Tensor)
    }
    before = run_torch(model, example) if options.pop("run", True) else np.ones(3)
    try:
        done = lh.rescale_(model, counts, gamma=0.5, **options)
    except lh.LevelheadError:
        for name, p in model.state_dict().items():
            assert not isinstance(p, torch.Tensor) or torch.equal(p, state[name]), (
                f"refused, but {name} was changed"
            )
        raise
    check_scaled(before, run_torch(model, example), by)
    done.restore()
    assert np.array_equal(run_torch(model, example), before), "not restored"
    return ", ".join(done.layers)


def hugging_face(name: str, config: str, **fields: Any) -> tuple[Any, dict[str, Any]]:
    hf = library("transformers")
    return getattr(hf, name)(getattr(hf, config)(**{**TEXT, **fields})), {"input_ids": IDS}


def vit() -> tuple[Any, dict[str, Any]]:
    model, _ = hugging_face("ViTForImageClassification", "ViTConfig", image_size=16, patch_size=8)
    return model, {"pixel_values": torch.randn(2, 3, 16, 16)}


def with_adapter() -> tuple[Any, dict[str, Any]]:
    peft, (model, example) = (
        library("peft"),
        hugging_face("BertForSequenceClassification", "BertConfig"),
    )
    return peft.get_peft_model(
        model, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"])
    ), example


def second_time(kind: Literal["loaded", "file", "adapter"], folder: Path) -> str:
    """Adjust a model in memory, save it, and adjust it again: loaded, as a file, or loaded as an adapter."""
    model, _ = (
        with_adapter()
        if kind == "adapter"
        else hugging_face("BertForSequenceClassification", "BertConfig")
    )
    lh.rescale_(model, COUNTS, gamma=0.5)
    model.save_pretrained(folder / "adjusted")
    if kind == "file":
        adjust_file(folder / "adjusted", folder / "twice", lh.rules.Rescale(0.5), COUNTS)
    elif kind == "loaded":
        lh.rescale_(type(model).from_pretrained(folder / "adjusted"), COUNTS, gamma=0.5)
    else:
        base, _ = hugging_face("BertForSequenceClassification", "BertConfig")
        lh.rescale_(
            library("peft").PeftModel.from_pretrained(base, folder / "adjusted"), COUNTS, gamma=0.5
        )
    raise AssertionError("it was adjusted twice")


def timm_model(name: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    model = library("timm").create_model(name, num_classes=3, **options)
    for p in model.parameters():
        if not p.any():
            nn.init.normal_(p, std=0.02)
    return model, {"x": torch.randn(1, 3, 64, 64)}


def torchvision_model(name: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    return library("torchvision.models").get_model(name, weights=None, **options), {
        "x": torch.randn(1, 3, 64, 64)
    }


def lightning_module() -> tuple[Any, dict[str, Any]]:
    class Module(library("lightning.pytorch").LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x)

    return Module(), {"x": torch.tensor(X)}


def layers(*more: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    return nn.Sequential(nn.Linear(8, 5), nn.ReLU(), *more), {"x": torch.tensor(X)}


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x) * self.other(x)


def detector() -> tuple[Any, dict[str, Any]]:
    hf = library("transformers")
    backbone = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic"
    )
    backbone.out_features = ["stage2"]
    config = hf.DetrConfig(
        use_timm_backbone=False, backbone=None, backbone_config=backbone, d_model=16, encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_queries=5,
        num_labels=3,
    )  # fmt: skip
    return hf.DetrForObjectDetection(config), {"pixel_values": torch.randn(1, 3, 64, 64)}


DETECTOR = {"counts": [100, 25, 4, 10**6], "by": [1, 2, 5, 1], "background": 3}


# model files: written, adjusted, and run again by the program they are for


def in_file(
    write: Callable[[Path], tuple[Path, Callable[[Path], np.ndarray]]],
    folder: Path,
    rule: lh.rules.Rule | None = None,
    **options: Any,
) -> str:
    path, run = write(folder)
    out = path.with_name(f"out{''.join(path.suffixes)}")
    done = adjust_file(path, out, rule or lh.rules.Rescale(0.5), COUNTS, **options)
    if done.rule == "shift":
        assert np.allclose(run(out), run(path) + np.log(FACTORS), atol=1e-4), (
            "scores are not shifted"
        )
    else:
        check_scaled(run(path), run(out))
    return ", ".join(done.head)


def safetensors_of(
    make: Callable[[], tuple[Any, dict[str, Any]]], folder: Path
) -> tuple[Path, Any]:
    from safetensors.torch import load_file, save_file

    model, example = make()
    save_file(model.state_dict(), folder / "m.safetensors")

    def run(path: Path) -> np.ndarray:
        model.load_state_dict(load_file(path))
        return run_torch(model, example)

    return folder / "m.safetensors", run


def state_dict(folder: Path) -> tuple[Path, Any]:
    model, example = layers(nn.Linear(5, 3))
    torch.save(model.state_dict(), folder / "m.pt")

    def run(path: Path) -> np.ndarray:
        model.load_state_dict(torch.load(path, weights_only=True))
        return run_torch(model, example)

    return folder / "m.pt", run


def flax_safetensors(folder: Path) -> tuple[Path, Any]:
    from safetensors.numpy import load_file, save_file

    tensors = {"params.classifier.kernel": RNG.normal(size=(8, 3)).astype(np.float32)}
    save_file(
        {**tensors, "params.encoder.kernel": np.ones((8, 8), np.float32)}, folder / "m.safetensors"
    )
    return folder / "m.safetensors", lambda path: X @ load_file(path)["params.classifier.kernel"]


def run_onnx(path: Path) -> np.ndarray:
    session = library("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})[-1]


def onnx_export(folder: Path) -> tuple[Path, Any]:
    onnx, helper = library("onnx"), library("onnx.helper")
    weights = {"fc.weight": RNG.normal(size=(3, 8)), "fc.bias": RNG.normal(size=3)}
    tensors = [
        library("onnx.numpy_helper").from_array(w.astype(np.float32), name)
        for name, w in weights.items()
    ]
    info = [
        helper.make_tensor_value_info(name, 1, ["N", size]) for name, size in (("x", 8), ("y", 3))
    ]
    node = helper.make_node("Gemm", ["x", "fc.weight", "fc.bias"], ["y"], transB=1)
    graph = helper.make_graph([node], "g", info[:1], info[1:], tensors)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        folder / "m.onnx",
    )
    return folder / "m.onnx", run_onnx


def onnx_quantized(folder: Path) -> tuple[Path, Any]:
    path, run = onnx_export(folder)
    onnx, out = library("onnx"), folder / "q.onnx"
    model = onnx.load(path)
    tensors = {
        "q": np.ones((3, 8), np.int8), "s": np.array(0.1, np.float32), "z": np.array(0, np.int8)
    }  # fmt: skip
    model.graph.initializer.extend(
        library("onnx.numpy_helper").from_array(t, name) for name, t in tensors.items()
    )
    model.graph.node[0].input[1] = "w"
    model.graph.node.insert(
        0, library("onnx.helper").make_node("DequantizeLinear", ["q", "s", "z"], ["w"])
    )
    onnx.save(model, out)
    return out, run


def skl2onnx_file(folder: Path) -> tuple[Path, Any]:
    linear, skl2onnx = library("sklearn.linear_model"), library("skl2onnx")
    y = np.arange(60) % 3
    x = (RNG.normal(size=(60, 8)) + y[:, None]).astype(np.float32)
    model = linear.LogisticRegression().fit(x, y)
    options = {"zipmap": False, "raw_scores": True}
    made = skl2onnx.to_onnx(model, x[:1], options={id(model): options})
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    return folder / "m.onnx", run_onnx


def keras_model(*more: Any, **options: Any) -> Any:
    keras = library("keras")
    first = [keras.Input((8,)), keras.layers.Dense(3, activation="relu")]
    return keras.Sequential([*first, keras.layers.Dense(3, name="top", **options), *more])


def run_keras(model: Any) -> np.ndarray:
    return library("keras").ops.convert_to_numpy(model(X))


def in_keras(make: Callable[[], Any], folder: Path) -> str:
    model = make()
    before = run_keras(model)
    done = lh.rescale_(model, COUNTS, gamma=0.5)
    check_scaled(before, run_keras(model))
    done.restore()
    assert np.array_equal(run_keras(model), before), "not restored"
    return ", ".join(done.layers)


def keras_file(folder: Path) -> tuple[Path, Any]:
    keras_model().save(folder / "m.keras")
    return folder / "m.keras", lambda path: run_keras(library("keras").models.load_model(path))


def keras_weights(folder: Path) -> tuple[Path, Any]:
    model = keras_model()
    model.save_weights(folder / "m.weights.h5")

    def run(path: Path) -> np.ndarray:
        model.load_weights(path)
        return run_keras(model)

    return folder / "m.weights.h5", run


def foreign(name: str, folder: Path) -> str:
    (folder / name).write_bytes(bytes(64))
    return in_file(lambda folder: (folder / name, lambda path: X), folder)


# scikit-learn and boosting, judged by their scores


def imbalanced() -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat([0, 1, 2], COUNTS)
    return RNG.normal(size=(len(y), 8)) + y[:, None], y


def in_sklearn(make: Callable[[], Any], folder: Path) -> str:
    from levelhead.hosts.sklearn import AdjustedClassifier

    x, y = imbalanced()
    model = AdjustedClassifier(make(), lh.rules.Shift(0.5)).fit(x, y)
    inner = model.estimator_
    shifted = np.log(np.maximum(inner.predict_proba(x), np.finfo(float).tiny)) + np.log(FACTORS)
    scores = model.decision_function(x)
    assert (scores.argmax(1) == shifted.argmax(1)).all(), "scores are not shifted"
    return f"scores of {type(inner).__name__}, rule shift"


def sklearn_head(folder: Path) -> str:
    from levelhead.heads.sklearn import read, write

    x, y = imbalanced()
    model = library("sklearn.linear_model").LogisticRegression().fit(x, y)
    before = model.decision_function(x)
    write(model, lh.adjust(read(model), lh.rules.Rescale(0.5), COUNTS))
    check_scaled(before, model.decision_function(x))
    return "coef_, intercept_"


def of_lightgbm(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    lightgbm = library("lightgbm")
    settings = {
        "objective": "multiclass",
        "num_class": 3,
        "verbose": -1,
        "num_threads": 1,
        "num_leaves": 4,
    }
    return lightgbm.train(settings, lightgbm.Dataset(x, y), 5).predict


def of_xgboost(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    xgboost = library("xgboost")
    settings = {"objective": "multi:softprob", "num_class": 3, "nthread": 1, "max_depth": 2}
    booster = xgboost.train(settings, xgboost.DMatrix(x, y), 5)
    return lambda values: booster.predict(xgboost.DMatrix(values))


def booster(train: Callable[..., Callable[[np.ndarray], np.ndarray]], folder: Path) -> str:
    from levelhead.hosts.predictor import AdjustedPredictor

    x, y = imbalanced()
    predict = train(x, y)
    model = AdjustedPredictor(predict).fit(x, y, counts=COUNTS)
    assert model.tuned_ is not None
    moved = np.log(predict(x)) + model.tuned_.adjustment.offset
    assert np.allclose(model.decision_function(x), moved, atol=1e-6), "nothing is added to scores"
    return "scores of a Booster, rule offsets"


def one_logit(folder: Path) -> str:
    model, example = layers(nn.Linear(5, 1))
    before = run_torch(model, example)
    tuned = lh.tune_unlabelled(np.column_stack([np.zeros(6), before]), counts=[9, 1], rule="shift")
    lh.adjust_(model, tuned)
    assert np.allclose(run_torch(model, example), before + tuned.strength * np.log(9), atol=1e-5), (
        "not shifted"
    )
    return "2, rule shift"


def library(name: str) -> Any:
    """Import a library, or one of its modules."""
    import importlib

    return importlib.import_module(name)


def torch_row(name: str, library: str, make: Any, says: str = "", **options: Any) -> Place:
    expected = options.pop("expected", "right")
    return Place(name, library, partial(in_torch, make, **options), expected, says)


def file_row(name: str, library: str, write: Any, says: str = "", **options: Any) -> Place:
    expected = options.pop("expected", "right")
    return Place(name, library, partial(in_file, write, **options), expected, says)


def quantized() -> tuple[Any, dict[str, Any]]:
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack"  # the one that every processor has
    try:
        return layers(torch.ao.nn.quantized.dynamic.Linear(5, 3))
    finally:
        torch.backends.quantized.engine = engine


def tied() -> tuple[Any, dict[str, Any]]:
    model = TwoHeads()
    model.other.weight = model.one.weight
    return model, {"x": torch.tensor(X)}


no = {"expected": "refused"}
text = partial(partial, hugging_face)
PLACES: tuple[Place, ...] = (
    torch_row("BERT", "transformers", text("BertForSequenceClassification", "BertConfig"), "classifier"),
    torch_row("RoBERTa", "transformers", text("RobertaForSequenceClassification", "RobertaConfig"),
              "classifier.out_proj"),
    torch_row("GPT-2", "transformers",
              text("GPT2ForSequenceClassification", "GPT2Config", n_embd=8, n_layer=1, n_head=2), "score"),
    torch_row("Llama", "transformers", text("LlamaForSequenceClassification", "LlamaConfig"), "score"),
    torch_row("ViT", "transformers", vit, "classifier"),
    torch_row("token classification", "transformers", text("BertForTokenClassification", "BertConfig"), "classifier"),
    torch_row("multi-label text model", "transformers",
              text("BertForSequenceClassification", "BertConfig", problem_type="multi_label_classification"),
              "several labels per sample", **no),
    torch_row("DETR, by example", "transformers", detector, "class_labels_classifier", example=True, **DETECTOR),
    torch_row("DETR, alone", "transformers", detector, "bbox_predictor", **no, **DETECTOR),
    torch_row("LoRA adapter", "peft", with_adapter, "classifier.modules_to_save.default"),
    Place("text model, adjusted and loaded", "transformers", partial(second_time, "loaded"), "refused",
          "was adjusted already"),
    Place("text model, adjusted and saved", "transformers", partial(second_time, "file"), "refused",
          "was adjusted before"),
    Place("LoRA adapter, adjusted and loaded", "peft", partial(second_time, "adapter"), "refused",
          "was adjusted already"),
    torch_row("ResNet", "timm", partial(timm_model, "resnet18"), "fc"),
    torch_row("ConvNeXt", "timm", partial(timm_model, "convnext_atto"), "head.fc"),
    torch_row("distilled DeiT", "timm", partial(timm_model, "deit_tiny_distilled_patch16_224", img_size=64, depth=2),
              "head, head_dist"),
    torch_row("MobileNetV3", "torchvision", partial(torchvision_model, "mobilenet_v3_small", num_classes=3),
              "classifier.3"),
    torch_row("segmentation, 1x1 convolution", "torchvision",
              partial(torchvision_model, "lraspp_mobilenet_v3_large", weights_backbone=None, num_classes=3),
              "high_classifier", example=False, **no),
    torch_row("LightningModule", "lightning", lightning_module, "model.2"),
    torch_row("Sequential", "torch", partial(layers, nn.Linear(5, 3)), "2"),
    torch_row("torch.compile", "torch",
              lambda: (torch.compile(layers(nn.Linear(5, 3))[0], backend="eager"), layers()[1]), "2"),
    torch_row("pixels, 1x1 convolution", "torch",
              lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 1)), {"x": torch.randn(1, 3, 8, 8)}), "1"),
    torch_row("double precision", "torch", lambda: (nn.Linear(8, 3).double(), {"x": torch.tensor(X).double()}), ""),
    torch_row("two heads, alone", "torch", lambda: (TwoHeads(), {"x": torch.tensor(X)}), "one [3, 8], other [3, 8]",
              **no),
    torch_row("norm after the head", "torch", partial(layers, nn.Linear(5, 3), nn.BatchNorm1d(3)), "BatchNorm1d", **no),
    torch_row("one logit, RS", "torch", partial(layers, nn.Linear(5, 1)), "single logit", counts=[9, 1], **no),
    Place("one logit, shift", "torch", one_logit),
    torch_row("several labels", "torch", partial(layers, nn.Linear(5, 3), nn.Sigmoid()), "several labels", **no),
    torch_row("weight norm", "torch", lambda: layers(nn.utils.parametrizations.weight_norm(nn.Linear(5, 3))),
              "parametriz", **no),
    torch_row("tied weights", "torch", tied, "tied", layer="one", **no),
    torch_row("quantized", "torch", quantized, "quantized", run=False, **no),
    torch_row("TorchScript", "torch", lambda: (torch.jit.script(layers(nn.Linear(5, 3))[0]), layers()[1]),
              "TorchScript", **no),
    file_row("safetensors of a text model", "transformers",
             partial(safetensors_of, text("BertForSequenceClassification", "BertConfig")), "classifier"),
    file_row("state dict", "torch", state_dict, "2"),
    file_row("Flax safetensors", "safetensors", flax_safetensors, "params.classifier"),
    file_row("ONNX", "onnx", onnx_export, "fc"),
    file_row("ONNX, shift", "onnx", onnx_export, "fc", rule=lh.rules.Shift(0.5)),
    file_row("ONNX of skl2onnx", "skl2onnx", skl2onnx_file),
    file_row("quantized ONNX", "onnx", onnx_quantized, "quantiz", **no),
    Place("Keras model", "keras", partial(in_keras, keras_model), says="top"),
    Place("Keras head with a relu", "keras", partial(in_keras, partial(keras_model, activation="relu")), "refused",
          "relu"),
    file_row(".keras", "keras", keras_file, "layers.dense_1"),
    file_row(".weights.h5, alone", "keras", keras_weights, "layers.dense [3, 8], layers.dense_1 [3, 3]", **no),
    file_row(".weights.h5, named", "keras", keras_weights, "layers.dense_1", head="top"),
    Place("LogisticRegression", "sklearn", sklearn_head, says="coef_"),
    Place("LogisticRegression, scores", "sklearn",
          partial(in_sklearn, lambda: library("sklearn.linear_model").LogisticRegression()), says="shift"),
    Place("random forest", "sklearn",
          partial(in_sklearn, lambda: library("sklearn.ensemble").RandomForestClassifier(10)), says="shift"),
    Place("XGBClassifier", "xgboost",
          partial(in_sklearn, lambda: library("xgboost").XGBClassifier(n_estimators=5, n_jobs=1)), says="shift"),
    Place("LGBMClassifier", "lightgbm",
          partial(in_sklearn, lambda: library("lightgbm").LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1))),
    Place("native booster of LightGBM", "lightgbm", partial(booster, of_lightgbm), says="offsets"),
    Place("native booster of XGBoost", "xgboost", partial(booster, of_xgboost), says="offsets"),
    *(
        Place(title, "none", partial(foreign, name), "refused", "lh." if name != "m.pkl" else "a pickle")
        for title, name in (
            ("GGUF", "m.gguf"), ("torch.export", "m.pt2"), ("TensorFlow Lite", "m.tflite"), ("Core ML", "m.mlmodel"),
            ("OpenVINO", "m.xml"), ("fastText", "m.ftz"), ("TensorRT", "m.engine"), ("Keras's old .h5", "m.h5"),
            ("pickle", "m.pkl"),
        )
    ),
)  # fmt: skip
