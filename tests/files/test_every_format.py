"""The contract of every file format, driven by the table of formats."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from warnings import catch_warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from safetensors.torch import load_file, save_file

import levelhead as lh
from levelhead.core.counts import resolve
from levelhead.core.head import normalize
from levelhead.files.formats import MODEL_FORMATS
from levelhead.files.inspect import inspect_file
from levelhead.files.locate import ModelFile
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from ..heads.chosen import own_rule, tuned_for
from .head_in_file import read_head

os.environ.setdefault("KERAS_BACKEND", "torch")
K, D = 6, 16
KERAS_HEAD = "layers.dense"  # by its kind and place, as Keras names weights in a file
COUNTS = np.array([1000, 300, 90, 40, 9, 2])


def head(bias=True, dtype=np.float32) -> lh.Head:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((K, D)).astype(dtype)
    return lh.Head(weight, rng.standard_normal(K).astype(dtype) if bias else None)


def tensors(head):
    by_name = {"body.weight": torch.ones(D, D), "fc.weight": torch.from_numpy(head.weight)}
    return by_name if head.bias is None else {**by_name, "fc.bias": torch.from_numpy(head.bias)}


def numpy_arrays(head):
    return {key: tensor.numpy() for key, tensor in tensors(head).items()}


def save_onnx(head, path):
    weights = [numpy_helper.from_array(head.weight, "fc.weight")]
    weights += [] if head.bias is None else [numpy_helper.from_array(head.bias, "fc.bias")]
    inputs = ["x", *(tensor.name for tensor in weights)]
    kind = helper.np_dtype_to_tensor_dtype(head.weight.dtype)
    graph = helper.make_graph(
        [helper.make_node("Gemm", inputs, ["y"], transB=1)],
        "g",
        [helper.make_tensor_value_info("x", kind, ["N", D])],
        [helper.make_tensor_value_info("y", kind, ["N", K])],
        weights,
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )


def save_keras(head, path):
    keras = pytest.importorskip("keras")
    dense = keras.layers.Dense(
        K, name="fc", use_bias=head.bias is not None, dtype=head.weight.dtype.name
    )
    model = keras.Sequential([keras.Input((D,), dtype=head.weight.dtype.name), dense])
    dense.set_weights([head.weight.T, *([] if head.bias is None else [head.bias])])
    with catch_warnings(action="ignore", category=DeprecationWarning):  # Keras's own, of torch
        model.save(path) if path.suffix == ".keras" else model.save_weights(path)


SAVE = {
    "safetensors": (
        ".safetensors",
        lambda head, path: save_file(tensors(head), path, {"format": "pt"}),
    ),
    "ONNX": (".onnx", save_onnx),
    "state dict": (".pt", lambda head, path: torch.save(tensors(head), path)),
    "Keras": (".keras", save_keras),
    "Keras weights": (".weights.h5", save_keras),
    "MLX weights": (".npz", lambda head, path: np.savez(path, **numpy_arrays(head))),
}


@pytest.fixture(params=[*MODEL_FORMATS])
def saved(request, tmp_path):
    """A model's file of each format: (save a head, the path, where to write)."""
    suffix, save = SAVE[request.param]
    path = tmp_path / f"m{suffix}"
    save(head(), path)
    return lambda one: save(one, path), path, tmp_path / f"o{suffix}"


def name_of_head(path):
    return KERAS_HEAD if path.suffix in (".keras", ".h5") else "fc"


def whole_suffix(path):
    return "".join(path.suffixes)  # of .weights.h5, both


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("bias", ["scale", "keep"])
def test_the_file_has_what_the_rule_gives_bit_for_bit(saved, bias):
    _, path, out = saved
    done = adjust_file(path, out, lh.rules.Rescale(0.7), COUNTS, bias=bias)
    assert done.bias == bias
    by = replace(lh.Adjustment.scaling((COUNTS.max() / COUNTS) ** 0.7), bias=bias)
    expected, written = by.head(head()), read_head(out)
    assert written.weight.tobytes() == expected.weight.tobytes()
    assert written.bias.tobytes() == expected.bias.tobytes()


@pytest.mark.parametrize("rule", ["tau", "shift"])
def test_the_other_rules_are_written_and_undone_too(saved, rule):
    _, path, out = saved
    done = adjust_file(path, out, own_rule(rule, 0.5), COUNTS)
    expected = (
        lh.adjust(head(), lh.rules.Tau(0.5))
        if rule == "tau"
        else lh.adjust(head(), lh.rules.Shift(0.5), COUNTS)
    )
    assert read_head(out).weight.tobytes() == expected.weight.tobytes()
    assert read_head(out).bias.tobytes() == expected.bias.tobytes()
    os.unlink(done.original)
    undo_file(out, out.with_name(f"b{whole_suffix(out)}"))
    back = read_head(out.with_name(f"b{whole_suffix(out)}"))
    np.testing.assert_allclose(back.weight, head().weight, rtol=1e-6)
    np.testing.assert_allclose(back.bias, head().bias, rtol=1e-5, atol=1e-6)


def test_undo_gives_back_the_same_file(saved):
    _, path, out = saved
    back = out.with_name(f"b{whole_suffix(out)}")
    done = adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    undone = undo_file(out, back)
    assert undone.exact
    assert digest(back) == digest(path) == done.sha256[out.name] == undone.sha256[back.name]


@pytest.mark.parametrize(
    "facts", [{}, {"m": {"name": "m", "sha256": "0", "edits": [[0, 10**9, 0]]}}]
)
def test_undo_does_not_trust_what_was_kept_for_another_file(saved, facts):
    _, path, out = saved
    done = adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    Path(done.original).write_text(
        json.dumps({"levelhead": "original", "files": facts}) + "\n", encoding="utf-8"
    )
    with pytest.raises(
        ValueError, match=r"(belongs to no file, not to|is not the file that .* was kept for)"
    ):
        undo_file(out, out.with_name(f"b{whole_suffix(out)}"))


@pytest.mark.parametrize("bits", [0o600, 0o444])
def test_what_is_written_is_as_private_as_the_input(saved, bits):
    _, path, out = saved
    back, plain = out.with_name(f"b{whole_suffix(out)}"), out.with_name(f"p{whole_suffix(out)}")
    path.chmod(bits)
    done = adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    undo_file(out, back)
    os.unlink(done.original)
    undo_file(out, plain)
    adjust_file(path, out, lh.rules.Rescale(0.6), COUNTS, force=True)
    assert [file.stat().st_mode & 0o777 for file in (out, Path(done.original), back, plain)] == [
        bits
    ] * 4


def test_a_replaced_file_does_not_become_less_private(saved):
    _, path, out = saved
    path.chmod(0o644)
    out.touch(0o600)
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, force=True)
    assert out.stat().st_mode & 0o777 == 0o600


def test_undo_works_under_another_name_and_refuses_a_file_that_was_changed(saved):
    _, path, out = saved
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    moved = out.with_name(f"moved{whole_suffix(out)}")
    out.rename(moved)
    out.with_name(f"{out.name}.original").rename(moved.with_name(f"{moved.name}.original"))
    undo_file(moved, out.with_name(f"b{whole_suffix(out)}"))
    assert digest(out.with_name(f"b{whole_suffix(out)}")) == digest(path)
    moved.write_bytes(moved.read_bytes() + b"!")
    before = sorted(os.listdir(path.parent))
    with pytest.raises(ValueError, match=r"changed since|cut short"):
        undo_file(moved, out.with_name(f"c{whole_suffix(out)}"))
    assert sorted(os.listdir(path.parent)) == before


def test_without_the_original_undo_divides_and_says_so(saved):
    _, path, out = saved
    done = adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, original=False)
    assert done.original is None
    assert sorted(file.name for file in path.parent.iterdir()) == sorted([path.name, out.name])
    back = out.with_name(f"b{whole_suffix(out)}")
    assert not undo_file(out, back).exact
    np.testing.assert_allclose(read_head(back).weight, head().weight, rtol=2e-7)
    assert ModelFile.at(back).locate_head().note is None


def test_the_note_says_all_that_was_done(saved):
    _, path, out = saved
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, bias="keep")
    note = ModelFile.at(out).locate_head().note
    assert note == {
        "version": lh.__version__,
        "rule": "rescale",
        "strength": 0.5,
        "bias": "keep",
        "counts": COUNTS.tolist(),
        "head": [name_of_head(path)],
        "scale": ((COUNTS.max() / COUNTS) ** 0.5).tolist(),
        "offset": [0.0] * K,
        "sha256": digest(path),
    }
    assert inspect_file(out).adjusted == note


def test_a_second_adjustment_must_be_asked_for_and_is_undone_step_by_step(saved):
    _, path, out = saved
    twice, once, none = (
        out.with_name(f"{name}{whole_suffix(out)}") for name in ("twice", "once", "none")
    )
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    with pytest.raises(ValueError, match=r"was adjusted before \(rescale, strength 0.5\)"):
        adjust_file(out, twice, lh.rules.Rescale(0.25), COUNTS)
    adjust_file(out, twice, lh.rules.Rescale(0.25), COUNTS, again=True)
    expected = lh.adjust(
        lh.adjust(head(), lh.rules.Rescale(0.5), COUNTS), lh.rules.Rescale(0.25), COUNTS
    )
    assert read_head(twice).weight.tobytes() == expected.weight.tobytes()
    assert ModelFile.at(twice).locate_head().note["before"] == ModelFile.at(out).locate_head().note
    undo_file(twice, once)
    assert digest(once) == digest(out)
    os.unlink(f"{twice}.original")
    undo_file(twice, none)  # by division: the first adjustment is still there, and noted
    assert ModelFile.at(none).locate_head().note == ModelFile.at(out).locate_head().note


def test_the_output_may_not_be_the_input_by_any_name(saved):
    _, path, out = saved
    link, hard = (
        out.with_name(f"link{whole_suffix(out)}"),
        out.with_name(f"hard{whole_suffix(out)}"),
    )
    link.symlink_to(path)
    os.link(path, hard)
    before = digest(path)
    for target in (path, link, hard, path.parent / "." / path.name):
        with pytest.raises(ValueError, match="is the input itself"):
            adjust_file(path, target, lh.rules.Rescale(0.5), COUNTS, force=True)
    assert digest(path) == before


def test_what_exists_is_replaced_only_by_force(saved):
    _, path, out = saved
    out.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="exists; pass force to replace it"):
        adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    assert out.read_bytes() == b"mine"
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, force=True)
    assert read_head(out).classes == K


def test_a_missing_file_or_folder_is_named(saved):
    _, path, out = saved
    with pytest.raises(
        FileNotFoundError, match=r"nothing\.pt: no such file; expected a model as \.safetensors"
    ):
        inspect_file(path.with_name("nothing.pt"))
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such folder; expected one to write"):
        adjust_file(path, path.parent / "nowhere" / out.name, lh.rules.Rescale(0.5), COUNTS)


@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
def test_counts_are_checked_once(saved, monkeypatch, rule):
    _, path, out = saved
    calls = []

    def counting(*args, **options):
        calls.append(args)
        return resolve(*args, **options)

    for module in ("core.counts", "heads.choice"):
        monkeypatch.setattr(f"levelhead.{module}.resolve", counting)
    adjust_file(path, out, own_rule(rule, 0.5), COUNTS)
    assert len(calls) == 1


def test_an_interrupted_write_leaves_nothing(saved):
    _, path, out = saved

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, progress=interrupt)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_half_precision_is_scaled_in_float32_and_rounded_once_as_torch_does(
    tmp_path, dtype, suffix
):
    weight = torch.from_numpy(head().weight).to(dtype)
    save = save_file if suffix == ".safetensors" else torch.save
    save({"fc.weight": weight}, tmp_path / f"m{suffix}")
    adjust_file(tmp_path / f"m{suffix}", tmp_path / f"o{suffix}", lh.rules.Rescale(0.5), COUNTS)
    expected = lh.adjust(lh.Head(weight), lh.rules.Rescale(0.5), COUNTS).weight
    np.testing.assert_array_equal(
        read_head(tmp_path / f"o{suffix}").weight, expected.float().numpy()
    )


def test_logits_tell_how_many_predictions_rounding_could_flip(tmp_path):
    save_file({"fc.weight": torch.from_numpy(head().weight).bfloat16()}, tmp_path / "m.safetensors")
    by = (COUNTS.max() / COUNTS) ** 0.5
    logits = np.stack(
        [1 / by, np.r_[10, np.zeros(K - 1)]]
    )  # all tied once scaled; and a clear case
    tuned = tuned_for("rescale", 0.5, COUNTS)
    done = adjust_file(tmp_path / "m.safetensors", tmp_path / "o.safetensors", tuned, logits=logits)
    assert done.flips == 1
    save_file(tensors(head()), tmp_path / "n.safetensors")
    done = adjust_file(tmp_path / "n.safetensors", tmp_path / "p.safetensors", tuned, logits=logits)
    assert done.flips is None


def test_logits_tell_how_many_predictions_a_rounded_bias_flips(tmp_path):
    """A bias of 16 in bfloat16 takes 2.375 of 2.43."""
    bias = torch.zeros(K)
    bias[-1] = 16
    weight = torch.from_numpy(head().weight)
    save_file(
        {"fc.weight": weight.bfloat16(), "fc.bias": bias.bfloat16()}, tmp_path / "m.safetensors"
    )
    adjustment = lh.Adjustment.adding(np.r_[np.zeros(K - 1), 2.43])
    tuned = replace(tuned_for("offsets", counts=COUNTS), adjustment=adjustment)
    logits = np.zeros((3, K))
    logits[:, -1] = [-2.44, -2.42, -2.37]
    done = adjust_file(tmp_path / "m.safetensors", tmp_path / "o.safetensors", tuned, logits=logits)
    moved = float(read_head(tmp_path / "o.safetensors").bias[-1] - 16)
    expected = (logits[:, -1] + 2.43 > 0) != (logits[:, -1] + moved > 0)
    assert done.flips == expected.sum() == 1


@pytest.mark.parametrize("named", ["b", "b,a"])
def test_what_was_named_is_what_is_undone(tmp_path, named):
    by_name = {
        key: torch.from_numpy(head().weight) + i for i, key in enumerate(("a.weight", "b.weight"))
    }
    save_file(by_name, tmp_path / "m.safetensors")
    adjust_file(
        tmp_path / "m.safetensors",
        tmp_path / "o.safetensors",
        lh.rules.Rescale(0.5),
        COUNTS,
        head=named,
        original=False,
    )
    undo_file(tmp_path / "o.safetensors", tmp_path / "b.safetensors")
    for key in ("a", "b"):
        changed = (
            read_head(tmp_path / "o.safetensors", key).weight[-1, 0]
            != by_name[f"{key}.weight"][-1, 0]
        )
        assert changed == (key in named)
        np.testing.assert_allclose(
            read_head(tmp_path / "b.safetensors", key).weight, by_name[f"{key}.weight"], rtol=1e-6
        )


def test_labels_are_counted(saved):
    _, path, out = saved
    labels = np.repeat(np.arange(K), [32, 16, 8, 4, 2, 1])
    assert adjust_file(path, out, lh.rules.Rescale(1), labels).scale.tolist() == [
        1,
        2,
        4,
        8,
        16,
        32,
    ]


def test_sharded_models_are_undone_too(tmp_path):
    (tmp_path / "m").mkdir()
    save_file({"fc.weight": torch.from_numpy(head().weight)}, tmp_path / "m" / "1.safetensors")
    save_file({"x.weight": torch.ones(D, D)}, tmp_path / "m" / "2.safetensors")
    index = {"weight_map": {"fc.weight": "1.safetensors", "x.weight": "2.safetensors"}}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(
        json.dumps(index), encoding="utf-8"
    )
    adjust_file(tmp_path / "m", tmp_path / "o", lh.rules.Rescale(0.5), COUNTS)
    assert (tmp_path / "o.original").is_file()
    for name, path in (
        ("b", tmp_path / "o"),
        ("c", tmp_path / "o" / "model.safetensors.index.json"),
    ):
        undo_file(path, tmp_path / name)
        for file in (tmp_path / "m").iterdir():
            assert (tmp_path / name / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(ValueError, match="is the input itself"):
        adjust_file(tmp_path / "m", tmp_path / "m", lh.rules.Rescale(0.5), COUNTS, force=True)


def test_inspect_reports_layers_norms_correlation_and_warnings(saved):
    save, path, _ = saved
    rows = normalize(head()).weight
    follow = np.sqrt(COUNTS)[:, None].astype(np.float32)
    save(lh.Head(rows * follow, np.full(K, 2, np.float32)))
    seen = inspect_file(path, counts=COUNTS)
    shape = (
        (D, K) if name_of_head(path) == KERAS_HEAD else (K, D)
    )  # a kernel has a column per class
    assert [(layer.key, layer.shape, layer.dtype) for layer in seen.layers] == [
        (name_of_head(path), shape, "F32")
    ]
    np.testing.assert_allclose(seen.norms, follow[:, 0], rtol=1e-5)
    assert seen.correlation == pytest.approx(1)
    assert seen.warnings == ()
    assert seen.bias_gap == pytest.approx(2 * (np.sqrt(500) - 1))
    save(lh.Head(rows / follow, np.zeros(K, np.float32)))
    assert [text.split(":")[0] for text in inspect_file(path, counts=COUNTS).warnings] == [
        "NormWarning"
    ]
    assert inspect_file(path).correlation is None


@pytest.mark.parametrize("counts", [COUNTS, [9] * K])
def test_what_inspect_warns_of_is_said_where_it_is_scaled_too(saved, counts):
    save, path, out = saved
    save(
        lh.Head(
            normalize(head()).weight / np.sqrt(COUNTS)[:, None].astype(np.float32),
            np.zeros(K, np.float32),
        )
    )
    (warning,) = inspect_file(path, counts=counts).warnings
    assert warning in adjust_file(path, out, lh.rules.Rescale(0.5), counts).notes
    assert warning not in adjust_file(path, out, lh.rules.Shift(0.5), counts, force=True).notes


def test_inspect_warns_of_a_head_that_scaling_cannot_move(tmp_path):
    row = torch.ones(1, D)
    save_file({"fc.weight": torch.cat([row, -row])}, tmp_path / "m.safetensors")
    assert any(
        text.startswith("BinaryHeadWarning")
        for text in inspect_file(tmp_path / "m.safetensors").warnings
    )


def test_every_format_of_the_table_is_covered_here():
    assert set(MODEL_FORMATS) == set(SAVE)


def test_undo_of_a_file_that_another_program_saved_anew_says_what_is_left_to_do(tmp_path):
    model, out = tmp_path / "model.safetensors", tmp_path / "out.safetensors"
    save_file({"fc.weight": torch.eye(3)}, model, metadata={"format": "pt"})
    adjust_file(model, out, lh.rules.Rescale(0.5), [9, 4, 1])
    save_file(
        load_file(out), out, metadata={"format": "pt"}
    )  # as save_pretrained does: the record is lost
    with pytest.raises(
        ValueError, match=r"changed since; it has no record of an adjustment left.*use the model"
    ):
        undo_file(out, tmp_path / "back.safetensors")
    assert not (tmp_path / "back.safetensors").exists()
