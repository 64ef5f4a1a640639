"""What a model file holds and computes, by the library whose format it is: onnx and onnxruntime,
torch, Keras.

Nothing here uses levelhead: it is what an edit is judged by.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# What is right for a file, as a table of the zoo has it; files.toml says what its entries are.
Truth = Mapping[str, Any]


class Computed(NamedTuple):
    """What a model computes of random inputs."""

    logits: np.ndarray  #: [..., K], the classes last
    outputs: list[np.ndarray]  #: those of the model itself that are numbers


def tensors(path: Path) -> dict[str, np.ndarray]:
    """Return every tensor of a file by its key; nothing is unpickled but tensors and plain data."""
    if path.suffix == ".onnx":
        return dict(_onnx_tensors(path))
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        return load_file(path)
    if path.suffix in (".keras", ".h5"):
        return _keras_tensors(path)
    return dict(_torch_tensors(path))


def _onnx_tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of a graph: its initializers, its constants, and what a linear classifier has
    as attributes.
    """
    import onnx

    graph = onnx.load(path).graph
    yield from ((tensor.name, onnx.numpy_helper.to_array(tensor)) for tensor in graph.initializer)
    for node in graph.node:
        for held in node.attribute:
            if node.op_type == "Constant" and held.name == "value":
                yield node.output[0], onnx.numpy_helper.to_array(held.t)
            elif node.op_type == "LinearClassifier" and held.floats:
                yield f"{node.name}.{held.name}", np.array(held.floats)


def _keras_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the datasets of an HDF5 file by their paths in it."""
    import h5py

    held: dict[str, np.ndarray] = {}

    def keep(key: str, entry: Any) -> None:
        if isinstance(entry, h5py.Dataset):
            held[key] = entry[()]

    data = path.read_bytes()
    if path.suffix == ".keras":  # an archive, with the weights in it
        with zipfile.ZipFile(path) as archive:
            data = archive.read("model.weights.h5")
    with h5py.File(io.BytesIO(data)) as weights:
        weights.visititems(keep)
    return held


def _torch_tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of a file by the keys that lead to them, joined by dots."""
    import torch

    def walk(value: Any, key: str) -> Iterator[tuple[str, np.ndarray]]:
        if isinstance(value, torch.Tensor):
            yield key, value.double().numpy() if value.is_floating_point() else value.numpy()
        elif isinstance(value, dict | list | tuple):
            for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
                yield from walk(inner, f"{key}.{name}" if key else str(name))

    # Numbers of numpy are data, but torch has to be told so.
    scalar = np.float64(0).__reduce__()[0]
    data = [(scalar, "numpy.core.multiarray.scalar"), np.dtype, type(np.dtype(np.float64))]
    with torch.serialization.safe_globals(data):
        yield from walk(torch.load(path, weights_only=True, map_location="cpu"), "")


def compute(path: Path, truth: Truth) -> Computed | None:
    """Run a file on random inputs, always the same; None if its format or the table does not say how."""
    if "logits" not in truth:
        return None
    return {".onnx": _run_onnx, ".keras": _run_keras}[path.suffix](path, truth)


def _run_onnx(path: Path, truth: Truth) -> Computed:
    """Run a graph; the entry says which value is the logits and, where random inputs will not do,
    which to give.

    A dimension that is free becomes 2.
    """
    import onnx
    import onnxruntime

    model = onnx.load(path)
    output_names = [one.name for one in model.graph.output]
    # The logits may be a value inside the graph: then they become an output too.
    if truth["logits"] not in output_names:
        model.graph.output.append(onnx.ValueInfoProto(name=truth["logits"]))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    inputs = {}
    for one in session.get_inputs():
        shape = [n if isinstance(n, int) and n > 0 else 2 for n in one.shape]
        wanted = truth.get("inputs", {}).get(one.name, shape)
        title = one.type.removeprefix("tensor(").removesuffix(")")
        dtype = {"float": np.float32, "double": np.float64}.get(title, title)
        if not isinstance(wanted, list):
            drawn = wanted
        elif "int" in title:
            drawn = rng.integers(1, 8, wanted)
        else:
            drawn = rng.normal(size=wanted)
        inputs[one.name] = np.asarray(drawn, dtype)
    names = [one.name for one in session.get_outputs()]
    values: dict[str, Any] = dict(zip(names, session.run(None, inputs), strict=True))
    outputs = [
        values[name]
        for name in output_names
        if isinstance(values[name], np.ndarray) and values[name].dtype.kind == "f"
    ]
    logits = np.moveaxis(values[truth["logits"]], truth.get("axis", -1), -1)
    return Computed(logits.astype(np.float64), outputs)


def _run_keras(path: Path, truth: Truth) -> Computed:
    """Run a model on random integers, which any kind of input takes; a dimension that is free becomes
    2.
    """
    os.environ.setdefault("KERAS_BACKEND", "torch")  # read when Keras is imported
    import keras

    # Keras gives its types for all backends at once, which say nothing here.
    model: Any = keras.saving.load_model(path, compile=False)
    to_numpy: Any = keras.ops.convert_to_numpy
    rng = np.random.default_rng(0)
    entries: Any = model.inputs
    inputs: Any = [
        rng.integers(0, 5, [2 if n is None else n for n in one.shape]).astype(one.dtype)
        for one in entries
    ]
    if len(entries) == 1:  # one input is given as it is, not in a list
        [entries], [inputs] = entries, inputs
    outputs = [to_numpy(one) for one in keras.tree.flatten(model(inputs))]
    # The same model up to the head, whose outputs are logits without its activation.
    head = model.get_layer(truth["logits"])
    head.activation = keras.activations.linear
    up_to_head: Any = keras.Model(entries, head.output)
    logits = up_to_head(inputs)
    return Computed(to_numpy(logits).astype(np.float64), outputs)
