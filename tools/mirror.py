"""How our code reads, counted beside code that the field holds up as a model. A mirror, not a gate: no test asserts it.

    python tools/mirror.py                     # levelhead and levelhead_lab beside scikit-learn's model_selection
    python tools/mirror.py optax=DIR           # and beside another package, in a folder
    python tools/mirror.py --rooms             # each room of ours by itself

Get optax by `pip download --no-deps optax` and unpack the wheel. Tests of a package are left out. A code line is one
that has code: not blank, no comment alone, no docstring. A comment counts if it has a line of its own; a licence or
the authors at the head of a file say nothing about its code, and do not. A packed assignment is one such as
`a, b = x, y`.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
ROWS = {
    "conditional_expressions": "conditional expressions in 100 code lines",
    "packed_assignments": "packed assignments in 100 code lines",
    "comment_lines": "comment lines in 100 code lines",
    "docstrings": "docstrings in 100 code lines",
    "docstring_lines": "docstring lines in 100 code lines",
    "anys": "`Any` in 100 code lines",
    "characters": "characters in a code line",
}


@dataclass
class Counts:
    """What was counted in some files.

    `characters` are those of code lines, with their indentation.
    """

    code_lines: int = 0
    characters: int = 0
    comment_lines: int = 0
    docstrings: int = 0
    docstring_lines: int = 0
    conditional_expressions: int = 0
    packed_assignments: int = 0
    anys: int = 0

    def add(self, other: Counts) -> None:
        """Add what was counted in other files."""
        for field in fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)

    def rate(self, name: str) -> float:
        """Return how often something is there in 100 code lines; of characters, how many a line has."""
        share = getattr(self, name) / max(1, self.code_lines)
        if name == "characters":
            return share
        return 100 * share


def count_source(source: str) -> Counts:
    """Count one file.

    >>> count_source("a, b = 1, 2  # why\\n# Two at once.\\nc = a if b else 3\\n")
    Counts(code_lines=2, characters=35, comment_lines=1, docstrings=0, docstring_lines=0, \
conditional_expressions=1, packed_assignments=1, anys=0)
    """
    tree = ast.parse(source)
    docstrings = docstrings_of(tree)
    documented = {number for lines in docstrings for number in lines}
    comments = comment_line_numbers(source)
    head = lines_of_head(source)
    counts = Counts(
        comment_lines=len(comments - head),
        docstrings=len(docstrings),
        docstring_lines=len(documented),
    )
    for number, line in enumerate(source.splitlines(), start=1):
        if line.strip() and number not in documented and number not in comments:
            counts.code_lines += 1
            counts.characters += len(line)
    for node in ast.walk(tree):
        counts.conditional_expressions += isinstance(node, ast.IfExp)
        counts.packed_assignments += is_packed(node)
        counts.anys += is_any(node)
    return counts


def docstrings_of(tree: ast.Module) -> list[range]:
    """Return the numbers of the lines of each docstring, quotes included."""
    docstrings: list[range] = []
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            docstrings.append(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return docstrings


def comment_line_numbers(source: str) -> set[int]:
    """Return the numbers of the lines that have a comment and nothing else."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]
        for token in tokens
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
    }


def lines_of_head(source: str) -> set[int]:
    """Return the numbers of the lines before the first docstring or code of a file.

    >>> sorted(lines_of_head("# Copyright 2019\\n\\nx = 1\\n# Why.\\n"))
    [1, 2]
    """
    numbers = set()
    for number, line in enumerate(source.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            break
        numbers.add(number)
    return numbers


def is_packed(node: ast.AST) -> bool:
    """Whether several values are given to several names in one statement."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


def is_any(node: ast.AST) -> bool:
    """Whether this is the name `Any`, by itself or as `typing.Any`; its import is no use of it."""
    named = isinstance(node, ast.Name) and node.id == "Any"
    return named or (isinstance(node, ast.Attribute) and node.attr == "Any")


def source_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a package, without its tests."""
    for path in sorted(folder.rglob("*.py")):
        if "tests" not in path.parts and not path.name.endswith("_test.py"):
            yield path


def count_folder(folder: Path) -> Counts:
    """Count all files of a package together."""
    counts = Counts()
    for path in source_files(folder):
        counts.add(count_source(path.read_text(encoding="utf-8")))
    return counts


def package_folder(name: str) -> Path | None:
    """Return where an installed package is, without importing it."""
    spec = find_spec(name.partition(".")[0])
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent.joinpath(*name.split(".")[1:])


def table(columns: dict[str, Counts]) -> str:
    """Return the counts as a table in Markdown: a column for each package."""
    lines = [f"| | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    sizes = [f"{counts.code_lines:,}" for counts in columns.values()]
    lines.append(f"| code lines | {' | '.join(sizes)} |")
    for name, title in ROWS.items():
        rates = [f"{counts.rate(name):.1f}" for counts in columns.values()]
        lines.append(f"| {title} | {' | '.join(rates)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("others", nargs="*", metavar="NAME=DIR", help="more packages to look at")
    parser.add_argument("--rooms", action="store_true", help="each room of ours by itself")
    options = parser.parse_args()
    ours = ROOT / "src"
    folders = {"levelhead": ours / "levelhead", "levelhead_lab": ours / "levelhead_lab"}
    if options.rooms:
        folders = {path.parent.name: path.parent for path in ours.glob("*/*/__init__.py")}
    else:
        selection = package_folder("sklearn.model_selection")
        if selection is not None:
            folders["sklearn.model_selection"] = selection
    for other in options.others:
        name, _, folder = other.partition("=")
        folders[name] = Path(folder)
    print(table({name: count_folder(folder) for name, folder in folders.items()}))


if __name__ == "__main__":
    main()
