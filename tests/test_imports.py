"""Imports point one way, from room to room; no circle of files; `import levelhead` is light."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import levelhead

pytestmark = pytest.mark.usefixtures("no_collection")
SOURCE = Path(levelhead.__file__).parents[1]
PACKAGES = ("levelhead", "levelhead_lab")  # the second stands on the first
LAYERS = [
    {"support"},
    {"path"},
    {"show"},
    {"core"},
    {"labels", "io"},
    {"heads"},
    {"files"},
    {"report"},
    {"hosts"},
    {"cli"},
    # The lab, a package of its own.
    {"methods"},
    {"lab"},
    {"fast"},
    {"runs"},
    {"paper"},
    {"study"},
]
ROOMS = set().union(*LAYERS)
LAB = {"methods", "lab", "fast", "runs", "paper", "study"}
LOOSE = {"__init__.py", "__main__.py", "_version.py"}
NEEDS = {
    "support": {"numpy"},
    "path": {"numpy"},
    "show": {"numpy"},
    "core": {"numpy", "scipy"},
    "labels": {"numpy"},
    "io": {"numpy", "safetensors"},
}
OPTIONAL = {  # imported only when used
    "path/walk_torch.py": {"torch"},
    "path/walk_triton.py": {"torch", "triton"},
}
HEAVY = (
    "torch",
    "sklearn",
    "onnx",
    "onnxruntime",
    "matplotlib",
    "typer",
    "jinja2",
    "pandas",
    "transformers",
)


def module_of(path: Path) -> str:
    """Return the dotted name of a source file."""
    inside = path.relative_to(SOURCE).with_suffix("")
    return ".".join(part for part in inside.parts if part != "__init__")


FILES = {
    module_of(path): path
    for package in PACKAGES
    for path in sorted((SOURCE / package).rglob("*.py"))
}


def package_of(path: Path) -> str:
    return module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]


def room_of(module: str) -> str:
    """Return the room of a module; '' for the package itself and its loose modules, "study" for those of the study."""
    package, room = [*module.split("."), ""][:2]
    return (
        room
        if f"{package}.{room}" in FOLDERS
        else "study"
        if package == "levelhead_lab" and room
        else ""
    )


FOLDERS = {package_of(path) for path in FILES.values()} - set(PACKAGES)


def level(room: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if room in layer)


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute name) of every import, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def target_of(name: str) -> str | None:
    """Return the module of ours that an imported name comes from, or None."""
    if name in FILES:
        return name
    home = name.rpartition(".")[0]
    return home if home in FILES else None


def wrong_imports(source: str, module: str, package: str) -> list[str]:
    """Return the imports that point to the right, sideways into another room, or to the whole package."""
    room, wrong = room_of(module), []
    for line, name in imports(ast.parse(source), package):
        target = target_of(name)
        if target is None or target in ("levelhead._version", "levelhead_lab"):
            continue
        other = room_of(target)
        if not other or (other != room and level(other) >= level(room)):
            wrong.append(f"{module}:{line} imports {name}")
    return wrong


def test_every_module_is_in_a_room():
    loose = {
        package: {path.name for path in (SOURCE / package).glob("*.py")} for package in PACKAGES
    }
    assert loose == {"levelhead": LOOSE, "levelhead_lab": {"__init__.py", "cli.py", "demo.py"}}
    rooms = {
        package: {f.split(".")[1] for f in FOLDERS if f.startswith(f"{package}.")}
        for package in PACKAGES
    }
    assert rooms == {"levelhead": ROOMS - LAB, "levelhead_lab": LAB - {"study"}}


def test_imports_point_one_way():
    assert [
        line
        for module, path in FILES.items()
        if room_of(module)
        for line in wrong_imports(path.read_text(encoding="utf-8"), module, package_of(path))
    ] == []


def test_the_tests_of_the_product_use_nothing_of_the_lab():
    tests = Path(__file__).parent
    wrong = []
    for room in sorted(ROOMS - LAB):
        for path in sorted((tests / room).rglob("*.py")):
            if "levelhead_lab" in path.read_text(encoding="utf-8"):
                wrong.append(str(path.relative_to(tests)))
    assert wrong == []


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return a circle of the graph, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_circle_of_files():
    graph = {
        module: {
            target
            for _, name in imports(ast.parse(path.read_text(encoding="utf-8")), package_of(path))
            if (target := target_of(name)) not in (None, module)
        }
        for module, path in FILES.items()
    }
    assert circle(graph) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})  # one would be seen


@pytest.mark.parametrize(
    ("source", "module", "wrong"),
    [
        ("from ..heads import torch", "levelhead.core.head", 1),
        ("def f():\n    from ..cli.common import app", "levelhead.core.counts", 1),
        ("if TYPE_CHECKING:\n    from ..hosts.torch import WVN", "levelhead.heads.torch", 1),
        ("from ..files import format", "levelhead.heads.torch", 1),
        ("from ..heads.collect import collect", "levelhead.io.arrays", 1),
        ("from ..lab.train import fit", "levelhead_lab.methods.table", 1),
        ("import levelhead as lh", "levelhead.core.tune", 1),
        ("from .. import WVN", "levelhead.core.tune", 1),
        ("from ..lab import train\nfrom .cells import load", "levelhead_lab.paper.record", 0),
        ("from levelhead_lab.runs.run_folder import Run", "levelhead.report.subject", 1),
        (
            "from ..core.head import Head\nfrom .._version import __version__\nimport torch",
            "levelhead.heads.torch",
            0,
        ),
    ],
)
def test_a_wrong_direction_would_be_seen(source, module, wrong):
    assert len(wrong_imports(source, module, module.rpartition(".")[0])) == wrong


def at_import(tree: ast.Module) -> ast.Module:
    """Return what runs when the module is imported: no function bodies, nothing under `if TYPE_CHECKING`."""

    def kept(node: ast.AST) -> bool:
        checking = (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        )
        return not checking and not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )

    class Strip(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> ast.AST | None:
            return super().generic_visit(node) if kept(node) else None

        visit_If = visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = generic_visit

    return Strip().visit(tree)


def test_the_first_rooms_need_numpy_scipy_and_safetensors_only():
    wrong = []
    for module, path in FILES.items():
        if room_of(module) not in NEEDS:
            continue
        names = {
            name
            for _, name in imports(
                at_import(ast.parse(path.read_text(encoding="utf-8"))), package_of(path)
            )
        }
        outside = (
            {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"levelhead"}
        )
        allowed = NEEDS[room_of(module)] | OPTIONAL.get(
            path.relative_to(SOURCE / "levelhead").as_posix(), set()
        )
        wrong += [f"{module} imports {name}" for name in outside - allowed]
        wrong += [f"{module} imports {name}" for name in names if re.search(r"walk_torch\b", name)]
    assert wrong == []


def private(source: str, package: str) -> list[str]:
    """Return names that begin with an underscore and are imported from another module of ours."""
    return [
        name
        for _, name in imports(ast.parse(source), package)
        if name.startswith(("levelhead.", "levelhead_lab."))
        and re.search(r"\._(?!_)\w+$", name)
        and name not in FILES
    ]


def test_what_is_private_to_a_module_is_imported_by_no_other():
    assert {
        module: found
        for module, path in FILES.items()
        if (found := private(path.read_text(encoding="utf-8"), package_of(path)))
    } == {}


def test_a_private_name_from_elsewhere_would_be_seen():
    source = "from .counts import of, _by_class\nfrom .. import __version__, _version\nfrom .array import like"
    assert private(source, "levelhead.core") == ["levelhead.core.counts._by_class"]


def test_what_runs_at_import_is_told_from_what_does_not():
    code = (
        "try:\n    import pandas\nexcept ImportError:\n    pass\nif TYPE_CHECKING:\n    import torch\n"
        "class A:\n    import jinja2\n    def f(self):\n        import onnx\n"
    )
    tree = at_import(ast.parse(code))
    assert {name for _, name in imports(tree, "levelhead")} == {"pandas", "jinja2"}


def test_each_room_says_what_it_is_for_and_lists_its_modules():
    wrong = []
    for room in sorted(FOLDERS):
        folder = SOURCE / Path(*room.split("."))
        text = (
            ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
        )
        listed = set(re.findall(r"^ *(?:- )?`?(\w+)`?(?:, `?\w+`?)*:", text, flags=re.MULTILINE))
        listed |= {
            name
            for line in re.findall(r"^ *(?:- )?([\w`, ]+):", text, flags=re.MULTILINE)
            for name in re.findall(r"\w+", line)
        }
        there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        wrong += [f"{room}: {name} is not listed" for name in sorted(there - listed)]
    assert wrong == []


def loaded(code: str) -> set[str]:
    """Return the heavy packages in sys.modules after running code in a fresh interpreter."""
    show = f"{code}\nimport sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return set(
        subprocess.run(
            [sys.executable, "-c", show], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_levelhead_loads_nothing_heavy():
    assert loaded("import levelhead") == set()


def test_core_works_without_loading_anything_heavy():
    assert (
        loaded(
            "import numpy as np, levelhead as lh\n"
            "rng = np.random.default_rng(0)\n"
            "labels = np.repeat([0, 1], [90, 30])\n"
            "logits = np.eye(2)[labels] + rng.normal(size=(120, 2))\n"
            "tuned = lh.tune(logits, labels, [900, 300])\n"
            "lh.adjust(lh.Head(np.eye(2)), tuned)\n"
            "lh.measure.measure(tuned.apply(logits), labels)"
        )
        == set()
    )


def test_importing_the_runs_of_the_lab_loads_no_host():
    code = (
        "import sys, levelhead_lab.runs\n"
        "print([name for name in sys.modules if name.startswith('levelhead.hosts.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_importing_levelhead_does_not_even_load_numpy():
    code = "import sys, levelhead; print('numpy' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


def test_the_package_is_a_plain_module_with_every_public_name():
    assert type(levelhead).__name__ == "module"
    assert [name for name in levelhead.__all__ if not hasattr(levelhead, name)] == []
    assert set(levelhead.__all__) <= set(dir(levelhead))
    with pytest.raises(AttributeError, match="module 'levelhead' has no attribute 'nothing'"):
        levelhead.nothing  # noqa: B018
