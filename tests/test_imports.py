"""Imports point one way: core <- heads, methods <- hosts, lab <- paper, report <- cli; `import levelhead` is light."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import levelhead

SOURCE = Path(levelhead.__file__).parent
LAYERS = [{"core"}, {"heads", "methods"}, {"hosts", "lab"}, {"paper", "report"}, {"cli"}]
OPTIONAL = {"_compiled": "numba", "_device": "torch"}  # core files that others import only when they are used
HEAVY = ("torch", "sklearn", "numba", "onnx", "onnxruntime", "matplotlib", "typer", "jinja2", "pandas", "transformers")


def part(module: str) -> str:
    """levelhead.heads.torch -> heads, levelhead.head -> core."""
    name = module.removeprefix("levelhead").lstrip(".").split(".")[0]
    if name in ("cli", "demo", "__main__"):
        return "cli"
    return name if (SOURCE / name).is_dir() and name else "core"


def level(name: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


def module_of(path: Path) -> str:
    inside = path.relative_to(SOURCE).with_suffix("")
    return ".".join(["levelhead", *(p for p in inside.parts if p != "__init__")])


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of every import, wherever it stands: each name, and the module it comes from unless that is
    the whole package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
            if origin != "levelhead":
                yield node.lineno, origin


def at_import(tree: ast.Module) -> ast.Module:
    """What runs when the module is imported: no function bodies, nothing under `if TYPE_CHECKING`."""
    def kept(node: ast.AST) -> bool:
        checking = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return not checking and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)

    class Strip(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> ast.AST | None:
            return super().generic_visit(node) if kept(node) else None

        visit_If = visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = generic_visit

    return Strip().visit(tree)


def upward(source: str, module: str, package: str) -> list[str]:
    """Imports of a module that go up, or sideways into another part of the same layer."""
    own, found = part(module), []
    for line, target in imports(ast.parse(source), package):
        if target.split(".")[0] != "levelhead":
            continue
        lazy = levelhead._HOME.get(target.removeprefix("levelhead."))  # a public name that lives in a higher layer
        other = part(f"levelhead.{lazy}" if lazy else target)
        whole = target == "levelhead"  # the front door leads everywhere: names are imported from where they live
        if whole or (other != own and level(other) >= level(own)):
            found.append(f"{module}:{line} ({own}) imports {target} ({other})")
    return found


def package_of(path: Path) -> str:
    module = module_of(path)
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
MODULES = {module_of(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    assert upward(path.read_text(encoding="utf-8"), module_of(path), package_of(path)) == []


@pytest.mark.parametrize("path", [p for p in FILES if part(module_of(p)) == "core"], ids=lambda p: p.name)
def test_core_needs_numpy_and_safetensors_only(path):
    tree = at_import(ast.parse(path.read_text(encoding="utf-8")))
    names = {name for _, name in imports(tree, package_of(path))}
    outside = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert outside <= {"numpy", "safetensors", "levelhead", OPTIONAL.get(path.stem, "numpy")}
    assert names.isdisjoint(f"levelhead.{name}" for name in OPTIONAL)


def private(source: str, package: str) -> list[str]:
    """Names that begin with an underscore, imported from a module of ours: they belong to it alone."""
    return [name for _, name in imports(ast.parse(source), package)
            if name.startswith("levelhead.") and re.search(r"\._(?!_)\w+$", name) and name not in MODULES]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_what_is_private_to_a_module_is_imported_by_no_other(path):
    assert private(path.read_text(encoding="utf-8"), package_of(path)) == []


def test_a_private_name_from_elsewhere_would_be_seen():
    source = "from .counts import of, _by_class\nfrom . import __version__, _array\nfrom ._array import like"
    assert private(source, "levelhead") == ["levelhead.counts._by_class"]


@pytest.mark.parametrize(("source", "module", "expected"), [
    ("from .heads import torch", "levelhead.head", 1),
    ("def f():\n    from .cli import app", "levelhead.counts", 1),
    ("if TYPE_CHECKING:\n    from ..hosts.torch import WVN", "levelhead.heads.torch", 1),
    ("from ..methods import method", "levelhead.heads.torch", 1),
    ("import levelhead as lh", "levelhead.adjust", 1),
    ("from . import WVN", "levelhead.adjust", 1),
    ("from ..lab import train", "levelhead.paper.record", 0),
    ("from ..head import Head\nfrom .. import __version__, counts\nimport torch", "levelhead.heads.torch", 0),
    ("from .heads import torch\nfrom . import head", "levelhead.cli", 0),
])
def test_a_wrong_direction_would_be_seen(source, module, expected):
    assert len({line.split(" ")[0] for line in upward(source, module, module.rpartition(".")[0])}) == expected


def test_what_runs_at_import_is_told_from_what_does_not():
    code = ("try:\n    import numba\nexcept ImportError:\n    pass\nif TYPE_CHECKING:\n    import torch\n"
            "class A:\n    import jinja2\n    def f(self):\n        import onnx\n")
    tree = at_import(ast.parse(code))
    assert {name for _, name in imports(tree, "levelhead")} == {"numba", "jinja2"}


def loaded(code: str) -> set[str]:
    """Heavy packages in sys.modules after running code in a fresh interpreter."""
    show = f"{code}\nimport sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return set(subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split())


def test_importing_levelhead_loads_nothing_heavy():
    assert loaded("import levelhead") == set()


def test_core_works_without_loading_anything_heavy():
    assert loaded("import numpy as np, levelhead as lh\n"
                  "head = lh.rescale(lh.Head(np.eye(2)), [9, 1], gamma=0.5)\n"
                  "lh.measure.measure(head.logits(np.eye(2)), [0, 1])") == set()


def test_importing_levelhead_does_not_even_load_numpy():
    code = "import sys, levelhead; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_importing_a_module_does_not_hide_the_function_of_its_name():
    code = ("import levelhead as lh, levelhead.compare\nfrom levelhead.tune import cross_fit\n"
            "print(lh.tune.__name__, lh.compare.__name__, lh.cross_fit is cross_fit)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "tune compare True\n"


def test_every_public_name_is_there():
    missing = [name for name in levelhead.__all__ if not hasattr(levelhead, name)]
    assert missing == []
