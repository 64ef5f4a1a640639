"""Which lines of the package each test reaches, and how long it takes.

Python's own `sys.settrace` sees every line; no tool for coverage is needed. Threads are traced too.
Of other packages' functions only the call is seen, which keeps it fast enough. What a test runs in
another process is not seen.
"""

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any


@dataclass
class Reached:
    """The tests that pass, their seconds, and {file: {line: tests}}."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)

    def tests(self, path: Path, line: int) -> list[str]:
        """Return the tests that reach a line, the shortest first."""
        return sorted(
            self.lines.get(str(path), {}).get(line, []), key=lambda name: self.seconds[name]
        )

    def tests_of(self, path: Path) -> list[str]:
        """Return the tests that reach any line of a file, the shortest first."""
        reaching = {name for names in self.lines.get(str(path), {}).values() for name in names}
        return sorted(reaching, key=lambda name: self.seconds[name])

    def within(self, tests: list[str], seconds: float) -> list[str]:
        """Return as many of the first tests as these seconds allow; one, at least."""
        total, chosen = 0.0, []
        for name in tests:
            total += self.seconds[name]
            if chosen and total > seconds:
                break
            chosen.append(name)
        return chosen


def reach_lines(items: list[Any], out: Path, source: Path) -> None:
    """Run tests and write, for each that passes, its seconds and the lines of `source` that it
    reaches.

    Args:
        items: tests of pytest.
        out: a JSON file {test: [seconds, [[file, line], ...]]}, written whole: another process waits for it.
        source: the folder whose files count.
    """
    from _pytest.runner import runtestprotocol

    begin, seen = f"{source}/", set[tuple[str, int]]()

    def trace_lines(frame: FrameType, event: str, _: Any) -> Any:
        seen.add((frame.f_code.co_filename, frame.f_lineno))
        return trace_lines

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return trace_lines(frame, event, _) if frame.f_code.co_filename.startswith(begin) else None

    reached = {}
    for item, after in zip(items, [*items[1:], None], strict=True):
        seen.clear()
        began = time.process_time()
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            reports = runtestprotocol(item, log=False, nextitem=after)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        if all(report.passed for report in reports):
            reached[item.nodeid] = [time.process_time() - began, sorted(seen)]
    new = out.with_suffix(".new")
    new.write_text(json.dumps(reached))
    new.replace(out)


def read_reached(folder: Path, parts: int, wait: float) -> Reached:
    """Return what all processes wrote, after waiting for the late ones."""
    reached, began = Reached(), time.monotonic()
    paths = [folder / f"reached-{part}.cov" for part in range(parts)]
    while not all(path.exists() for path in paths) and time.monotonic() - began < wait:
        time.sleep(0.5)
    for path in paths:
        if path.exists():
            for name, (seconds, lines) in json.loads(path.read_text()).items():
                reached.seconds[name] = seconds
                for file, line in lines:
                    reached.lines.setdefault(file, {}).setdefault(line, []).append(name)
    return reached
