"""Many at once: processes that train the same specs in the same folder, some killed; two writers of
one file.

On a cluster people start the same sweep twice, and jobs are killed and started again. Each spec
must be trained by one process at a time and end whole, and a file that two commands write at the
same moment must be one's or the other's.

Seen to fail: with `runs.lock.lock_folder` locking nothing, when a run's log has two lines for one
epoch.
"""

import contextlib
import io
import os
import random
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .board import Budget, Found, Row, lacking
from .commands import Workspace, digests, preload, run

SPECS, PROCESSES = 200, 8


def check(budget: Budget) -> Found:
    """Train specs by many processes, then let writers race."""
    preload()
    findings = Found({"processes": 0, "specs": 0, "killed": 0, "races of two writers": 0})
    with TemporaryDirectory() as place:
        _train_together(Path(place), budget.part(0.7), findings)
    with TemporaryDirectory() as place:
        _race(Path(place), budget, findings)
    findings.lacks = lacks(findings.done)
    return findings


def lacks(done: dict[str, Any]) -> str:
    """Return how many specs and processes are missing to the target."""
    short = (
        lacking(done["specs"], SPECS, "specs"),
        lacking(done["processes"], PROCESSES, "processes"),
    )
    return "; ".join(filter(None, short))


def _train_together(place: Path, budget: Budget, findings: Found) -> None:
    """Every process goes through all specs, in an order of its own; every third one is killed and started again."""
    from levelhead_lab.runs.run_folder import Run
    from levelhead_lab.runs.spec import Spec
    from tools.layouts import write_small_npz

    write_small_npz(place, epochs=1)
    processes = budget.size(3, PROCESSES)
    rng, runs, started = random.Random(0), place / "runs", 0
    data = {"net": "digits", "hold_out": 0.2, "recipe": str(place / "short.toml")}
    specs: list[Spec] = []
    while len(specs) < budget.own(budget.size(4, SPECS)) and (not specs or not budget.spent):
        seeds = range(100_000 * budget.index + len(specs), 10**9)[: budget.size(4, 10)]
        more = [Spec(str(place / "small.npz"), seed=seed, **data) for seed in seeds]
        alive = [_worker(more, runs, seed) for seed in range(processes)]
        started += len(alive)
        for seed, pid in enumerate(alive):
            if seed % 3 == 0:
                time.sleep(rng.random() * 0.5)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL:
                    findings.done["killed"] += 1
                alive[seed] = _worker(more, runs, seed + 100)
        for pid in alive:
            if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
                findings.failures.append(f"a process ended with {code}")
        specs += more
        findings.done["specs"], findings.done["processes"] = len(specs), processes
        budget.note(findings)
    # All are finished now: each must be whole, and trained once.
    for spec in specs:
        run = Run.of(spec, runs)
        try:
            run.check_files()
            epochs = [record["epoch"] for record in run.log]
        except (OSError, ValueError) as error:
            findings.failures.append(f"{run.path.name}: {error}")
        else:
            if epochs != sorted(set(epochs)) or len(epochs) != 1:
                findings.failures.append(f"{run.path.name}: epochs {epochs}, expected one of each")
        left = [path.name for path in run.path.iterdir() if path.name.endswith(".tmp")]
        findings.failures += [f"{run.path.name}: {name} is left behind" for name in left]


def _worker(specs, runs: Path, seed: int) -> int:
    """Fork a process that trains all specs; one that another process is training is asked for again later."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        from levelhead_lab.runs.run import run as train

        waiting = list(specs)
        random.Random(seed).shuffle(waiting)
        with contextlib.redirect_stdout(io.StringIO()):
            while waiting:
                spec = waiting.pop(0)
                try:
                    train(spec, runs, say=lambda _: None)
                except (ValueError, OSError) as error:
                    if "another process" not in str(error):
                        raise
                    waiting.append(spec)
                    time.sleep(0.05)
        code = 0
    except BaseException as error:
        os.write(2, f"worker: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _race(place: Path, budget: Budget, findings: Found) -> None:
    """Two commands write one file at the same time; what is there afterwards is what one of them writes alone."""
    work, rng = Workspace(place), random.Random(1)
    words = [
        [
            "adjust",
            "m.safetensors",
            "--counts",
            "c.json",
            "--rule",
            "rescale",
            "--strength",
            strength,
            "-o",
            "out/o.safetensors",
            "--force",
        ]
        for strength in ("0.25", "0.75")
    ]
    alone = []
    for command in words:
        work.empty()
        run(command, work.folder)
        alone.append(digests(work.out)["o.safetensors"])
    for _ in range(budget.size(3, 100)):
        if budget.spent:
            break
        work.empty()
        order = rng.sample(words, 2)
        pid = os.fork()
        if pid == 0:
            run(order[0], work.folder)
            os._exit(0)
        time.sleep(rng.random() * 0.05)
        run(order[1], work.folder)
        os.waitpid(pid, 0)
        now = digests(work.out)
        if now.get("o.safetensors") not in alone:
            findings.failures.append("two writers: the file is neither's")
        if extra := now.keys() - {"o.safetensors", "o.safetensors.original"}:
            findings.failures.append(f"two writers: {extra} left behind")
        back = run(["undo", "out/o.safetensors", "-o", "out/back.safetensors"], work.folder)
        if (
            back.status != 0
            or digests(work.out).get("back.safetensors") != work.inputs["m.safetensors"]
        ):
            findings.failures.append(
                f"two writers: undo gives status {back.status}: {back.err.strip()[-150:]}"
            )
        findings.done["races of two writers"] += 1


ROW = Row(
    "many at once",
    f"{PROCESSES} processes train the same specs in one folder, some killed; two writers of one file",
    f"{SPECS} specs, each trained once; of two writers one wins whole",
    check,
    lacks,
    ("processes",),
)
