"""Damaged files of logits, labels, counts, names and tuned.json: each is read, or refused in one line.

    python tests/trust/fuzz_data.py --executions 100000 --seed 1

prints one JSON line. `run` is the same for a test, with fewer executions.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from levelhead.core.measure import check_logits
from levelhead.io import arrays
from levelhead.io.counts_file import read_counts
from levelhead.io.names_file import read_names
from levelhead.io.samples import read as read_samples
from levelhead.io.snapshot import Snapshot
from levelhead.io.tuned_json import choice_of

LOGITS = np.random.default_rng(0).normal(size=(5, 3))
NAMES = ["cat", "dog", "owl"]
WORDS = rb"""-1|1e999|nan|NaN|null|true|"|,|;|:|'O'|'<U0'|'<M8[s]'|\ud800|1_0|[[[[[[|{{{{{{|((((((""".split(b"|")
WORDS += [b"", b"\x00", b"\xff" * 4, b"\n", b"\r", b"\t", b"[" * 2000, b"(" * 200, b"9" * 400, b"\xed\xa0\x80"]


def seeds() -> dict[str, list[bytes]]:
    """Return sound files by suffix, made by the libraries that users have."""
    made: dict[str, list[bytes]] = {}

    def add(suffix: str, content: Any) -> None:
        made.setdefault(suffix, []).append(content if isinstance(content, bytes) else content.encode())

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
        save(buffer, logits=LOGITS, labels=np.arange(5) % 3, counts=np.array([9, 5, 2]), names=np.array(NAMES))
        add(".npz", buffer.getvalue())
    from safetensors.numpy import save as save_tensors

    add(".safetensors", save_tensors({"logits": LOGITS, "labels": np.arange(5) % 3, "counts": np.array([9, 5, 2])}))
    with tempfile.TemporaryDirectory() as folder:
        from levelhead import Head

        path = Path(folder, "s.safetensors")
        Snapshot(Head(np.eye(3), names=NAMES), [9, 5, 2], {"test": np.eye(3)}, {"test": np.arange(3)}).save(path)
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
        "gamma": 0.5,
        "rule": "rescale",
        "chosen_on": "held-out",
        "counts": [9, 5, 2],
        "classes": 3,
        "names": NAMES,
        "interval": [0.1, 0.9],
        "level": 0.95,
        "sources": {
            "files": {"logits": "a.npy", "counts": "c.json"},
            "sha256": {"logits": "0", "counts": "0"},
            "kind": "logits",
            "target": None,
            "counts": [9, 5, 2],
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
            {"id": np.arange(5), "label": np.arange(5) % 3, **dict(zip(NAMES, LOGITS.T, strict=True))},
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
        for value in (tensor, {"logits": tensor, "labels": torch.arange(5) % 3, "names": NAMES}, (tensor.half(), [1])):
            buffer = io.BytesIO()
            torch.save(value, buffer)
            add(".pt", buffer.getvalue())
    return made


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Return damaged bytes: flipped, cut, repeated, or with hostile words; in a zip, often inside a member."""
    if content.startswith(b"PK") and rng.random() < 0.6:
        return _mutate_member(content, rng)
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(data) + 1))
        end = min(len(data), at + int(rng.integers(1, 9)))
        kind = rng.integers(6)
        if kind == 0 and at < len(data):
            data[at] = int(rng.integers(256))
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:end] = WORDS[int(rng.integers(len(WORDS)))]
        elif kind == 3:
            data[at:at] = data[at:end] * int(rng.integers(1, 50))
        elif kind == 4 and at < len(data):
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 5 and rng.random() < 0.2:
            del data[at:]
    return bytes(data)


def _mutate_member(content: bytes, rng: np.random.Generator) -> bytes:
    """Return a zip, sound as such, in which one member is damaged."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        members = old.infolist()
        chosen = int(rng.integers(len(members)))
        for i, member in enumerate(members):
            data = old.read(member)
            methods = [member.compress_type, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
            how = methods[int(rng.integers(4)) if rng.random() < 0.1 else 0]
            new.writestr(member.filename, mutate(data, rng) if i == chosen else data, compress_type=how)
    return buffer.getvalue()


def _read_all(path: Path) -> None:
    read_samples(path, None, "9,5,2")


READERS: dict[str, Callable[[Path], Any]] = {
    "logits": lambda path: check_logits(arrays.read(path)),
    "labels": lambda path: arrays.read(path, wanted="labels").tolist(),
    "samples": _read_all,
    "counts": lambda path: _resolved(read_counts(path)),
    "names": read_names,
    "tuned": lambda path: choice_of(path) if path.suffix == ".json" else None,
    "snapshot": lambda path: Snapshot.load(path) if path.suffix == ".safetensors" else None,
}


def _resolved(counts: Any) -> Any:
    from levelhead.core.counts import resolve

    return resolve(counts, 3, names=NAMES)


def run(executions: int, seed: int = 0, suffixes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read damaged files with every reader; return how many were read, refused in one line, and wrong, with why."""
    rng, files = np.random.default_rng(seed), seeds()
    kinds = [suffix for suffix in files if not suffixes or suffix in suffixes]
    outcome: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(executions):
            suffix = kinds[i % len(kinds)]
            content = mutate(files[suffix][int(rng.integers(len(files[suffix])))], rng)
            path = Path(folder, f"x{suffix}")
            path.write_bytes(content)
            name = list(READERS)[int(rng.integers(len(READERS)))]
            try:
                READERS[name](path)
                outcome["read"] += 1
            except (ValueError, OSError) as error:
                lines = str(error).strip().splitlines()
                ours = type(error).__name__ == "LevelheadError" or isinstance(error, OSError)
                checked = name in ("logits", "counts")  # by functions that know no file
                if ours and len(lines) == 1 and (checked or str(path) in lines[0] or "counts" in lines[0]):
                    outcome["refused"] += 1
                else:
                    wrong[f"{suffix} {name}: {type(error).__name__}: {str(error)[:150]!r} {_where(error)}"] += 1
            except Exception as error:
                wrong[f"{suffix} {name}: {type(error).__name__}: {str(error)[:150]!r} {_where(error)}"] += 1
    return {
        "executions": executions,
        **outcome,
        "tracebacks": sum(wrong.values()),
        "wrong": dict(wrong.most_common(40)),
    }


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "levelhead" in frame.filename]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--executions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--suffix", nargs="*", default=[])
    given = parser.parse_args()
    print(json.dumps(run(given.executions, given.seed, tuple(given.suffix))))
