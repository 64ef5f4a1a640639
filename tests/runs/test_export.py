"""The adjusted model's files: what they were made of is recorded in them, as in any file that was adjusted."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from levelhead.core.rules import Rescale
from levelhead.files.locate import ModelFile
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file
from levelhead.support.errors import LevelheadError
from levelhead_lab.runs import export
from levelhead_lab.runs.run import run
from levelhead_lab.runs.run_folder import MODEL_KEY, Run
from levelhead_lab.runs.spec import Spec
from levelhead_lab.runs.train_command import TrainOptions, evaluate_and_export
from tools import layouts

from ..files.head_in_file import read_head

IMAGES = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (5, 1, 8, 8)).astype(np.uint8))


@pytest.fixture(scope="module", params=["wvn", "tau-norm"])
def trained(request, tmp_path_factory) -> tuple[Run, Spec]:
    folder = tmp_path_factory.mktemp(request.param)
    layouts.write_small_npz(folder, epochs=1)
    spec = Spec(
        str(folder / "small.npz"),
        method=request.param,
        net="digits",
        hold_out=0.2,
        recipe=str(folder / "short.toml"),
    )
    return run(spec, folder / "runs"), spec


@pytest.mark.parametrize("suffix", [".safetensors", ".onnx"])
def test_an_adjusted_file_is_not_adjusted_twice_unnoticed_and_can_be_undone(
    levelhead, trained, tmp_path, suffix
):
    there, spec = trained
    result, _ = evaluate_and_export(there, spec, TrainOptions(strength=0.5))
    left, [file] = there.snapshot, [name for name in result["files"] if name.endswith(suffix)]
    note = ModelFile.at(file).locate_head().note
    assert (note["rule"], note["strength"], note["counts"]) == (
        result["rule"],
        0.5,
        left.counts.tolist(),
    )
    (tmp_path / "counts.json").write_text(json.dumps(left.counts.tolist()))
    status, _, err = levelhead(
        "adjust",
        file,
        "--rule",
        "rescale",
        "--strength",
        "0.5",
        "--counts",
        tmp_path / "counts.json",
        "-o",
        tmp_path / f"twice{suffix}",
    )
    assert status == 2
    assert f"was adjusted before ({result['rule']}, strength 0.5)" in err
    assert not undo_file(file, tmp_path / f"back{suffix}").exact
    np.testing.assert_allclose(
        read_head(tmp_path / f"back{suffix}").weight, left.head.weight, rtol=1e-6
    )
    assert not np.allclose(read_head(file).weight, left.head.weight)


@pytest.mark.parametrize("suffix", [".safetensors", ".onnx"])
def test_a_head_as_trained_has_no_record_of_an_adjustment(trained, suffix):
    result, _ = evaluate_and_export(*trained, TrainOptions(strength=0.0))
    [file] = [name for name in result["files"] if name.endswith(suffix)]
    assert ModelFile.at(file).locate_head().note is None
    np.testing.assert_array_equal(read_head(file).weight, trained[0].snapshot.head.weight)


def test_an_adjusted_file_loads_after_another_adjustment_and_without_a_record_of_the_first(
    trained, tmp_path
):
    there, spec = trained
    file, *_ = evaluate_and_export(there, spec, TrainOptions(strength=0.5))[0]["files"]
    with torch.no_grad():
        logits = export.load(file)(IMAGES)
        counts = there.snapshot.counts
        adjust_file(file, tmp_path / "again.safetensors", Rescale(0.25), counts, again=True)
        again = export.load(tmp_path / "again.safetensors")(IMAGES)
        with safe_open(file, "pt") as old:
            save_file(
                load_file(file),
                tmp_path / "old.safetensors",
                {MODEL_KEY: old.metadata()[MODEL_KEY]},
            )
        before = export.load(tmp_path / "old.safetensors")(IMAGES)
    factors = torch.tensor((counts.max() / counts) ** 0.25, dtype=torch.float32)
    torch.testing.assert_close(again, logits * factors)
    assert torch.equal(before, logits)


def test_a_rescaled_network_of_a_run_is_still_one(trained, tmp_path):
    there, _ = trained
    adjust_file(
        there.path / "model.safetensors",
        tmp_path / "model.safetensors",
        Rescale(0.5),
        there.snapshot.counts,
    )
    with torch.no_grad():
        from_run, rescaled = (
            export.classifier(folder, there.snapshot.head)[0](IMAGES)
            for folder in (there.path, tmp_path)
        )
    assert torch.equal(from_run, rescaled)


def test_a_network_whose_tensors_are_called_otherwise_is_refused_in_one_line(trained, tmp_path):
    there, _ = trained
    data = (there.path / "model.safetensors").read_bytes()
    assert data.count(b'"body.0.weight"') == 1
    (tmp_path / "model.safetensors").write_bytes(
        data.replace(b'"body.0.weight"', b'"body.0.weighs"')
    )
    with pytest.raises(
        LevelheadError, match=r"model\.safetensors: its network is not as it was written .*weighs"
    ):
        export.classifier(tmp_path, there.snapshot.head)
