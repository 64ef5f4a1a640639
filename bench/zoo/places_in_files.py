"""Model files with a head to find: written, adjusted, and run again by the program they are for.

Each function that writes one returns its path, and what computes the scores of such a file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import levelhead as lh
from levelhead.files.model import adjust_file

from .place import COUNTS, FACTORS, RNG, X, check_scaled, library
from .places_in_memory import keras_model, layers, run_keras, run_torch


def in_file(
    write: Callable[[Path], tuple[Path, Callable[[Path], np.ndarray]]],
    folder: Path,
    rule: lh.rules.Rule | None = None,
    **options: Any,
) -> str:
    """Adjust a model file, and compare its scores before and after; return the layers that were found.

    Args:
        write: writes the file to a folder; returns its path, and what computes the scores of such a file.
        folder: to work in.
        rule: RS at strength 0.5 if None.
        options: of `adjust_file`.
    """
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
    """Write the weights of a model in memory; the same model runs them."""
    from safetensors.torch import load_file, save_file

    model, example = make()
    save_file(model.state_dict(), folder / "m.safetensors")

    def run(path: Path) -> np.ndarray:
        model.load_state_dict(load_file(path))
        return run_torch(model, example)

    return folder / "m.safetensors", run


def state_dict(folder: Path) -> tuple[Path, Any]:
    """Write the state dict of two layers."""
    model, example = layers(nn.Linear(5, 3))
    torch.save(model.state_dict(), folder / "m.pt")

    def run(path: Path) -> np.ndarray:
        model.load_state_dict(torch.load(path, weights_only=True))
        return run_torch(model, example)

    return folder / "m.pt", run


def flax_safetensors(folder: Path) -> tuple[Path, Any]:
    """Write weights as Flax names and lays them out: `kernel`, [d, K]."""
    from safetensors.numpy import load_file, save_file

    tensors = {"params.classifier.kernel": RNG.normal(size=(8, 3)).astype(np.float32)}
    save_file(
        {**tensors, "params.encoder.kernel": np.ones((8, 8), np.float32)}, folder / "m.safetensors"
    )
    return folder / "m.safetensors", lambda path: X @ load_file(path)["params.classifier.kernel"]


def run_onnx(path: Path) -> np.ndarray:
    """Return the last output of a file, as onnxruntime computes it."""
    session = library("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})[-1]


def onnx_export(folder: Path) -> tuple[Path, Any]:
    """Write a single Gemm, as exporters write the last layer."""
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
    """Write the same with a weight of integers, which a node turns into numbers when the model runs."""
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
    """Write a logistic regression, whose numbers are attributes of one node."""
    linear, skl2onnx = library("sklearn.linear_model"), library("skl2onnx")
    y = np.arange(60) % 3
    x = (RNG.normal(size=(60, 8)) + y[:, None]).astype(np.float32)
    model = linear.LogisticRegression().fit(x, y)
    options = {"zipmap": False, "raw_scores": True}
    onnx_model = skl2onnx.to_onnx(model, x[:1], options={id(model): options})
    (folder / "m.onnx").write_bytes(onnx_model.SerializeToString())
    return folder / "m.onnx", run_onnx


def keras_file(folder: Path) -> tuple[Path, Any]:
    """Write a .keras archive."""
    keras_model().save(folder / "m.keras")
    return folder / "m.keras", lambda path: run_keras(library("keras").models.load_model(path))


def keras_weights(folder: Path) -> tuple[Path, Any]:
    """Write weights alone: without the config, nothing says which of two layers comes last."""
    model = keras_model()
    model.save_weights(folder / "m.weights.h5")

    def run(path: Path) -> np.ndarray:
        model.load_weights(path)
        return run_keras(model)

    return folder / "m.weights.h5", run


def foreign(name: str, folder: Path) -> str:
    """Try to adjust a file of a format that is not read: all that is looked at is its name."""
    (folder / name).write_bytes(bytes(64))
    return in_file(lambda folder: (folder / name, lambda path: X), folder)
