"""Damaged folders of finished runs: reported, read and exported as they were written, or refused in
one line.

One file of a real run is damaged. A safetensors file that is damaged is noticed by its sha256 in
done.json; seven times in ten that is set right, as somebody who means harm would do, and the file
itself must be refused.
"""

import hashlib
import json
import random
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from levelhead.core.tune import tune
from levelhead_lab.runs.export import export, load
from levelhead_lab.runs.run import run as train
from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.spec import Spec
from levelhead_lab.runs.subject import of_run
from tools.layouts import write_small_npz

from .harness import drive, main
from .mutators import damage_bytes, damage_json


def trained() -> dict[str, bytes]:
    """Return the files of a run, {name: content}."""
    with TemporaryDirectory() as place:
        root = Path(place)
        write_small_npz(root, epochs=1)
        spec = Spec(
            str(root / "small.npz"), net="digits", hold_out=0.2, recipe=str(root / "short.toml")
        )
        run = train(spec, runs=root / "runs")
        folder = run.path
        snapshot = run.snapshot
        tuned = tune(snapshot.logits("held-out"), snapshot.labels["held-out"], snapshot.counts)
        export(folder, snapshot.head, tuned, adjusted=True)
        # ONNX files have a fuzzer of their own, and nobody reads the checkpoints of a finished run.
        files = {}
        for file in sorted(folder.glob("*.*")):  # the order decides which file a case damages
            checkpoint = file.name.startswith("checkpoint")
            if file.suffix in (".json", ".jsonl", ".safetensors") and not checkpoint:
                files[file.name] = file.read_bytes()
        return files


FILES = trained()
# As trained and adjusted: read by `load`.
MODELS = [
    name
    for name in FILES
    if name.startswith(("model", "adjusted")) and name.endswith(".safetensors")
]


def damaged(rng: random.Random, name: str) -> bytes:
    """Return a file of the run, damaged: JSON in its tree, a safetensors file in its header or
    anywhere, others anywhere.
    """
    data = FILES[name]
    if rng.random() < 0.3 or not name.endswith((".json", ".jsonl")):
        length = int.from_bytes(data[:8], "little")
        if name.endswith(".safetensors") and rng.random() < 0.6:
            header = damage_json(rng, json.loads(data[8 : 8 + length])).encode(
                "utf-8", "surrogatepass"
            )
            return len(header).to_bytes(8, "little") + header + data[8 + length :]
        return damage_bytes(rng, data)
    lines = data.decode().splitlines() if name.endswith(".jsonl") else [data.decode()]
    return "\n".join([damage_json(rng, json.loads(line)) for line in lines] + [""]).encode(
        "utf-8", "surrogatepass"
    )


def case(rng: random.Random, folder: Path) -> None:
    """Damage one file of the run, then read all that can be read from the folder."""
    name = rng.choice(list(FILES))
    content = FILES | {name: damaged(rng, name)}
    if rng.random() < 0.7 and name.endswith(".safetensors"):  # as if the run had written it
        result = json.loads(content["done.json"])
        result["sha256"][name] = hashlib.sha256(content[name]).hexdigest()
        content["done.json"] = json.dumps(result).encode()
    for title, data in content.items():
        (folder / title).write_bytes(data)
    if name in MODELS:
        load(folder / name)
        return
    run = Run.open(folder)
    run.check_files()
    run.log, run.facts, run.result  # noqa: B018
    of_run(folder, rule="shift")


def run(**how: Any) -> dict[str, Any]:
    """Run cases, as `drive` takes them."""
    warnings.simplefilter("ignore")  # of numpy, about damaged numbers
    return drive(case, **how)


if __name__ == "__main__":
    main("run folder", run)
