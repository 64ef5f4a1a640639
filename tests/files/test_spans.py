import numpy as np
import pytest
import torch

from levelhead import Head
from levelhead.files.numbers import decode, encode, load, store
from levelhead.files.spans import LayerSpans, Span

TORCH = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_every_half_precision_number_is_decoded_and_encoded_as_torch_has_it(dtype):
    bits = np.arange(1 << 16, dtype=np.uint16)
    truth = torch.from_numpy(bits.view(np.int16)).view(TORCH[dtype]).float().numpy()
    np.testing.assert_array_equal(decode(bits.tobytes(), dtype), truth)
    finite = np.isfinite(truth)
    assert encode(truth[finite], dtype) == bits[finite].tobytes()


@pytest.mark.parametrize("dtype", list(TORCH))
def test_rounding_is_to_nearest_even_as_torch_has_it(dtype):
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(20_000) * 10.0 ** rng.integers(-9, 5, 20_000)).astype(np.float32)
    halfway = (np.arange(1000, dtype=np.uint32) << 16 | 0x3F80_8000).view(np.float32)
    for x in (values, halfway[np.isfinite(halfway)]):
        truth = torch.from_numpy(x).to(TORCH[dtype]).view(torch.uint8).numpy().tobytes()
        assert encode(x, dtype) == truth


@pytest.mark.parametrize("transposed", [False, True])
def test_storing_what_was_loaded_changes_nothing(tmp_path, transposed):
    rng = np.random.default_rng(0)
    data = rng.standard_normal(17).astype("<f4").tobytes()
    (tmp_path / "f").write_bytes(b"!" + data)
    shape = (4, 3) if transposed else (3, 4)
    weight = Span("w", tmp_path / "f", 1, "F32", shape, transposed)
    layer = LayerSpans("fc", weight, Span("b", tmp_path / "f", 49, "F32", (3,)))
    head = load(layer)
    assert head.weight.shape == (3, 4)
    assert [(e.offset, e.data) for _, e in store(layer, head)] == [
        (1, data[:48]),
        (49, data[48:60]),
    ]


def test_a_number_too_large_for_its_dtype_names_the_class(tmp_path):
    (tmp_path / "f").write_bytes(np.full((3, 2), 60000, "<f2").tobytes())
    layer = LayerSpans("fc", Span("w", tmp_path / "f", 0, "F16", (3, 2)))
    head = load(layer)
    with pytest.raises(ValueError, match=r"F16.*class 2.*smaller strength"):
        store(layer, Head(head.weight * np.array([[1], [1], [2]], np.float32)))


def test_a_head_of_another_shape_does_not_fit(tmp_path):
    (tmp_path / "f").write_bytes(bytes(24))
    layer = LayerSpans("fc", Span("w", tmp_path / "f", 0, "F32", (3, 2)))
    with pytest.raises(ValueError, match=r"fc is \[3, 2\] with no bias"):
        store(layer, Head(np.ones((2, 3))))
