"""Kill -9 a digits run at random moments, go on, and compare the weights with an undisturbed run's.

    python bench/kill.py [--kills 50] [--epochs 6] [--method wvn] [--seed 0]

Prints one JSON object: how many kills hit, how many of them with an epoch's part already saved, how many runs were
brought to their end, and whether all weights have one sha256.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import torch
import torch._dynamo  # the first optimizer of a process imports it, which takes longer than the run

from levelhead.runs.run import run
from levelhead.runs.run_folder import Run
from levelhead.runs.spec import Spec


def child(spec: Spec, folder: Path, data) -> int:
    """Fork a process that trains; this one never runs a kernel, so forking is safe."""
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)
        run(spec, folder, data=data, save_steps=3)
        os._exit(0)
    return pid


def weights_of(spec: Spec, folder: Path) -> str:
    return hashlib.sha256((Run.of(spec, folder).path / "model.safetensors").read_bytes()).hexdigest()


def attack(spec: Spec, kills: int, seed: int, folder: Path) -> dict:
    """As many kills as asked for, spread over as many runs as it takes, each brought to its end."""
    chance, data = random.Random(seed), spec.load()
    begin = time.monotonic()
    os.waitpid(child(spec, folder / "quiet", data), 0)
    whole = time.monotonic() - begin
    hit, inside, unsaved, digests = 0, 0, 0, [weights_of(spec, folder / "quiet")]
    while hit < kills or len(digests) < 2:
        place, left = folder / f"killed-{len(digests)}", min(kills - hit, 10)
        while not Run.of(spec, place).finished:
            pid = child(spec, place, data)
            if left > 0:
                time.sleep(chance.random() * whole * 0.6)
                os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if os.WIFSIGNALED(status):
                hit, left = hit + 1, left - 1
                found = Run.of(spec, place).path
                newest = max((p.name for p in found.glob("checkpoint-*.safetensors")), default="checkpoint-0-000000")
                inside += newest.split("-")[2] != "000000"
                unsaved += newest == "checkpoint-0-000000"
            elif status:
                raise SystemExit(f"a run ended with status {status}")
        digests.append(weights_of(spec, place))
    return {"kills": hit, "inside_an_epoch": inside, "before_the_first_checkpoint": unsaved, "runs": len(digests) - 1,
            "same_sha256": len(set(digests)) == 1, "sha256": digests[0], "seconds_undisturbed": round(whole, 2)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--method", default="wvn")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    asked = Spec("digits", method=args.method, profile="long-tail", ratio=50, hold_out=0.2, epochs=args.epochs)
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(attack(asked, args.kills, args.seed, Path(scratch))))
