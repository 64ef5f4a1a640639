"""The places where a head can live: one of each kind, and what must happen. No edit may be wrong.

A row names what is made, what makes it, and what must be said of it. `torch_row` is for models in
memory, whose scores are compared before and after `rescale_`; `file_row` for files, which are
written, adjusted, and run again by the program they are for; `Place` itself for all else. The table
is tested by tests/hosts/test_places.py, and `census --places` writes what came of it to
results/census.json.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

import levelhead as lh

from .place import Place, X, library
from .places_in_files import (
    flax_safetensors,
    foreign,
    in_file,
    keras_file,
    keras_weights,
    onnx_export,
    onnx_quantized,
    safetensors_of,
    skl2onnx_file,
    state_dict,
)
from .places_in_memory import (
    DETECTOR,
    TwoHeads,
    detector,
    hugging_face,
    in_keras,
    in_torch,
    keras_model,
    layers,
    lightning_module,
    one_logit,
    quantized,
    second_time,
    tied,
    timm_model,
    torchvision_model,
    vit,
    with_adapter,
)
from .places_of_sklearn import booster, in_sklearn, of_lightgbm, of_xgboost, sklearn_head


def torch_row(name: str, library: str, make: Any, says: str = "", **options: Any) -> Place:
    """Return the row of a model in memory; `options` as `in_torch` has them, and `expected`."""
    expected = options.pop("expected", "right")
    return Place(name, library, partial(in_torch, make, **options), expected, says)


def file_row(name: str, library: str, write: Any, says: str = "", **options: Any) -> Place:
    """Return the row of a model file; `options` as `in_file` has them, and `expected`."""
    expected = options.pop("expected", "right")
    return Place(name, library, partial(in_file, write, **options), expected, says)


# Short names, so that a row of the table fits on a line or two.
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
