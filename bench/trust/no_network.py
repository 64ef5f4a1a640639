"""Nobody listens: every command with sockets forbidden by an audit hook and, where strace is, watched in the kernel.

Seen to fail: with `socket.create_connection(("127.0.0.1", 9))` in `files.inspect.inspect_file`.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .board import Budget, Found, Row
from .commands import COMMANDS, TUNE, Workspace, preload, run

# Commands that write nothing; those that do are in `commands.COMMANDS`.
READERS = {
    "inspect": ["inspect", "m.safetensors", "--counts", "c.json"],
    "inspect .pt": ["inspect", "m.pt"],
    "inspect .onnx": ["inspect", "m.onnx"],
    "compare": ["compare", *TUNE],
    "methods": ["methods"],
    "evaluate": ["evaluate", "out/{run}"],
    "reproduce": ["reproduce", "table1", "--dry-run", "--root", "."],
    "help": ["--help"],
}
LONG = {"demo": ["demo", "--report", "out/demo.html"]}  # a minute, in the full profile


def forbid() -> None:
    """Let every use of the network raise an error that is not expected anywhere, and write it to stderr."""

    def hook(event: str, arguments: tuple) -> None:
        if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"):
            if isinstance(arguments[1], str | bytes):  # a file: processes of one machine
                return
        elif event not in (
            "socket.getaddrinfo",
            "socket.gethostbyname",
            "urllib.Request",
            "http.client.connect",
        ):
            return
        sys.__stderr__.write(f"NETWORK {event}\n")  # type: ignore[union-attr]
        raise SystemError(f"{event} is forbidden here")

    sys.addaudithook(hook)


def check(budget: Budget) -> Found:
    """Run every command once; a connection, or an end other than 0, is a failure."""
    preload()
    findings = Found(
        {
            "commands": 0,
            "connections": 0,
            "watched in the kernel": shutil.which("strace") is not None,
        }
    )
    writers = {
        name: command.words
        for name, command in COMMANDS.items()
        if budget.profile == "full" or name != "sweep"
    }
    with TemporaryDirectory() as place:
        work = Workspace(Path(place))
        for name, words in {
            **writers,
            **READERS,
            **(LONG if budget.profile == "full" else {}),
        }.items():
            runs = [path.parent.name for path in work.out.glob("*/done.json")]
            words = [
                word.format(run=runs[0] if runs else "") if "{run}" in word else word
                for word in words
            ]
            log, trace = Path(place, "out", "network.trace"), None
            if findings.done["watched in the kernel"]:
                trace = ["-o", str(log), "-e", "trace=connect,bind,sendto,sendmsg"]
            ended = run(words, work.folder, prepare=forbid, trace=trace, limit=600)
            text = log.read_text(errors="replace") if log.exists() else ""
            # Sockets between processes of one machine (AF_UNIX) are no network.
            calls = [line for line in text.splitlines() if "AF_INET" in line]
            log.unlink(missing_ok=True)
            findings.done["commands"] += 1
            findings.done["connections"] += len(calls) + ended.err.count("NETWORK ")
            if calls or "NETWORK " in ended.err:
                findings.failures.append(f"{name}: {(calls or [ended.err.strip()])[0][:200]}")
            if ended.status != 0:
                findings.failures.append(
                    f"{name}: status {ended.status}: {ended.err.strip()[-200:]}"
                )
            if name not in ("train", "evaluate"):  # evaluate reads what train wrote
                keep = {path.name for path in work.out.iterdir() if (path / "done.json").exists()}
                if not keep:
                    work.empty()
    missing = [name for name in ("sweep", "demo") if budget.profile == "quick"]
    findings.lacks = f"not run: {', '.join(missing)}" if missing else ""
    return findings


ROW = Row(
    "nobody listens",
    "all commands, with sockets forbidden by an audit hook and watched by strace",
    "no connection",
    check,
)
