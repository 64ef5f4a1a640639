"""The commands `inspect`, `adjust` and `undo`: what they print."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from levelhead.support.extras import install_command

from .model_files import K, rescale, write_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model, its counts and names, and files of many kinds of wrong."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


def test_rescale_prints_what_changed_and_undo_gives_the_input_back(levelhead, folder):
    status, out, err = levelhead(*rescale())
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == ["m.safetensors -> o.safetensors", "  fc: RS, strength 0.5, bias scaled"]
    assert lines[3].split() == ["class", "count", "norm", "before", "after", "scale"]
    assert [line.split()[-1] for line in lines[4:8]] == ["1", "2", "4", "10"]
    assert "kept o.safetensors.original" in out
    assert levelhead("undo", "o.safetensors", "-o", "b.safetensors")[0] == 0
    assert (folder / "b.safetensors").read_bytes() == (folder / "m.safetensors").read_bytes()


def test_nothing_is_said_of_a_bias_that_is_not_there(levelhead, folder):
    save_file({"fc.weight": torch.ones(K, 3)}, folder / "m.safetensors")
    assert levelhead(*rescale())[1].splitlines()[1] == "  fc: RS, strength 0.5"


def test_json_is_one_object_and_nothing_else(levelhead, folder):
    status, out, _ = levelhead(*rescale(), "--json")
    done = json.loads(out)
    assert status == 0
    assert done["scale"] == [1, 2, 4, 10]
    assert done["sha256"] == {
        "o.safetensors": hashlib.sha256((folder / "m.safetensors").read_bytes()).hexdigest()
    }
    seen = json.loads(levelhead("inspect", "o.safetensors", "--counts", "c.json", "--json")[1])
    assert seen["layers"][0]["shape"] == [K, 8]
    assert seen["adjusted"]["strength"] == 0.5
    assert (
        json.loads(levelhead("undo", "o.safetensors", "-o", "b.safetensors", "--json")[1])["exact"]
        is True
    )


def test_json_is_json_also_of_a_head_whose_norms_are_all_equal(levelhead, folder):
    save_file({"fc.weight": torch.eye(K, 8)}, "level.safetensors")
    text = levelhead("inspect", "level.safetensors", "--counts", "c.json", "--json")[1]
    seen = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert seen["correlation"] is None
    assert "correlation" not in levelhead("inspect", "level.safetensors", "--counts", "c.json")[1]


def test_one_logit_is_told_which_rule_suits_it(levelhead, folder):
    assert (
        "a single logit; use the rule offsets or shift"
        in levelhead("inspect", "one.safetensors", "--counts", "two.json")[1]
    )


def test_the_command_that_undoes_can_be_pasted(levelhead, folder):
    assert (
        "`levelhead undo 'o ü.safetensors' -o BACK`"
        in levelhead(*rescale(out="o ü.safetensors"))[1]
    )


def test_a_folder_without_a_name_is_written_and_undone_under_its_own(
    levelhead, folder, monkeypatch
):
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    assert levelhead(*rescale("../sharded", "../c.json", ".", "0.5", "--force"))[::2] == (0, "")
    assert sorted(os.listdir()) == ["model.safetensors.index.json", "s.safetensors"]
    assert (folder / "here.original").is_file()
    assert levelhead("undo", ".", "-o", "../back")[::2] == (0, "")
    assert (folder / "back" / "s.safetensors").read_bytes() == (
        folder / "sharded" / "s.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_inspect_knows_the_head_that_was_rescaled(levelhead, folder, suffix):
    tensors = {"a.weight": torch.randn(K, 8), "b.weight": torch.randn(K, 8)}
    save_file(tensors, "pair.safetensors") if suffix == "safetensors" else torch.save(
        tensors, "pair.pt"
    )
    assert "more than one layer could be the head" in levelhead("inspect", f"pair.{suffix}")[2]
    words = rescale(f"pair.{suffix}", "c.json", f"out.{suffix}", "0.3", "--head", "b")
    assert levelhead(*words)[0] == 0
    status, out, _ = levelhead("inspect", f"out.{suffix}", "--json")
    assert status == 0
    answer = json.loads(out)
    assert [layer["key"] for layer in answer["layers"]] == ["b"]
    assert answer["adjusted"]["strength"] == 0.3


def test_inspect_draws_norms_largest_count_first(levelhead, folder):
    (folder / "c.json").write_text("[1, 2, 3, 4]", encoding="utf-8")
    out = levelhead("inspect", "m.safetensors", "--counts", "c.json")[1]
    rows = [line.split() for line in out.splitlines() if "█" in line]
    assert [row[:2] for row in rows] == [["3", "4"], ["2", "3"], ["1", "2"], ["0", "1"]]
    norms = np.array([float(row[2]) for row in rows])
    assert [len(row[3]) for row in rows] == [round(30 * n / norms.max()) for n in norms]


def test_many_classes_are_shown_from_both_ends(levelhead, folder):
    save_file({"fc.weight": torch.randn(100, 8)}, "many.safetensors")
    (folder / "many.json").write_text(json.dumps(list(range(100, 0, -1))), encoding="utf-8")
    out = levelhead(*rescale("many.safetensors", "many.json"))[1]
    first = [line.split()[0] for line in out.splitlines()[4:25]]
    assert first == [*map(str, range(10)), "...", *map(str, range(90, 100))]


def test_no_original_keeps_nothing(levelhead, folder):
    levelhead(*rescale(), "--no-original")
    assert not (folder / "o.safetensors.original").exists()
    out = levelhead("undo", "o.safetensors", "-o", "b.safetensors")[1]
    assert "exact only up to rounding" in out


@pytest.mark.parametrize("suffix", ["safetensors", "onnx"])
def test_inspect_and_rescale_import_no_torch(folder, suffix):
    if suffix == "onnx":
        from onnx import TensorProto, helper, numpy_helper, save

        weight = numpy_helper.from_array(np.ones((K, 8), np.float32), "fc.weight")
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", n])
            for name, n in (("x", 8), ("y", K))
        ]
        gemm = helper.make_node("Gemm", ["x", "fc.weight"], ["y"], transB=1)
        save(
            helper.make_model(helper.make_graph([gemm], "g", ends[:1], ends[1:], [weight])),
            "m.onnx",
        )
    code = (
        "import sys; from levelhead.cli import app\n"
        f"for words in (['inspect', 'm.{suffix}'], ['adjust', 'm.{suffix}', '-o', 'o.{suffix}', '--counts', 'c.json', "
        "'--rule', 'rescale', '--strength', '1'], ['--help']):\n    app(words, standalone_mode=False)\n"
        "heavy = {'torch', 'sklearn', 'rich', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\nassert ('onnx' in sys.modules) == ('" + suffix + "' == 'onnx')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr


def check_named_where_missing(module: str, words: list[str], folder: Path) -> None:
    """Check that a command, where the module of an extra is missing, says in one line how to install it."""
    code = (
        f"import sys\nsys.modules[{module!r}] = None\nsys.argv = ['levelhead', *{words}]\n"
        "from levelhead.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.endswith(f"needs {module}: {install_command(module)}\n")
    assert done.stderr.count("\n") == 1


def test_what_is_not_installed_is_named_with_its_extra(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    check_named_where_missing("onnx", ["inspect", "model.onnx"], tmp_path)
