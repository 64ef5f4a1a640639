"""A failing disk damages nothing: every system call on our files that reads, writes or renames fails once.

strace traces a command, then runs it once per call and makes that call fail, so that code of libraries fails as well.
It counts the calls of each process and thread by itself: where a command has several, the Nth call of each fails.
The workers of a sweep are forked, not begun anew, which takes 15 s each; they do the same to files.

Seen to fail: with `files.staging._move_all` copying files in place of renaming them.
"""

import multiprocessing
import re
import shutil
from collections import Counter
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .board import Budget, Found, Row
from .commands import COMMANDS, Command, Workspace, preload, run
from .kills import differences, half_written

# What each call fails with: a bad sector where it reads or renames, a full disk where it writes.
ERRORS = {
    "read": "EIO",
    "pread64": "EIO",
    "write": "ENOSPC",
    "pwrite64": "ENOSPC",
    "writev": "ENOSPC",
    "sendfile": "ENOSPC",
    "copy_file_range": "ENOSPC",
    "ftruncate": "ENOSPC",
    "fsync": "EIO",
    "fdatasync": "EIO",
    "rename": "EIO",
    "renameat": "EIO",
    "renameat2": "EIO",
    "mkdir": "ENOSPC",
    "mkdirat": "ENOSPC",
    "openat": "EIO",
}
QUICK = ("rescale .safetensors", "rescale shards", "undo")


def check(budget: Budget) -> Found:
    """Fail every call of every command; in the quick profile a few of some commands."""
    findings = Found(
        {
            "calls failed": 0,
            "by command": {},
            "by call": {},
            "refused in one line": 0,
            "not noticed": 0,
        }
    )
    if shutil.which("strace") is None:
        findings.lacks = "nothing was run: this machine has no strace"
        return findings
    preload()
    names = list(COMMANDS if budget.profile == "full" else QUICK)[budget.index :: budget.parts]
    with TemporaryDirectory() as place:
        work = Workspace(Path(place).resolve())
        for i, name in enumerate(names):
            done, calls = _fail_all(
                name, COMMANDS[name], work, budget.part(1 / (len(names) - i)), findings
            )
            findings.done["by command"][name] = f"{done} of {calls}"
    findings.lacks = lacks(findings.done)
    return findings


def lacks(done: dict[str, Any]) -> str:
    """Return which commands were not failed at every call, and which not at all."""
    short = []
    for name, told in done["by command"].items():
        failed, calls = told.split(" of ")
        if failed != calls:
            short.append(f"{name} {told}")
    missing = [name for name in COMMANDS if name not in done["by command"]]
    if missing:
        short.append(f"not run: {', '.join(missing)}")
    return "; ".join(short)


def _fail_all(
    name: str, command: Command, work: Workspace, budget: Budget, findings: Found
) -> tuple[int, int]:
    """Fail the calls of a command, evenly spread over all if time is short; return how many, of how many."""
    whole, _ = work.complete(command, prepare=fork_workers)
    work.empty()
    calls = trace(command, work)
    # If time is short, the calls that are done are spread over the command, not its first ones.
    every = max(1, len(calls) // budget.size(4, len(calls)))
    done = 0
    for call, number in [
        calls[i] for start in range(every) for i in range(start, len(calls), every)
    ]:
        if budget.spent or (budget.profile == "quick" and done >= 4):
            break
        work.empty()
        inject = [
            "-o",
            "/dev/null",
            "-e",
            f"trace={call}",
            "-e",
            f"inject={call}:error={ERRORS[call]}:when={number}",
        ]
        ended = run(command.words, work.folder, prepare=fork_workers, trace=inject, limit=120)
        ended = replace(ended, err=re.sub(command.progress, "", ended.err, flags=re.M))
        if command.keeps_parts:  # the table of the runs that did finish
            ended = replace(ended, out="")
        title = f"{name}, {call} {number}"
        wrong = work.check_inputs()
        if ended.status == 0:  # the call was not needed, or was tried again
            findings.done["not noticed"] += 1
            wrong += differences(work.out, whole)
        else:
            if ended.refusal:
                wrong.append(ended.refusal)
            else:
                findings.done["refused in one line"] += 1
            if not command.keeps_parts:
                wrong += half_written(work.out, whole)
            # Now that the disk is well again, the same command must do it all.
            words = command.words_now(work.out)
            again = run(words, work.folder, prepare=fork_workers, limit=120)
            if again.status:
                wrong.append(f"again: {again.err[-200:]}")
            else:
                wrong += differences(work.out, whole)
        findings.failures += [f"{title}: {what}" for what in wrong]
        done += 1
        findings.done["by call"][call] = findings.done["by call"].get(call, 0) + 1
        findings.done["calls failed"] += 1
        budget.note(findings)
    return done, len(calls)


def fork_workers() -> None:
    """Let worker processes of this one begin as its forks, which have all modules in memory."""
    forks = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: forks  # pyright: ignore
    # Which forks do not need: calls on its pipe and its modules are not of our files.
    resource_tracker.ensure_running = lambda: None


def trace(command: Command, work: Workspace) -> list[tuple[str, int]]:
    """Return (call, n) for each call on a file of the workspace: its name, and which of that name in its process."""
    log = work.folder.parent / f"{work.folder.name}.trace"
    options = ["-y", "-s", "200", "-o", str(log), "-e", f"trace={','.join(ERRORS)}"]
    ended = run(command.words, work.folder, prepare=fork_workers, trace=options, limit=300)
    if ended.status != 0:
        raise SystemExit(f"{command.words}: {ended}")
    seen: Counter[tuple[str, str]] = Counter()
    calls = {}  # in order, each once
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"(\d+) +(\w+)\(", line)
        if match is None:
            continue
        process, call = match.groups()
        seen[process, call] += 1
        # Without the name of the folder we are in, which stands there whatever the file is.
        named = re.sub(r"AT_FDCWD<[^>]*>", "", line)
        # Of the workspace, or by a relative name, which is in it.
        ours = str(work.folder) in named or ("AT_FDCWD" in line and '"/' not in named)
        if ours and "= -1" not in line:
            calls[call, seen[process, call]] = None
    log.unlink()
    return list(calls)


ROW = Row(
    "a failing disk damages nothing",
    "the Nth read, write, fsync, rename, open or mkdir on its files fails (strace), for every N of a command's trace; "
    "the workers of a sweep are forked",
    "all calls; input unchanged; output absent or complete; again it succeeds",
    check,
    lacks,
)
