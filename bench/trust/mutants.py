"""Small changes to source code, one at a time: each is a bug that a test should notice.

A comparison is turned or moved by one, arithmetic exchanged, a number or a truth value changed, a condition negated, a
result dropped, a call or a `raise` left out. Annotations, decorators, texts and what only type checkers read stay.

`find_mutants` lists them and `mutate` applies one. Both walk the tree in the same order, so a mutant is known by the
number of its node: it stays the same as long as the file does.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
# Texts for people, which tests do not pin down.
UNTESTED = {"__repr__", "_repr_html_", "__str__"}


@dataclass(frozen=True)
class Mutant:
    """A change: the line, what changes, and which node of the tree, in the order of `ast.walk`."""

    line: int
    what: str
    node: int


def find_mutants(source: str) -> list[Mutant]:
    """Return every mutant of a module.

    >>> [(m.line, m.what) for m in find_mutants("def f(x):\\n    return x < 3\\n")]
    [(2, 'return None'), (2, '< becomes <='), (2, '3 becomes 4')]
    """
    tree = ast.parse(source)
    left_out = {id(inner) for skipped in _skipped(tree) for inner in ast.walk(skipped)}
    mutants = []
    for i, node in enumerate(ast.walk(tree)):
        if id(node) not in left_out and (what := _change(node, apply=False)):
            mutants.append(Mutant(getattr(node, "lineno", 0), what, i))
    return mutants


def mutate(source: str, mutant: Mutant) -> ast.Module:
    """Return the tree of a module with one change.

    >>> ast.unparse(mutate("x = 1 + 2", find_mutants("x = 1 + 2")[0]))
    'x = 1 - 2'
    """
    tree = ast.parse(source)
    _Replace(next(node for i, node in enumerate(ast.walk(tree)) if i == mutant.node)).visit(tree)
    return ast.fix_missing_locations(tree)


def _skipped(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a tree in which a change would be no bug."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from node.decorator_list
            if node.name in UNTESTED:
                yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        if isinstance(node, ast.JoinedStr):
            yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield node
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Subscript | ast.BinOp)
            and _is_type(node.value)
        ):
            yield node


def _is_type(node: ast.AST) -> bool:
    """Return whether an expression looks like a type: Literal[...], A | B, dict[str, int]."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return bool(
        names & {"Literal", "Callable", "Annotated", "Sequence", "Mapping", "tuple", "dict", "list"}
    )


def _change(node: ast.AST, *, apply: bool) -> str:
    """Return what would change in a node, or nothing; change it in place if asked to.

    What cannot be changed in place, as the node itself would have to go, is only described here: `_Replace` does it.
    """
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        new = COMPARISONS[type(node.ops[0])]()
        what = f"{_symbol(node.ops[0])} becomes {_symbol(new)}"
        if apply:
            node.ops = [new]
        return what
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        new = ARITHMETIC[type(node.op)]()
        what = f"{_symbol(node.op)} becomes {_symbol(new)}"
        if apply:
            node.op = new
        return what
    if isinstance(node, ast.BoolOp):
        new = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        if apply:
            node.op = new
        return f"becomes {_symbol(new)}"
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        new = not node.value if isinstance(node.value, bool) else node.value + 1
        what = f"{node.value} becomes {new}"
        if apply:
            node.value = new
        return what if new != node.value or apply else ""
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        if apply:
            node.value = ast.Constant(None)
        return "return None"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return f"without {_symbol(node.op)}"
    if isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        return "left out: " + ast.unparse(node).split("\n")[0][:60]
    return ""


class _Replace(ast.NodeTransformer):
    """Changes one node of a tree, or replaces it: a negation by what it negates, a statement by `pass`."""

    def __init__(self, target: ast.AST) -> None:
        self.target = target

    def visit(self, node: ast.AST) -> ast.AST:
        if node is not self.target:
            return self.generic_visit(node)
        if isinstance(node, ast.UnaryOp):
            return node.operand
        if isinstance(node, ast.Raise | ast.Expr):
            return ast.copy_location(ast.Pass(), node)
        _change(node, apply=True)
        return node


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _symbol(op: ast.AST) -> str:
    names = {
        "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!=", "In": "in", "NotIn": "not in",
        "Is": "is", "IsNot": "is not", "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "Pow": "**", "FloorDiv": "//",
        "BitAnd": "&", "BitOr": "|", "And": "and", "Or": "or", "Not": "not", "USub": "-",
    }  # fmt: skip
    return names[type(op).__name__]
