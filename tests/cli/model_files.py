"""A folder with a model, its counts and names, and files of many kinds of wrong; and commands that use them."""

import hashlib
import json
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import levelhead as lh
from levelhead.core.metrics import Tables, find_metric

K = 4
COUNTS = [400, 100, 25, 4]


def write_files(folder: Path) -> None:
    """Write m.safetensors, c.json and all the others, into the folder that tests are in."""
    torch.manual_seed(0)
    fc = torch.randn(K, 8)
    _write_models(folder, fc)
    _write_counts(folder)
    _write_notes(fc)
    _write_headers(folder, fc)


def _write_models(folder: Path, fc: torch.Tensor) -> None:
    """Write models of every kind, whole ones and damaged ones, and arrays."""
    save_file(
        {"body.weight": torch.randn(8, 8), "fc.weight": fc, "fc.bias": torch.randn(K)},
        "m.safetensors",
        {"format": "pt"},
    )
    save_file({"a.weight": fc, "b.weight": fc + 1}, "two.safetensors")
    save_file({"conv.weight": torch.randn(8, 3, 3, 3)}, "none.safetensors")
    for bad in ("nan", "inf"):
        save_file(
            {"fc.weight": fc.where(fc != fc[2, 3], torch.tensor(float(bad)))}, f"{bad}.safetensors"
        )
    save_file({"fc.weight": torch.ones(K, 8, dtype=torch.int8)}, "int8.safetensors")
    whole = (folder / "m.safetensors").read_bytes()
    (folder / "short.safetensors").write_bytes(whole[:-10])
    (folder / "short.onnx").write_bytes(b"\x08\x08\x3a\xff")
    torch.save({"fc.weight": fc}, "m.pt")
    torch.save(torch.nn.Linear(2, 2), "module.pt")
    (folder / "short.pt").write_bytes((folder / "m.pt").read_bytes()[:300])
    for name in ("p.pkl", "p.pickle", "p.joblib", "p.pt2", "p.pt"):
        (folder / name).write_bytes(pickle.dumps({"fc.weight": 1}))
    (folder / "m.h5").write_bytes(b"x")
    np.save("probabilities.npy", np.full((5, K), 1 / K, np.float32))
    save_file({"fc.weight": fc.half() / 1000}, "half.safetensors")
    save_file({"fc.weight": fc * 1e30}, "huge.safetensors")
    save_file({"body.weight": torch.randn(8, 4), "fc.weight": fc[:1]}, "one.safetensors")
    (folder / "two.json").write_text("[9, 1]", encoding="utf-8")
    np.save("scalar.npy", np.array(4))
    np.save("two-classes.npy", np.ones((5, 2)))
    (folder / "folder.safetensors").mkdir()
    for name, entries in {"sharded": {"fc.weight": "s.safetensors"}, "empty": {}}.items():
        (folder / name).mkdir()
        save_file({"fc.weight": fc}, folder / name / "s.safetensors")
        index = folder / name / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": entries}), encoding="utf-8")
    torch.save({"fc.weight": fc.to_sparse()}, "sparse.pt")
    torch.save({"fc.weight": fc[:, ::2]}, "strided.pt")
    with warnings.catch_warnings(action="ignore"):
        torch.save(
            {"fc.weight": torch.quantize_per_tensor(fc, 0.1, 0, torch.qint8)}, "quantized.pt"
        )
    (folder / "nothing.npy").touch()
    (folder / "taken.safetensors").write_bytes(b"mine")


def _write_counts(folder: Path) -> None:
    """Write counts, right and wrong, and what is not what `tune` writes."""
    for name, value in {
        "c": COUNTS,
        "few": COUNTS[:3],
        "zero": [400, 0, 25, 4],
        "negative": [400, -1, 25, 4],
        "half": [1, 0.5, 0.25, 0.1],
        "named": {"cat": 1, "dog": 2, "cow": 3, "emu": 4},
        "unknown": {"0": 1, "1": 2, "2": 3, "7": 4},
        "word": ["a", 1, 2, 3],
        "tuned": {"gamma": 0.5, "rule": "rescale", "chosen_on": "held-out"},
        "untuned": {"beta": 1},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    (folder / "broken.json").write_text("{", encoding="utf-8")


def _write_notes(fc: torch.Tensor) -> None:
    """Write models whose note of an adjustment is damaged."""
    note = {
        "rule": "rescale",
        "strength": "1",
        "bias": "scale",
        "head": '["fc"]',
        "scale": "[2, 2, 2, 2]",
        "offset": "[0, 0, 0, 0]",
        "counts": "[8, 4, 2, 1]",
        "version": "1",
    }
    notes = {
        "noted": {"rule": "rescale"},
        "noted-2": note | {"strength": "x"},
        "noted-3": note | {"offset": "[0, 0, 0, 1]"},
        "noted-4": note | {"scale": "[1, 0, 1, 1]"},
    }
    for name, entries in notes.items():
        save_file(
            {"fc.weight": fc},
            f"{name}.safetensors",
            {f"levelhead.{key}": value for key, value in entries.items()},
        )
    torch.save({"fc.weight": fc}, "noted.pt")
    with zipfile.ZipFile("noted.pt", "a") as archive:
        archive.writestr("noted/levelhead.json", "[1]")


def _write_headers(folder: Path, fc: torch.Tensor) -> None:
    """Write safetensors files whose header is not as it should be."""
    plain = {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}
    for name, header in {
        "list": {"__metadata__": [1], "fc.weight": plain},
        "five": {"__metadata__": {"a": 5}, "fc.weight": plain},
        "minus": {"fc.weight": {**plain, "shape": [-4, -8]}},
        "deep": {},
    }.items():
        text = json.dumps(header).encode()
        if name == "deep":
            text = b"[" * 100_000
        (folder / f"{name}.safetensors").write_bytes(
            len(text).to_bytes(8, "little") + text + fc.numpy().tobytes()
        )


def state(folder: Path) -> dict[str, object]:
    """Return what a folder holds: the digest of each file, the names in each folder."""
    contents = {}
    for path in folder.iterdir():
        if path.is_file():
            contents[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            contents[path.name] = sorted(path.iterdir())
    return contents


def rescale(
    model="m.safetensors",
    counts="c.json",
    out="o.safetensors",
    strength="0.5",
    *more,
    rule="rescale",
):
    """Return the words of a command that adjusts a model by a rule."""
    by = ["--rule", rule, "--strength", strength, "--counts", counts]
    return ["adjust", model, *by, "-o", out, *more]


def choice(folder, name="shift.json", gain=0.1, error=0.01, **entries):
    """Write a file as `levelhead tune` does; with a gain and its standard error."""
    before = Tables(np.full(K, 5.0), np.full(K, 10.0), np.full(K, 10.0))
    after = Tables(np.full(K, 6.0), np.full(K, 10.0), np.full(K, 10.0))
    usual = {
        "rule": "shift",
        "adjustment": lh.Adjustment.adding(0.5 * np.log(COUNTS[0] / np.array(COUNTS))),
        "strength": 0.5,
        "counts": tuple(map(float, COUNTS)),
        "evidence": lh.Evidence(find_metric("balanced_error"), before, after, gain, error, 9, 40),
    }
    lh.Tuned(**usual | entries).save(folder / name)
    return name


def adjust(tuned, model="m.safetensors", out="o.safetensors", *more):
    """Return the words of a command that adjusts a model by a choice."""
    return ["adjust", model, "--tuned", tuned, "-o", out, *more]
