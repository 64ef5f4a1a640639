"""Heads of Flax in safetensors: kernels [d, K], adjusted so that the logits x @ kernel + bias are as they should be."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import levelhead as lh
from levelhead.files.formats import format_of
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

COUNTS = [100, 25, 4]
FACTORS = np.array([1.0, 2.0, 5.0])  # (100 / n)^0.5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 8)).astype(np.float32)


def tensors(kernel="params.classifier.kernel", shape=(8, 3), bias=True, **others):
    drawn = {kernel: RNG.normal(size=shape).astype(np.float32)}
    if bias:
        drawn[kernel.replace("kernel", "bias")] = RNG.normal(size=shape[-1]).astype(np.float32)
    return drawn | {
        name.replace("__", "."): np.ones(size, np.float32) for name, size in others.items()
    }


def logits(tensors, kernel):
    return X @ tensors[kernel].reshape(-1, 3) + tensors.get(kernel.replace("kernel", "bias"), 0)


@pytest.mark.parametrize(
    "made",
    [
        tensors(),
        tensors("classifier/kernel"),
        tensors("params/Dense_1/kernel", bias=False),
        tensors("head.kernel", (1, 1, 8, 3)),
        tensors(encoder__kernel=(8, 8), encoder__bias=(8,), norm__scale=(8,), norm__bias=(8,)),
        tensors("score.kernel", (8, 3), attention__kernel=(8, 2, 4), word__embedding=(9, 8)),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_kernel_is_scaled_by_columns_and_undone(made, named, tmp_path):
    path, out, back = (tmp_path / f"{name}.safetensors" for name in ("m", "out", "back"))
    save_file(made, path, {"format": "flax"})
    kernel = next(iter(made))
    result = adjust_file(
        path, out, lh.rules.Rescale(0.5), COUNTS, head=kernel[: -len("/kernel")] if named else None
    )
    adjusted = load_file(out)
    assert np.allclose(logits(adjusted, kernel), logits(made, kernel) * FACTORS, atol=1e-5)
    changed = [name for name in made if not np.array_equal(made[name], adjusted[name])]
    assert changed == [kernel, *(name for name in made if name == kernel.replace("kernel", "bias"))]
    assert result.head == (kernel[: -len("/kernel")].replace("/", "."),)
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


def test_shape_is_that_of_the_file_and_columns_are_classes(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file(
        tensors("classifier.kernel", (3, 8)), path
    )  # eight classes of three features, not the other way round
    assert len(inspect_file(path).norms) == 8
    with pytest.raises(ValueError, match="expected 8 counts"):
        adjust_file(path, tmp_path / "out.safetensors", lh.rules.Rescale(0.5), COUNTS)


def test_kernel_among_weights_of_torch_is_no_head(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file(tensors("blur.kernel", (3, 3), bias=False, fc__weight=(3, 8)), path)
    assert inspect_file(path).layers[0].key == "fc"


def test_norm_of_flax_after_the_head_is_seen(tmp_path):
    save_file(
        tensors("classifier.kernel", norm__scale=(3,), norm__bias=(3,)), tmp_path / "m.safetensors"
    )
    with pytest.raises(ValueError, match="norm of its 3 outputs seems to follow"):
        inspect_file(tmp_path / "m.safetensors")


def test_module_of_flax_gives_the_scaled_logits(tmp_path):
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.body, self.classifier = nnx.Linear(8, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, x):
            return self.classifier(nnx.relu(self.body(x)))

    model, path, out = Net(nnx.Rngs(0)), tmp_path / "m.safetensors", tmp_path / "out.safetensors"
    before = np.asarray(model(X))
    flat = {
        ".".join(map(str, key)): np.array(value[...])
        for key, value in nnx.to_flat_state(nnx.state(model))
    }
    save_file(flat, path)
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    model.classifier.kernel[...] = load_file(out)["classifier.kernel"]
    model.classifier.bias[...] = load_file(out)["classifier.bias"]
    assert np.allclose(model(X), before * FACTORS, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "m.tflite", "m.mlmodel", "m.mlpackage", "m.xml", "m.gguf", "m.ftz", "m.pt2",
        "m.torchscript", "m.ptl", "m.engine", "m.ort", "m.pb",
    ],
)  # fmt: skip
def test_converted_model_is_refused_before_it_is_opened(name, tmp_path):
    with pytest.raises(ValueError, match=rf"{name}: .*; adjust (it|the model) before converting"):
        format_of(tmp_path / name)


def test_binary_of_fasttext_or_openvino_is_refused_as_such(tmp_path):
    (tmp_path / "text.bin").write_bytes((793712314).to_bytes(4, "little") + bytes(60))
    with pytest.raises(ValueError, match=r"fastText.*adjust .* before converting"):
        format_of(tmp_path / "text.bin")
    (tmp_path / "net.bin").write_bytes(bytes(64))
    (tmp_path / "net.xml").write_text("<net/>")
    with pytest.raises(ValueError, match=r"OpenVINO.*adjust .* before converting"):
        format_of(tmp_path / "net.bin")
    folder = tmp_path / "net.mlpackage"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"Core ML.*adjust .* before converting"):
        format_of(folder)
