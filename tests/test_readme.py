"""Every example of the README and of docs/*.md is run: python blocks in order, and every `levelhead` command line.

Each block of the README runs by itself, as pasted in an empty folder. Elsewhere a page's blocks share one folder,
empty at first, and one namespace, as a reader's session would; nothing that the page does not show is run. A block that
begins with the name of a file (`# mine.py`) is saved under it, and so is a file that the page shows. A block is left
out only by a comment right above it that says why: `<!-- not run: trains for an hour -->`. A `text` block below
`<!-- printed -->` is what the python block before it prints; its numbers may differ by a few units of their last digit,
as they do from one processor to another, or by up to 8 below `<!-- printed, within 8 -->`.
"""

import doctest
import glob
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from levelhead import cli

os.environ.setdefault(
    "KERAS_BACKEND", "torch"
)  # what is installed here; Keras asks for TensorFlow otherwise
ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
SHELLS = ("console", "sh", "bash", "shell")
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<language>[\w{}.+-]*)")
SHOWN = re.compile(r"^<!-- shown: (shown/\S+) -->$", re.M)
FILE = re.compile(r"# ([\w.-]+\.\w+)\n")
PRINTED = re.compile(r"^<!-- printed(?:, within (?P<within>\d+))? -->$")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
INTERVAL = re.compile(r"\([^()]* to [^()]*\)")  # from random draws
SKIP = re.compile(r"^\s*<!-- not run: (?P<reason>\S.*?) -->\s*$")


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int  # of its first line of code, counted from 1
    skipped: str | None = None
    within: float | None = None  # of what was printed: by how much its numbers may differ


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page in order, with the reason given right above for leaving one out."""
    blocks_found, lines, i = [], text.splitlines(), 0
    while i < len(lines):
        opened = FENCE.match(lines[i])
        if not opened:
            i += 1
            continue
        above = next((line for line in reversed(lines[:i]) if line.strip()), "")
        reason = SKIP.match(above)
        indent, start = len(opened["indent"]), i + 1
        i = start
        while i < len(lines) and lines[i].strip() != opened["ticks"]:
            i += 1
        if i == len(lines):
            raise ValueError(f"the block opened in line {start} is never closed")
        code = "\n".join(line[indent:] for line in lines[start:i]) + "\n"
        why = reason["reason"] if reason else None
        printed = PRINTED.match(above.strip())
        within = float(printed["within"] or 0) if printed else None
        blocks_found.append(Block(opened["language"].lower(), code, start + 1, why, within))
        i += 1
    return blocks_found


def commands(block: Block) -> list[tuple[int, list[str]]]:
    """(line, arguments) of every levelhead command in a shell block; a line ended by a backslash goes on in the next.
    Where one line has a prompt, lines without one are output."""
    read, pending, first = [], "", 0
    prompt = "$ " if re.search(r"^\$ ", block.code, re.MULTILINE) else ""
    for number, line in enumerate(block.code.splitlines(), start=block.line):
        if not pending and not line.startswith(prompt):
            continue
        first = first if pending else number
        pending += line.strip().removeprefix("$ ")
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        if pending == "levelhead" or pending.startswith("levelhead "):
            words = shlex.split(pending, comments=True)
            shell = [
                word
                for word in words
                if word in ("|", "&&", "||", ";", ">", ">>", "<") or word.startswith("$")
            ]
            if shell:
                raise ValueError(
                    f"line {first}: {shell[0]} takes a shell; write one plain command a line"
                )
            read.append((first, words[1:]))
        pending = ""
    return read


def run(page: str, block: Block, namespace: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    if named := FILE.match(block.code):
        Path(named[1]).write_text(block.code, encoding="utf-8")
    if block.language == "python" and ">>> " not in block.code:
        exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), namespace)
    elif block.language in ("python", "pycon"):
        test = doctest.DocTestParser().get_doctest(
            block.code, namespace, page, page, block.line - 1
        )
        runner = doctest.DocTestRunner(
            optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False
        )
        runner.run(test, clear_globs=False)
        namespace.update(test.globs)
        assert runner.summarize(verbose=False).failed == 0
    elif block.language in SHELLS:
        for line, words in commands(block):
            arguments = [
                name for word in words for name in sorted(glob.glob(word)) or [word]
            ]  # as a shell does
            monkeypatch.setattr(sys, "argv", ["levelhead", *arguments])
            code = exit_code(cli.main)
            assert not code, f"{page}:{line}: levelhead {shlex.join(arguments)} ended with {code}"


def exit_code(main: Callable[[], None]) -> int | str | None:
    try:
        return main()
    except SystemExit as end:
        return end.code


def run_page(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Run the blocks of a page in a folder of its own; return what went wrong, or None."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    text = path.read_text(encoding="utf-8")
    for shown in SHOWN.findall(text):
        (folder / Path(shown).name).write_bytes((path.parent / shown).read_bytes())
    monkeypatch.syspath_prepend(str(folder))
    namespace, out = {"__name__": "__main__"}, io.StringIO()
    for block in blocks(text):
        try:
            if block.within is not None:
                check_printed(out.getvalue(), block.code, block.within)
            elif block.skipped is None:
                with redirect_stdout(out := io.StringIO()):
                    run(str(path), block, namespace, monkeypatch)
        except Exception as error:
            return f"{path.name}:{block.line}: {type(error).__name__}: {error}"
    return None


def check_printed(out: str, page: str, within: float) -> None:
    """Check that words are the same, and each number within 3 % or 3 units of its last digit; of intervals 30 %.

    Args:
        out: what was printed.
        page: what the page shows.
        within: how far numbers may be apart in any case.
    """
    assert NUMBER.sub("#", out).split() == NUMBER.sub("#", page).split(), f"printed:\n{out}"
    for seen, shown in zip(NUMBER.finditer(out), NUMBER.finditer(page), strict=True):
        unit = 10.0 ** -len(shown[0].partition(".")[2])
        drawn = any(
            interval.start() <= shown.start() < interval.end()
            for interval in INTERVAL.finditer(page)
        )
        allowed = max(within, 3.1 * unit, (0.3 if drawn else 0.03) * float(shown[0]))
        assert abs(float(seen[0]) - float(shown[0])) <= allowed, f"printed:\n{out}"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Keras and skl2onnx
def test_every_example_runs(tmp_path, monkeypatch, capfd):
    wrong = [run_page(path, tmp_path / path.stem, monkeypatch) for path in PAGES]
    assert [problem for problem in wrong if problem] == []


@pytest.mark.slow
def test_each_block_of_the_readme_runs_as_pasted_in_an_empty_folder(tmp_path):
    here = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    runnable = [
        block for block in blocks(README.read_text(encoding="utf-8")) if block.skipped is None
    ]
    # scikit-learn, torch, scores alone, a file
    assert [block.language for block in runnable] == ["python", "python", "python", "sh"]
    for block in runnable:
        folder = tmp_path / str(block.line)
        folder.mkdir()
        start = [sys.executable, "-c"] if block.language == "python" else ["bash", "-ec"]
        done = subprocess.run(
            [*start, block.code],
            cwd=folder,
            env=os.environ | {"PATH": here},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"README.md:{block.line}: {done.stderr}"
        assert "better" in done.stdout, (
            f"README.md:{block.line} does not say what it gained: {done.stdout}"
        )


def test_nothing_is_run_that_a_page_does_not_show():
    hidden = [
        path.name for path in [README, *PAGES] if "<!-- run" in path.read_text(encoding="utf-8")
    ]
    assert hidden == []


def test_every_block_names_its_language():
    unnamed = [
        f"{path.name}:{block.line}"
        for path in [README, *PAGES]
        for block in blocks(path.read_text(encoding="utf-8"))
        if not block.language
    ]
    assert unnamed == [], "use `text` for plain output"


PAGE = """
```python
x = 1
```
<!-- not run: needs a network -->

```python
raise SystemExit
```
- a list
  ```sh
  make demo
  levelhead adjust model.safetensors --counts counts.json \\
      --strength 0.5  # a comment
  ```
```console
$ levelhead --version
levelhead 0.1.0
```
~~~
```python
not code
```
~~~
"""


def test_blocks_are_found_with_their_lines_and_reasons():
    assert [(b.language, b.line, b.skipped) for b in blocks(PAGE)] == [
        ("python", 3, None),
        ("python", 8, "needs a network"),
        ("sh", 12, None),
        ("console", 17, None),
        ("", 21, None),
    ]
    assert blocks(PAGE)[2].code.startswith("make demo\nlevelhead adjust")
    with pytest.raises(ValueError, match="opened in line 1 is never closed"):
        blocks("```python\nx = 1\n")


def test_commands_are_found_and_nothing_else_is_run():
    plain, prompted = blocks(PAGE)[2:4]
    assert commands(plain) == [
        (13, ["adjust", "model.safetensors", "--counts", "counts.json", "--strength", "0.5"])
    ]
    assert commands(prompted) == [(17, ["--version"])]
    with pytest.raises(ValueError, match=r"line 1: \| takes a shell"):
        commands(Block("sh", "levelhead inspect x | less\n", 1))


def test_what_a_page_says_was_printed_is_compared(tmp_path, monkeypatch):
    page = '```python\nprint("error 29.31 %")\n```\n<!-- printed{} -->\n```text\nerror {} %\n```\n'
    monkeypatch.chdir(tmp_path)
    for within, shown, fine in (
        ("", "29.31", True),
        ("", "29.30", True),
        ("", "25.10", False),
        ("", "29.31 to 30.00", False),
        (", within 5", "25.10", True),
        (", within 5", "24.10", False),
    ):
        (tmp_path / "page.md").write_text(page.format(within, shown))
        wrong = run_page(tmp_path / "page.md", tmp_path / (shown + within), monkeypatch)
        assert (wrong is None) == fine, (within, shown)
        monkeypatch.chdir(tmp_path)


def test_a_wrong_example_is_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.md").write_text("```python\nx = 1\n```\n```python\nassert x == 2\n```\n")
    assert (
        run_page(tmp_path / "wrong.md", tmp_path / "folder", monkeypatch)
        == "wrong.md:5: AssertionError: "
    )
    for language, code in (
        ("python", "assert 1 == 2"),
        ("python", ">>> 1\n2"),
        ("pycon", ">>> 1\n2"),
        ("sh", "levelhead inspect gone.safetensors"),
        ("console", "$ levelhead no-such"),
    ):
        with pytest.raises(AssertionError):
            run("page", Block(language, code + "\n", 1), {}, monkeypatch)
