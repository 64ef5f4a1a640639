"""One name, one meaning: a public top-level name is defined in one module, unless it is a contract listed here."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import levelhead

pytestmark = pytest.mark.usefixtures("no_collection")
SOURCE = Path(levelhead.__file__).parents[1]
CONTRACTS = {
    "METHOD",
    "READER",
    "read",
    "write",
    "load",
}  # every method, file format and reader has its own
TWINS = {"WVNCallback", "AdjustCallback", "tune_dataframe"}  # the same for another host
MEASURES = ("core", "measure.py")  # of logits; the metrics of tables have their names


def public_names(path: Path) -> set[str]:
    """Return the public functions, classes and values that a module defines at its top level."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("package", ["levelhead", "levelhead_lab"])
def test_a_public_name_has_one_meaning(package):
    homes = defaultdict(list)
    for path in sorted((SOURCE / package).rglob("*.py")):
        room = path.relative_to(SOURCE).parts[1]
        for name in public_names(path) - CONTRACTS - TWINS:
            # A command has the name of the function that it calls.
            if room not in ("cli", "cli.py") and path.parts[-2:] != MEASURES:
                homes[name].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
