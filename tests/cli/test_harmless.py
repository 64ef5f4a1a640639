"""Names in files that hold what a terminal obeys: nothing of it reaches the terminal, and no name begins a line."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

EVIL = "cat\x1b]0;owned\x07\x1b[2K\rok\nwarning: forged\x9b1m\u202e"
RNG = np.random.default_rng(0)


def check(said):
    assert "owned" in said  # the name is shown, written out
    assert all(line.isprintable() for line in said.split("\n"))
    assert not any(line.startswith(("warning: forged", "ok")) for line in said.split("\n"))


def test_class_names(tmp_path, levelhead):
    (tmp_path / "names.json").write_text(json.dumps([EVIL, "dog"]))
    save_file({"fc.weight": RNG.normal(size=(2, 4)).astype(np.float32)}, tmp_path / "m.safetensors")
    options = "--counts", "9,1", "--names", tmp_path / "names.json"
    check(levelhead("inspect", tmp_path / "m.safetensors", *options)[1])
    check(
        levelhead(
            "adjust",
            tmp_path / "m.safetensors",
            *options,
            "--rule",
            "rescale",
            "--strength",
            1,
            "-o",
            tmp_path / "o.safetensors",
        )[1]
    )
    np.savez(tmp_path / "l.npz", logits=RNG.normal(size=(60, 2)), labels=np.arange(60) % 2)
    check(levelhead("tune", "--logits", tmp_path / "l.npz", *options)[1])
    status, said, _ = levelhead("inspect", tmp_path / "m.safetensors", *options, "--json")
    assert status == 0
    assert json.loads(said)["names"] == [EVIL, "dog"]  # as it is, for programs


@pytest.mark.parametrize("names", [[f"{EVIL}.weight"], [f"{EVIL}.weight", "b.weight"]])
def test_tensors_in_a_result_and_in_an_error(names, tmp_path, levelhead):
    save_file(
        {name: RNG.normal(size=(2, 4)).astype(np.float32) for name in names},
        tmp_path / "m.safetensors",
    )
    status, out, err = levelhead("inspect", tmp_path / "m.safetensors")
    assert status == 2 * (len(names) - 1)
    check(out + err)
    assert err.count("\n") == len(names) - 1


def test_columns_and_files(tmp_path, levelhead):
    (tmp_path / "l.csv").write_text(
        f'"{EVIL.replace(";", "")}",logit_0,logit_1\na,1.5,2\nb,2.5,3\n'
    )
    check(levelhead("tune", "--logits", tmp_path / "l.csv", "--counts", "9,1")[2])


@pytest.mark.parametrize("mark", ["\n", "\r", "\x0b", "\u2028"])
@pytest.mark.parametrize("there", [False, True])
def test_the_name_of_a_file_forges_no_line(tmp_path, monkeypatch, levelhead, mark, there):
    monkeypatch.chdir(tmp_path)
    evil = f"x{mark}levelhead: all is well.npy"
    if there:
        np.save(evil, RNG.normal(size=(60, 2)))
        np.save("y.npy", np.arange(60) % 2)
    for words in (
        ("tune", "--logits", evil, "--labels", "y.npy"),
        ("tune", "--logits", "y.npy", "--labels", "y.npy", "-o", evil.replace("npy", "json")),
        ("inspect", evil),
    ):
        status, out, err = levelhead(*words)
        assert (status, out) == (2, "")
        assert err.count("\n") == 1
        assert err.isprintable() or err[:-1].isprintable()


def test_the_name_of_a_file_in_a_folder_forges_no_line(tmp_path, levelhead):
    folder = tmp_path / "chunks"
    folder.mkdir()
    evil = folder / "x\nlevelhead: all is well.npz"
    np.savez(evil, logits=RNG.normal(size=(60, 2)), labels=np.arange(60))
    status, out, err = levelhead("tune", "--logits", folder)
    assert (status, out, err.count("\n")) == (2, "", 1)
    np.savez(evil, logits=RNG.normal(size=(60, 2)), labels=np.arange(60) % 2, counts=[9, 1])
    status, out, err = levelhead("tune", "--logits", folder)
    assert status == 0
    assert "all is well" not in out
    assert not any(line.startswith("levelhead: all is well") for line in err.split("\n"))
