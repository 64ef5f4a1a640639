"""Kill a digits run at random moments (SIGKILL), resume it, and compare the weights with those of an
undisturbed run.

    python -m bench.trust.killed_trainings [--kills 50] [--epochs 6] [--method wvn] [--seed 0]

Prints one JSON object: how many kills hit, how many of them hit with part of an epoch saved, how
many runs were finished, and whether the weights of all have the same sha256.

On a CPU with one thread a resumed run takes the same steps to the last bit, as everything random is
drawn from seed, epoch and step. Checkpoints are written every three steps here, so that most kills
come inside an epoch.
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

from levelhead_lab.runs.run import run
from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.spec import Spec


def child(spec: Spec, folder: Path, data) -> int:
    """Fork a process that trains. This one never runs a kernel, so forking is safe."""
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)
        run(spec, folder, data=data, save_steps=3)
        os._exit(0)
    return pid


def weights_of(spec: Spec, folder: Path) -> str:
    """Return the sha256 of the trained network of a finished run."""
    return hashlib.sha256(
        (Run.of(spec, folder).path / "model.safetensors").read_bytes()
    ).hexdigest()


def kill_runs(spec: Spec, kills: int, seed: int, folder: Path) -> dict:
    """Kill runs as often as asked, at most ten times each, and finish every run."""
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
                run_folder = Run.of(spec, place).path
                newest = max(
                    (p.name for p in run_folder.glob("checkpoint-*.safetensors")),
                    default="checkpoint-0-000000",
                )
                inside += newest.split("-")[2] != "000000"
                unsaved += newest == "checkpoint-0-000000"
            elif status:
                raise SystemExit(f"a run ended with status {status}")
        digests.append(weights_of(spec, place))
    return {
        "kills": hit,
        "inside_an_epoch": inside,
        "before_the_first_checkpoint": unsaved,
        "runs": len(digests) - 1,
        "same_sha256": len(set(digests)) == 1,
        "sha256": digests[0],
        "seconds_undisturbed": round(whole, 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--method", default="wvn")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    asked = Spec(
        "digits",
        method=args.method,
        profile="long-tail",
        ratio=50,
        hold_out=0.2,
        epochs=args.epochs,
    )
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(kill_runs(asked, args.kills, args.seed, Path(scratch))))
