"""A killed run loses nothing: SIGKILL at random moments, then the same command again.

A command is run once undisturbed, for its outputs and how long it takes. Then it is killed at a
random moment of that time, up to three times in a row, and run to its end: what it has written must
be the same, sha256 for sha256, and after each kill an output must be absent or complete.

Seen to fail: with `files.staging._move_all` copying files in place of renaming them.
"""

import math
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .board import Budget, Found, Row, lacking
from .commands import COMMANDS, Command, Workspace, preload, run

TARGET = 500
# Without trainings, which tests/runs kills.
QUICK = (
    "rescale .safetensors",
    "rescale .onnx",
    "rescale shards",
    "undo",
    "tune",
)
SHARES = {"train": 0.1, "sweep": 0.02}  # of the kills; the other commands share the rest


def check(budget: Budget) -> Found:
    """Kill every command as often as the profile says."""
    preload()
    rng = random.Random(1000 * budget.round + budget.index)
    findings = Found({"kills": 0, "by command": {}, "ended before the signal": 0, "compared": 0})
    wanted = budget.size(5, TARGET)
    names = list(QUICK if budget.profile == "quick" else COMMANDS)
    plain = [name for name in names if name not in SHARES]
    kills = {
        name: budget.own(math.ceil(wanted * SHARES.get(name, 0.88 / len(plain)))) for name in names
    }
    with TemporaryDirectory() as place:
        work = Workspace(Path(place))
        for i, name in enumerate(names):
            _kill(
                name,
                COMMANDS[name],
                work,
                rng,
                kills[name],
                budget.part(1 / (len(names) - i)),
                findings,
            )
    findings.lacks = lacks(findings.done)
    return findings


def lacks(done: dict[str, Any]) -> str:
    """Return how many kills are missing, and which commands have none."""
    short = []
    if done["kills"] < TARGET:
        short.append(lacking(done["kills"], TARGET, "kills"))
    without = [name for name in COMMANDS if not done["by command"].get(name)]
    if without:
        short.append(f"none in {', '.join(without)}")
    return "; ".join(short)


def _kill(
    name: str,
    command: Command,
    work: Workspace,
    rng: random.Random,
    wanted: int,
    budget: Budget,
    findings: Found,
):
    """Kill a command so often, at most three times before it may end; compare what it has written then."""
    findings.done["by command"][name] = hits = 0
    # The processes of a sweep start anew, which takes a minute.
    if not wanted or (name == "sweep" and budget.seconds < 120):
        return
    whole, seconds = work.complete(command)
    while hits < wanted and not budget.spent:
        work.empty()
        for _ in range(rng.randrange(1, 4)):
            words = command.words_now(work.out)
            ended = run(words, work.folder, kill_after=rng.random() * seconds, limit=600)
            if ended.status != -9:
                findings.done["ended before the signal"] += 1
                break
            hits += 1
            findings.done["kills"] += 1
            findings.done["by command"][name] += 1
            budget.note(findings)
            findings.failures += [f"{name}, killed: {what}" for what in work.check_inputs()]
            if not command.keeps_parts:
                findings.failures += [
                    f"{name}, killed: {what}" for what in half_written(work.out, whole)
                ]
        ended = run(command.words_now(work.out), work.folder, limit=600)
        if ended.status != 0:
            findings.failures.append(
                f"{name}, again: status {ended.status}: {ended.err.strip()[-200:]}"
            )
        else:
            findings.failures += [f"{name}, again: {what}" for what in differences(work.out, whole)]
            findings.done["compared"] += 1


def half_written(out: Path, whole: dict[str, str]) -> list[str]:
    """Return which of the files of a command are there but not complete."""
    from .commands import digests

    now = digests(out)
    return [f"{name} is not complete" for name in whole if now.get(name, 0) not in (0, whole[name])]


def differences(out: Path, whole: dict[str, str]) -> list[str]:
    """Return how the files of a command differ from those of an undisturbed one."""
    from .commands import digests

    now = digests(out)
    lines = [f"{name} is missing" for name in whole.keys() - now.keys()]
    lines += [f"{name} is left behind" for name in now.keys() - whole.keys()]
    return lines + [
        f"{name} differs" for name in whole.keys() & now.keys() if now[name] != whole[name]
    ]


ROW = Row(
    "a killed run loses nothing",
    "SIGKILL at random moments in train, sweep, adjust, undo, tune, report and sharded writes; then again",
    f"{TARGET} kills, outputs equal sha256 for sha256, nothing left behind",
    check,
    lacks,
)
