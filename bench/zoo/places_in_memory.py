"""Models in memory with a head to find: of transformers, timm, torchvision, Lightning, plain torch, and Keras.

Each function that makes one returns the model and an example, as keyword arguments or as `x`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("KERAS_BACKEND", "torch")

import numpy as np
import torch
from torch import nn

import levelhead as lh
from levelhead.files.model import adjust_file

from .place import COUNTS, FACTORS, X, check_scaled, library

# Two texts of five tokens.
IDS = torch.arange(1, 11).reshape(2, 5)
# Settings of a text model that is built in no time.
TEXT = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "num_labels": 3,
    "pad_token_id": 0,
}


def run_torch(model: nn.Module, example: dict[str, Any]) -> np.ndarray:
    """Return a model's scores, with the classes last."""
    model.eval()
    with torch.no_grad():
        output = model(example["x"]) if "x" in example else model(**example)
    if isinstance(output, torch.Tensor):
        scores = output
    elif hasattr(output, "logits"):  # of transformers
        scores = output.logits
    else:  # of torchvision's segmentation
        scores = output["out"]
    if scores.ndim == 4:
        scores = scores.movedim(1, -1)
    return scores.double().numpy()


def in_torch(make: Callable[[], tuple[Any, dict[str, Any]]], folder: Path, **options: Any) -> str:
    """Rescale a model in memory and restore it; return the layers that were found.

    Args:
        make: makes the model and an example.
        folder: not needed here, as all that judges a place has it.
        options: of `rescale_`; `example` to give it the example, `counts` and `by` (the factors that they lead to)
            other than usual, `run` to compare scores.
    """
    model, example = make()
    if options.pop("example", False):
        options["example"] = example.get("x", example)
    counts = options.pop("counts", COUNTS)
    by = options.pop("by", FACTORS)
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
    """Return a model of transformers by the names of its class and its config, made small."""
    hf = library("transformers")
    return getattr(hf, name)(getattr(hf, config)(**{**TEXT, **fields})), {"input_ids": IDS}


def vit() -> tuple[Any, dict[str, Any]]:
    model, _ = hugging_face("ViTForImageClassification", "ViTConfig", image_size=16, patch_size=8)
    return model, {"pixel_values": torch.randn(2, 3, 16, 16)}


def with_adapter() -> tuple[Any, dict[str, Any]]:
    peft = library("peft")
    model, example = hugging_face("BertForSequenceClassification", "BertConfig")
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"])
    return peft.get_peft_model(model, config), example


def second_time(kind: Literal["loaded", "file", "adapter"], folder: Path) -> str:
    """Adjust a model in memory, save it, and adjust it again: loaded, as a file, or loaded as an adapter."""
    if kind == "adapter":
        model, _ = with_adapter()
    else:
        model, _ = hugging_face("BertForSequenceClassification", "BertConfig")
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
    """Return a model of timm; a head that starts at zero would hide what is done to it."""
    model = library("timm").create_model(name, num_classes=3, **options)
    for p in model.parameters():
        if not p.any():
            nn.init.normal_(p, std=0.02)
    return model, {"x": torch.randn(1, 3, 64, 64)}


def torchvision_model(name: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return a model of torchvision, untrained."""
    model = library("torchvision.models").get_model(name, weights=None, **options)
    return model, {"x": torch.randn(1, 3, 64, 64)}


def lightning_module() -> tuple[Any, dict[str, Any]]:
    """Return a LightningModule, whose network is one of its attributes."""

    class Module(library("lightning.pytorch").LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x)

    return Module(), {"x": torch.tensor(X)}


def layers(*more: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """Return two layers and what follows them."""
    return nn.Sequential(nn.Linear(8, 5), nn.ReLU(), *more), {"x": torch.tensor(X)}


class TwoHeads(nn.Module):
    """A model in which two layers look like the head, and both are."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x) * self.other(x)


def detector() -> tuple[Any, dict[str, Any]]:
    """Return a DETR, which has a class for "no object" after the others, and boxes beside the classes."""
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


# The fourth class is "no object": it has a count, and must stay as it is.
DETECTOR = {"counts": [100, 25, 4, 10**6], "by": [1, 2, 5, 1], "background": 3}


def quantized() -> tuple[Any, dict[str, Any]]:
    """Return a model whose head has integers for weights."""
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack"  # the one that every processor has
    try:
        return layers(torch.ao.nn.quantized.dynamic.Linear(5, 3))
    finally:
        torch.backends.quantized.engine = engine


def tied() -> tuple[Any, dict[str, Any]]:
    """Return a model in which the weight of the head is that of another layer too."""
    model = TwoHeads()
    model.other.weight = model.one.weight
    return model, {"x": torch.tensor(X)}


def one_logit(folder: Path) -> str:
    """Shift a model with one logit, of the second class against the first; return its layer."""
    model, example = layers(nn.Linear(5, 1))
    before = run_torch(model, example)
    tuned = lh.tune_unlabelled(np.column_stack([np.zeros(6), before]), counts=[9, 1], rule="shift")
    lh.adjust_(model, tuned)
    assert np.allclose(run_torch(model, example), before + tuned.strength * np.log(9), atol=1e-5), (
        "not shifted"
    )
    return "2, rule shift"


def keras_model(*more: Any, **options: Any) -> Any:
    """Return a Keras model whose head is the layer `top`; another layer has as many outputs."""
    keras = library("keras")
    first = [keras.Input((8,)), keras.layers.Dense(3, activation="relu")]
    return keras.Sequential([*first, keras.layers.Dense(3, name="top", **options), *more])


def run_keras(model: Any) -> np.ndarray:
    """Return the scores of a Keras model."""
    return library("keras").ops.convert_to_numpy(model(X))


def in_keras(make: Callable[[], Any], folder: Path) -> str:
    """Rescale a Keras model in memory and restore it; return the layers that were found."""
    model = make()
    before = run_keras(model)
    done = lh.rescale_(model, COUNTS, gamma=0.5)
    check_scaled(before, run_keras(model))
    done.restore()
    assert np.array_equal(run_keras(model), before), "not restored"
    return ", ".join(done.layers)
