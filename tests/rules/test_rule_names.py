"""Rules are objects: nothing outside of rules/ compares with a rule's name, or has a table keyed by one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import levelhead
from levelhead.core.rules import RULES

SOURCE = Path(levelhead.__file__).parents[1]
NAMES = {
    name for name in RULES if name not in ("none", "offsets")
}  # words that other tables have too


def names_in(node: ast.AST) -> set[str]:
    """Return the rules' names among the constants of an expression, which may be a tuple, a list or a set."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {one.value for one in parts if isinstance(one, ast.Constant) and one.value in NAMES}


def branches(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of each comparison with a rule's name, each case of one, and each dict keyed by one."""
    for node in ast.walk(ast.parse(source)):
        found: set[str] = set()
        if isinstance(node, ast.Compare):
            found = set().union(*(names_in(part) for part in (node.left, *node.comparators)))
        elif isinstance(node, ast.Dict):
            found = set().union(*(names_in(key) for key in node.keys if key is not None))
        elif isinstance(node, ast.MatchValue):
            found = names_in(node.value)
        yield from ((getattr(node, "lineno", 0), name) for name in found)


def test_no_branch_on_a_rules_name():
    assert [
        f"{path.relative_to(SOURCE)}:{line} {name}"
        for package in ("levelhead", "levelhead_lab")
        for path in sorted((SOURCE / package).rglob("*.py"))
        if path.parent.name != "rules"
        for line, name in branches(path.read_text(encoding="utf-8"))
    ] == []


def test_a_branch_would_be_seen():
    code = 'if rule == "shift" or rule in ("tau", "vector"):\n    x = {"rescale": 1}\n'
    code += 'match rule:\n    case "shift":\n        ...'
    assert sorted(name for _, name in branches(code)) == [
        "rescale",
        "shift",
        "shift",
        "tau",
        "vector",
    ]
