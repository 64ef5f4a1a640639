"""Damaged files of logits, labels, counts, names and tuned.json: each is read, or refused in one line.

Every suffix that users may give has a few sound files (`seeds`), written by the libraries that they
have, and every file is read as all of logits, labels, counts and names: people do mix them up.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from levelhead.core.head import Head
from levelhead.core.tuned import tuned_of
from levelhead.io import arrays
from levelhead.io.arrays import read_counts, read_names
from levelhead.io.samples_file import read as read_samples
from levelhead.support.logits import check_logits

try:
    from levelhead_lab.lab.snapshot import Snapshot
except ImportError:  # the product is tested without the lab too
    Snapshot = None

from .harness import drive_readers, main
from .mutators import damage_zip

LOGITS = np.random.default_rng(0).normal(size=(5, 3))
NAMES = ["cat", "dog", "owl"]
# What parsers of numbers and of array headers trip over: other types, text, nesting, digits without
# end.
WORDS = rb"""-1|1e999|nan|NaN|null|true|"|,|;|:|'O'|'<U0'|'<M8[s]'|\ud800|1_0|[[[[[[|{{{{{{|((((((""".split(
    b"|"
)
WORDS += [
    b"",
    b"\x00",
    b"\xff" * 4,
    b"\n",
    b"\r",
    b"\t",
    b"[" * 2000,
    b"(" * 200,
    b"9" * 400,
    b"\xed\xa0\x80",
]


def seeds() -> dict[str, list[bytes]]:
    """Return sound files by suffix, made by the libraries that users have."""
    contents: dict[str, list[bytes]] = {}

    def add(suffix: str, content: Any) -> None:
        contents.setdefault(suffix, []).append(
            content if isinstance(content, bytes) else content.encode()
        )

    for values in (
        LOGITS,
        LOGITS.astype(np.float16),
        np.arange(5),
        np.array(NAMES),
        np.array(NAMES).astype("S"),
        LOGITS.T,
    ):
        buffer = io.BytesIO()
        np.save(buffer, values)
        add(".npy", buffer.getvalue())
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(
            buffer,
            logits=LOGITS,
            labels=np.arange(5) % 3,
            counts=np.array([9, 5, 2]),
            names=np.array(NAMES),
        )
        add(".npz", buffer.getvalue())
    from safetensors.numpy import save as save_tensors

    add(
        ".safetensors",
        save_tensors({"logits": LOGITS, "labels": np.arange(5) % 3, "counts": np.array([9, 5, 2])}),
    )
    if Snapshot is not None:
        with tempfile.TemporaryDirectory() as folder:
            head = Head(np.eye(3), names=NAMES)
            path = Path(folder, "s.safetensors")
            Snapshot(head, [9, 5, 2], {"test": np.eye(3)}, {"test": np.arange(3)}).save(path)
            add(".safetensors", path.read_bytes())
    rows = "\n".join(",".join(map(str, row)) for row in LOGITS.tolist())
    for text in (
        f"cat,dog,owl\n{rows}\n",
        rows,
        "id,cat,dog,label\n7,0.5,1.5,cat\n8,2.5,0.5,dog\n",
        "label\ncat\ndog\nowl\ncat\ndog\n",
        "class,n\ncat,9\ndog,5\nowl,2\n",
        "0\n1\n2\n1\n0\n",
        "a;b\n0,5;1,5\n",
    ):
        add(".csv", text)
        add(".tsv", text.replace(",", "\t"))
        add(".txt", text.replace(",", " "))
    choice = {
        "format": "levelhead tuned 1",
        "rule": "rescale",
        "strength": 0.5,
        "scale": [1.0, 1.3, 2.1],
        "offset": [0.0, 0.0, 0.0],
        "chosen_on": "held-out",
        "counts": [9, 5, 2],
        "names": NAMES,
        "sources": {
            "files": {"logits": "a.npy", "counts": "c.json"},
            "sha256": {"logits": "0", "counts": "0"},
        },
    }
    for value in (
        [9, 5, 2],
        {"cat": 9, "dog": 5, "owl": 2},
        {"counts": [9, 5, 2]},
        {"id2label": {"0": "cat", "1": "dog", "2": "owl"}},
        NAMES,
        LOGITS.tolist(),
        choice,
    ):
        add(".json", json.dumps(value))
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        pass
    else:
        for table in (
            dict(zip(NAMES, LOGITS.T, strict=True)),
            {
                "id": np.arange(5),
                "label": np.arange(5) % 3,
                **dict(zip(NAMES, LOGITS.T, strict=True)),
            },
            {"logits": LOGITS.tolist()},
            {"label": ["cat", "dog", "owl", "cat", "dog"]},
        ):
            buffer = io.BytesIO()
            parquet.write_table(pyarrow.table(table), buffer)
            add(".parquet", buffer.getvalue())
    try:
        import torch
    except ImportError:
        pass
    else:
        tensor = torch.tensor(LOGITS)
        for value in (
            tensor,
            {"logits": tensor, "labels": torch.arange(5) % 3, "names": NAMES},
            (tensor.half(), [1]),
        ):
            buffer = io.BytesIO()
            torch.save(value, buffer)
            add(".pt", buffer.getvalue())
    return contents


def damaged(rng: random.Random) -> tuple[str, bytes]:
    """Return a suffix and the bytes of a damaged file: flipped, cut, repeated, or with hostile words."""
    suffix = rng.choice(KINDS)
    content = rng.choice(FILES[suffix])
    if content.startswith(b"PK") and rng.random() < 0.6:
        return suffix, damage_zip(rng, content, _damage)
    return suffix, _damage(rng, content)


def _damage(rng: random.Random, content: bytes) -> bytes:
    """Return bytes with one to four changes: flipped, set, cut, repeated, or a hostile word in their
    place.
    """
    data = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.randrange(1, 9))
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:end] = rng.choice(WORDS)
        elif kind == 3:
            data[at:at] = data[at:end] * rng.randrange(1, 50)
        elif kind == 4 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 5 and rng.random() < 0.2:
            del data[at:]
    return bytes(data)


def _read_all(path: Path) -> None:
    """Read logits and labels of one file, as `tune` does, with counts that are given."""
    read_samples(path, None, "9,5,2")


def _readers(suffix: str) -> dict[str, Callable[[Path], Any]]:
    """Return what reads a file of this suffix, by the name of what is read."""
    readers: dict[str, Callable[[Path], Any]] = {
        "logits": lambda path: check_logits(arrays.read(path)),
        "labels": lambda path: arrays.read(path, wanted="labels").tolist(),
        "samples": _read_all,
        "counts": lambda path: _resolved(read_counts(path)),
        "names": read_names,
    }
    if suffix == ".json":
        readers["tuned"] = tuned_of
    if suffix == ".safetensors" and Snapshot is not None:
        readers["snapshot"] = Snapshot.load
    return readers


def _resolved(counts: Any) -> Any:
    """Return counts as they are checked once the classes are known."""
    from levelhead.core.counts import resolve

    return resolve(counts, 3, names=NAMES)


FILES = seeds()
SLOW = (".pt", ".npz", ".parquet")  # whose libraries take ten times as long as text
KINDS = [suffix for suffix in FILES for _ in range(1 if suffix in SLOW else 4)]
READERS = {suffix: _readers(suffix) for suffix in FILES}


def run(**how: Any) -> dict[str, Any]:
    """Run cases, as `drive_readers` takes them."""
    warnings.simplefilter("ignore")  # of numpy, about damaged numbers
    return drive_readers(damaged, READERS, nameless=("logits", "counts"), **how)


if __name__ == "__main__":
    main("data", run)
