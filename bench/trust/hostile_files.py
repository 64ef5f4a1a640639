"""Hostile files run nothing and reach nothing: each is refused in one line, with little memory.

An audit hook in the process ends it if it starts another process, opens a socket, loads a library, runs the code of a
case, or opens a file outside of the folder for writing.

Seen to fail: with the check of pickles skipped and `weights_only=False`, their code is noticed.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .board import Budget, Found, Row, lacking
from .commands import digests, make_inputs, preload, run
from .hostile_cases import CANARY, CASES

TARGET = 100
CONSTANT = 96 << 10  # KiB beyond what a sound file of the same kind takes
# Events of Python's audit hooks (PEP 578); the hook sees them in libraries written in Python too.
FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pty.spawn",
             "socket.connect", "socket.bind", "socket.getaddrinfo", "webbrowser.open", "ctypes.dlopen")  # fmt: skip
# A command on a sound file of each kind: its memory is what a hostile one is compared with.
SOUND = {
    ".safetensors": ["inspect", "m.safetensors"],
    ".pt": ["inspect", "m.pt"],
    ".onnx": ["inspect", "m.onnx"],
    ".npy": ["tune", "--logits", "L.npy", "--counts", "c.json"],
}


def guard() -> None:
    """Say on stderr, and refuse, what a file that is only read has no reason for."""
    here = os.getcwd()

    def hook(event: str, arguments: tuple) -> None:
        bad = event in FORBIDDEN
        # A code object: those of installed modules are files, or made by the library.
        if event == "exec":
            name = getattr(arguments[0], "co_filename", "")
            bad = name == "<string>" and CANARY in repr(getattr(arguments[0], "co_consts", ""))
        elif (
            event == "open"
            and isinstance(arguments[0], str)
            and arguments[2]
            and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            path = os.path.abspath(arguments[0])
            bad = not path.startswith((here, "/dev/")) or os.path.basename(path) == CANARY
        if bad:
            os.write(2, f"FORBIDDEN {event} {str(arguments)[:100]}\n".encode())
            raise SystemError(event)

    sys.addaudithook(hook)


def check(budget: Budget) -> Found:
    """Run every case once: there are few enough for both profiles."""
    preload()
    findings = Found({"cases": 0, "largest memory beyond a sound file": 0, "of": ""})
    with TemporaryDirectory() as place:
        sound = Path(place, "sound")
        sound.mkdir()
        make_inputs(sound)
        usual = {suffix: run(words, sound).peak for suffix, words in SOUND.items()}
        titles = list(CASES)[:: budget.size(10, 1)]
        for number, title in enumerate(titles):
            if budget.spent:
                break
            _run_case(title, sound, Path(place, f"case-{number}"), usual, findings)
    findings.done["largest memory beyond a sound file"] = (
        f"{findings.done['largest memory beyond a sound file'] / 1024:.1f} MiB"
    )
    findings.lacks = lacking(findings.done["cases"], TARGET, "cases")
    return findings


def _run_case(
    title: str, sound: Path, folder: Path, usual: dict[str, int], findings: Found
) -> None:
    """Run one case, and add what is wrong with its end to `findings`.

    Args:
        title: of the case.
        sound: a folder of sound inputs, of which some are copied beside it.
        folder: for its files; does not exist yet, and is removed.
        usual: KiB that a command takes for a sound file, by suffix.
        findings: what is counted.
    """
    folder.mkdir()
    for name in ("m.safetensors", "c.json"):
        shutil.copy(sound / name, folder / name)
    words = _make(title, folder)
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files) // 1024
    before = _tree(folder)
    ended = run(words, folder, prepare=guard, limit=60)
    suffix = next((Path(word).suffix for word in words if Path(word).suffix in usual), "")
    # A .pt may be read as a model or as logits, and some cases have a suffix of no kind: the
    # largest then.
    sound_peak = max(usual.values())
    if suffix not in ("", ".pt"):
        sound_peak = usual[suffix]
    peak = ended.peak - sound_peak
    wrong = []
    if ended.refusal:
        wrong.append(ended.refusal)
    if (folder / CANARY).exists() or "FORBIDDEN" in ended.err:
        wrong.append("its code ran")
    if _tree(folder) != before:
        wrong.append("files changed")
    if peak > 2 * size + CONSTANT:
        wrong.append(f"{peak // 1024} MiB of memory for {size // 1024} MiB")
    findings.failures += [f"{title}: {what}" for what in wrong]
    findings.done["cases"] += 1
    if peak > findings.done["largest memory beyond a sound file"]:
        findings.done["largest memory beyond a sound file"] = peak
        findings.done["of"] = title
    shutil.rmtree(folder)


def _make(title: str, folder: Path) -> list[str]:
    """Write the files of a case in a process of its own, so that this one does not grow; return the command's words."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(write, json.dumps(CASES[title](folder)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        words = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return words


def _tree(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the digests of all files below a folder, and the names of all that is there."""
    return digests(folder), sorted(str(path) for path in folder.rglob("*"))


ROW = Row(
    "hostile files run nothing, reach nothing",
    "pickles of every protocol, traversal, links, pipes, lying sizes, bombs; an audit hook forbids processes, sockets, "
    "foreign code and writing elsewhere",
    f"{TARGET} cases, one line each, memory under twice the file's size and {CONSTANT >> 10} MiB",
    check,
)
