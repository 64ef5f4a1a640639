"""Hostile files, made one by one: pickles that run code, lying sizes, bombs, links, pipes, paths that
lead outside.

`CASES` maps a title to a function that writes the files of the case to a folder and returns the
words of a command that reads them. Each must be refused in one line.

The functions at the end fill it, when this module is imported: `_pickles`, `_sizes`, `_bombs` and
`_files`. A file that is large is made by a function, only when its case is run.
"""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

# The file that the code of a case leaves behind, if it is run.
CANARY = "it-ran"
Case = Callable[[Path], list[str]]
CASES: dict[str, Case] = {}
# Python that leaves it.
TOUCH = f"open({CANARY!r}, 'w').close()"
# An entry of a safetensors header that is right, of which the cases change one thing.
TENSOR = {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}
GIB = 1 << 30


class _Runs:
    """Pickles to a call of a function."""

    def __init__(self, function, *arguments) -> None:
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def payloads() -> dict[str, object]:
    """Return objects whose unpickling runs code that leaves a file behind."""
    import subprocess

    return {
        "os.system": _Runs(os.system, f"touch {CANARY}"),
        "exec": _Runs(exec, TOUCH),
        "eval": _Runs(eval, TOUCH),
        "subprocess": _Runs(subprocess.Popen, ["touch", CANARY]),
        "mkdir": _Runs(os.mkdir, CANARY),
    }


def inspect(path: str) -> list[str]:
    """Return the words of a command that reads a model."""
    return ["inspect", path]


def rescale(path: str, out: str | None = None) -> list[str]:
    """Return the words of a command that reads a model, and writes another."""
    return [
        "adjust",
        path,
        "--counts",
        "c.json",
        "--rule",
        "rescale",
        "--strength",
        "0.5",
        "-o",
        out or f"out{Path(path).suffix}",
    ]


def tune(path: str) -> list[str]:
    """Return the words of a command that reads logits."""
    return ["tune", "--logits", path, "--counts", "c.json"]


def counts(path: str) -> list[str]:
    """Return the words of a command that reads counts, beside a sound model."""
    return ["inspect", "m.safetensors", "--counts", path]


def add(
    title: str, name: str, content: bytes | Callable[[], bytes], words: Callable[[str], list[str]]
) -> None:
    """Add a case of one file.

    Args:
        title: of the case.
        name: of the file.
        content: its bytes, or what makes them when the case is run.
        words: of the command, given the name.
    """

    def make(folder: Path) -> list[str]:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content())
        return words(name)

    CASES[title] = make


def _torch_zip(
    pickled: bytes, records: dict[str, bytes] | None = None, compression: int = zipfile.ZIP_STORED
) -> bytes:
    """Return an archive as torch.save writes it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", b"little")
        for name, data in (records or {}).items():
            archive.writestr(f"archive/{name}", data)
        archive.writestr("archive/version", b"3\n")
    return file.getvalue()


def _npy(descr: str, shape: str, data: bytes = b"", order: str = "False") -> bytes:
    """Return a .npy file: a magic word and the version, the length of the header, the header as a
    Python literal, the data.

    Its fields are text here, so that a case can put anything in their place.
    """
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    header = header.ljust((len(header) + 11 + 63) // 64 * 64 - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def _safetensors(header: object, data: bytes = bytes(128), length: int | None = None) -> bytes:
    """Return a safetensors file: the length of its header, which may lie, the header, the data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _pickles() -> None:
    """Add pickles that run code, of every protocol, in each kind of file that may hold one."""
    for protocol in range(6):
        for kind, payload in payloads().items():
            data = pickle.dumps({"fc.weight": payload}, protocol=protocol)
            if kind in ("os.system", "exec"):
                add(
                    f"state dict, {kind}, protocol {protocol}",
                    "x.pt",
                    lambda d=data: _torch_zip(d),
                    rescale,
                )
            if protocol in (0, 4):
                add(f"bare pickle as .pt, {kind}, protocol {protocol}", "x.pt", data, inspect)
            if protocol == 2:
                add(f"bare pickle as .bin, {kind}", "x.bin", data, inspect)
                add(f"logits in a torch file, {kind}", "x.pt", lambda d=data: _torch_zip(d), tune)
        bare = pickle.dumps(payloads()["os.system"], protocol=protocol)
        add(f"objects in .npy, protocol {protocol}", "x.npy", _npy("'|O'", "(1,)", bare), tune)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("logits.npy", _npy("'|O'", "(1,)", pickle.dumps(payloads()["exec"])))
    add("objects in .npz", "x.npz", inner.getvalue(), tune)
    for suffix in (".pkl", ".joblib", ".pt2", ".pickle"):
        add(f"a {suffix} model", f"x{suffix}", pickle.dumps(payloads()["os.system"]), inspect)
    add(
        "code in a torch.jit archive",
        "x.pt",
        lambda: _torch_zip(pickle.dumps(1), {"code/x.py": TOUCH.encode()}),
        inspect,
    )
    add("a pickle as counts", "x.npy", pickle.dumps(payloads()["exec"]), counts)


def _sizes() -> None:
    """Add files whose sizes lie: lengths, shapes and offsets beyond the file, or that would need
    terabytes.
    """
    for length in (0, 7, 1 << 20, GIB, 1 << 40, (1 << 63) - 1, (1 << 64) - 1):
        add(
            f"safetensors, header of {length}",
            "x.safetensors",
            _safetensors({"fc.weight": TENSOR}, length=length),
            inspect,
        )
    lies = {
        "offsets beyond the file": {**TENSOR, "shape": [4, 1 << 30], "data_offsets": [0, 1 << 34]},
        "shape beyond the offsets": {**TENSOR, "shape": [1 << 31, 1 << 31]},
        "a negative shape": {**TENSOR, "shape": [-4, -8]},
        "offsets turned": {**TENSOR, "data_offsets": [128, 0]},
        "an unknown type": {**TENSOR, "dtype": "PY"},
        "offsets as text": {**TENSOR, "data_offsets": ["0", "128"]},
        "a shape as text": {**TENSOR, "shape": "4,8"},
        "a number for a tensor": 3,
    }
    for title, entry in lies.items():
        add(f"safetensors, {title}", "x.safetensors", _safetensors({"fc.weight": entry}), rescale)
    twice = b'{"fc.weight":%s,"fc.weight":%s}' % ((json.dumps(TENSOR).encode(),) * 2)
    add("safetensors, a name twice", "x.safetensors", _safetensors(twice), inspect)
    add("safetensors, deep JSON", "x.safetensors", _safetensors(b"[" * 200_000), inspect)
    add(
        "safetensors, two tensors at one place",
        "x.safetensors",
        _safetensors({"a": TENSOR, "b": TENSOR}),
        inspect,
    )
    for title, shape in {"terabytes": f"({1 << 40}, 4)", "overflow": f"({1 << 62}, {1 << 62})", "negative": "(-1, 4)",
                         "a call": "(exit(), 4)", "deep": "(" * 90 + ")" * 90}.items():  # fmt: skip
        add(f".npy, shape: {title}", "x.npy", _npy("'<f8'", shape, bytes(64)), tune)
    add(".npy, a type that is a call", "x.npy", _npy(f"[('a', {TOUCH!r})]", "(1,)", bytes(8)), tune)
    add(
        ".npy, header length beyond the file",
        "x.npy",
        b"\x93NUMPY\x02\x00" + struct.pack("<I", GIB) + b"{}",
        tune,
    )
    # Opcodes: X is a string and its length, \x8b an integer of so many bytes, r an index of the
    # memo, \x85 a tuple of one, N None.
    sized = _torch_zip(b"\x80\x02X\xff\xff\xff\x7fabc.")
    add("state dict, a string of 2 GiB that is not there", "x.pt", sized, inspect)
    add(
        "state dict, a long of 2 GiB",
        "x.pt",
        _torch_zip(b"\x80\x02\x8b\xff\xff\xff\x7f1."),
        inspect,
    )
    add(
        "state dict, a memo of 4 billion",
        "x.pt",
        _torch_zip(b"\x80\x02Nr\xff\xff\xff\xff."),
        inspect,
    )
    add(
        "state dict, deep tuples",
        "x.pt",
        _torch_zip(b"\x80\x02N" + b"\x85" * 100_000 + b"."),
        inspect,
    )
    add("state dict, no end", "x.pt", _torch_zip(b"\x80\x02" + b"N" * 1000), inspect)
    add(
        "state dict, an alignment of 0",
        "x.pt",
        lambda: _torch_zip(b"\x80\x02}.", {".storage_alignment": b"0"}),
        inspect,
    )


def _bombs() -> None:
    """Add small files that become large: deflated zeros, nesting without end, numbers of a million
    digits.
    """

    def npz() -> bytes:
        file = io.BytesIO()
        with (
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("logits.npy", "w", force_zip64=True) as inner,
        ):
            inner.write(_npy("'<f8'", f"({1 << 24}, 16)"))
            for _ in range(64):
                inner.write(bytes(1 << 25))
        return file.getvalue()

    add("bomb, .npz of 2 GiB", "x.npz", npz, tune)
    add(
        "bomb, deflated pickle",
        "x.pt",
        lambda: _torch_zip(
            b"\x80\x02" + b"(N" * (64 << 20) + b".", compression=zipfile.ZIP_DEFLATED
        ),
        inspect,
    )
    add(
        "bomb, deflated tensor",
        "x.pt",
        lambda: _torch_zip(pickle.dumps({}), {"data/0": bytes(256 << 20)}, zipfile.ZIP_DEFLATED),
        inspect,
    )
    add("bomb, deep JSON as counts", "x.json", b"[" * 500_000, counts)
    add("bomb, deep objects as counts", "x.json", b'{"a":' * 500_000, counts)
    add(
        "bomb, a number of a million digits",
        "x.json",
        b"[" + b"9" * 1_000_000 + b", 1, 1, 1]",
        counts,
    )
    add("bomb, a million columns", "x.csv", b"1," * 1_000_000 + b"1\n2\n", tune)
    add("bomb, deep JSON as a choice", "x.json", b"[" * 500_000,
        lambda name: ["adjust", "m.safetensors", "--tuned", name, "-o", "o.safetensors"])  # fmt: skip
    add(
        "bomb, deep TOML as a grid",
        "x.toml",
        b"a = " + b"[" * 100_000,
        lambda name: ["sweep", name],
    )


def _files() -> None:
    """Add what is no regular file, what leads out of its folder, and what is not what its suffix says."""
    readers = {"inspect": inspect, "rescale": rescale, "tune": tune, "counts": counts}
    for suffix in (".safetensors", ".pt", ".onnx", ".npy", ".json"):
        for kind in ("pipe", "device", "socket", "loop"):
            reader = "counts" if suffix == ".json" else "tune" if suffix == ".npy" else "inspect"
            CASES[f"{kind} as {suffix}"] = _special(kind, f"x{suffix}", readers[reader])
    for where in (
        "../outside.safetensors",
        "/etc/passwd",
        "a/../../outside.safetensors",
        "link.safetensors",
    ):
        CASES[f"shards that lead to {where}"] = _shards(where)
    for where in ("../outside.bin", "/etc/passwd", "x.onnx", "link.bin", "a/../../outside.bin"):
        CASES[f"external weights in {where}"] = _external(where)
    add(
        "a zip as .safetensors",
        "x.safetensors",
        _torch_zip(pickle.dumps(payloads()["os.system"])),
        inspect,
    )
    add("an empty .onnx", "x.onnx", b"", inspect)
    add("text as .onnx", "x.onnx", b"#!/bin/sh\ntouch it-ran\n", inspect)
    add("a length beyond the .onnx", "x.onnx", b"\x3a\xff\xff\xff\xff\x0f", inspect)
    add("an endless varint in .onnx", "x.onnx", b"\x08" + b"\xff" * 1000, inspect)
    add("groups without an end in .onnx", "x.onnx", b"\x0b" * 100_000, inspect)
    add("code as a method", "x.txt", TOUCH.encode(), lambda name: ["methods", f"{name}:METHOD"])


def _special(kind: str, name: str, words: Callable[[str], list[str]]) -> Case:
    """Return a case whose file is a pipe, a device, a socket, or a link to itself."""

    def make(folder: Path) -> list[str]:
        path = folder / name
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            import socket

            here = os.getcwd()
            os.chdir(folder)  # a name of at most 107 bytes
            socket.socket(socket.AF_UNIX).bind(name)
            os.chdir(here)
        else:
            path.symlink_to("/dev/zero" if kind == "device" else name)
        return words(name)

    return make


def _shards(where: str) -> Case:
    """Return a case of a sharded model whose index says that its weights are somewhere else."""

    def make(folder: Path) -> list[str]:
        (folder / "x").mkdir()
        secret = (folder / "m.safetensors").read_bytes()
        (folder / "outside.safetensors").write_bytes(secret)
        (folder / "x" / "link.safetensors").symlink_to("/dev/zero")
        index = {"metadata": {}, "weight_map": {"fc.weight": where}}
        (folder / "x" / "model.safetensors.index.json").write_text(json.dumps(index))
        return rescale("x", "out")

    return make


def _external(where: str) -> Case:
    """Return a case of an ONNX model whose weights are said to be in some other file."""

    def make(folder: Path) -> list[str]:
        from onnx import TensorProto, helper

        weight = TensorProto(
            name="W", data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL, dims=[4, 8]
        )
        weight.external_data.add(key="location", value=where)
        ends = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", size])
            for n, size in (("x", 8), ("y", 4))
        ]
        gemm = helper.make_node("Gemm", ["x", "W"], ["y"], transB=1)
        onnx_model = helper.make_model(helper.make_graph([gemm], "g", ends[:1], ends[1:], [weight]))
        (folder / "x").mkdir()
        (folder / "outside.bin").write_bytes(np.ones(32, np.float32).tobytes())
        (folder / "x" / "link.bin").symlink_to("/dev/zero")
        (folder / "x" / "x.onnx").write_bytes(onnx_model.SerializeToString())
        return rescale("x/x.onnx", "out.onnx")

    return make


for _fill in (_pickles, _sizes, _bombs, _files):
    _fill()
