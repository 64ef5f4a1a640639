"""The gallery: every example is well formed, listed and uses public names only. The two quickest run here.

`make docs` runs all of them.
"""

import ast
import re
import runpy
from pathlib import Path

import pytest

import levelhead

pytestmark = pytest.mark.usefixtures("no_collection")
FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
QUICKEST = ["plot_few_labels", "plot_unlabelled"]  # neither trains with torch
PUBLIC = {
    f"levelhead.hosts.{host}" for host in ("sklearn", "predictor", "lightning", "transformers")
}


PUBLIC_NAMES = {*levelhead.__all__, *levelhead._HOME, *levelhead._MODULES}


def foreign_names(source: str) -> list[str]:
    """Return the names of levelhead in an example that are not public."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "lh"
        ):
            names += [f"lh.{node.attr}"] if node.attr not in PUBLIC_NAMES else []
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "levelhead":
            names += [
                f"{node.module}.{name.name}"
                for name in node.names
                if node.module not in PUBLIC or name.name.startswith("_")
            ]
        elif isinstance(node, ast.Import):
            names += [
                name.name
                for name in node.names
                if name.name.startswith(("levelhead.", "levelhead_lab"))
            ]
        elif (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.endswith("_")
        ):
            names.append(node.attr)
    return names


def test_there_are_enough():
    assert len(EXAMPLES) >= 9


def is_well_formed(path: Path) -> bool:
    """Return whether an example has a title, a text below it, at least three cells and a figure at its end."""
    source = path.read_text(encoding="utf-8")
    title, rule, *text = (ast.get_docstring(ast.parse(source)) or "\n").splitlines()
    return (
        rule == "=" * len(title)
        and bool("".join(text).strip())
        and path.stem.startswith("plot_")
        and len(re.findall(r"^# %%$", source, re.MULTILINE)) >= 3
        and source.endswith("plt.show()\n")
    )


def test_every_example_is_well_formed():
    assert [path.stem for path in EXAMPLES if not is_well_formed(path)] == []


def test_an_example_without_a_title_would_be_seen(tmp_path):
    broken = EXAMPLES[0].read_text(encoding="utf-8").replace("====", "====" * 2, 1)
    (tmp_path / "plot_broken.py").write_text(broken, encoding="utf-8")
    assert not is_well_formed(tmp_path / "plot_broken.py")


def test_every_example_uses_public_names_only():
    foreign = [(path.stem, foreign_names(path.read_text(encoding="utf-8"))) for path in EXAMPLES]
    assert [(stem, names) for stem, names in foreign if names] == []


@pytest.mark.parametrize(
    "source",
    [
        "import levelhead as lh\nlh.plot.draw_path",
        "from levelhead.core.tune import tune",
        "import levelhead_lab.lab.train",
        "from levelhead.hosts.sklearn import _CALLER",
        "tuned._source",
    ],
)
def test_a_name_that_is_not_public_would_be_seen(source):
    assert len(foreign_names(source)) == 1


def defined(module: str) -> set[str]:
    """Return the functions and classes of a module by its source alone: to import Lightning would take long."""
    file = Path(levelhead.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return {
        part.name
        for part in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(part, ast.ClassDef | ast.FunctionDef)
    }


def test_what_the_examples_import_exists():
    missing = [
        f"{path.stem}: {node.module}.{name.name}"
        for path in EXAMPLES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in PUBLIC
        for name in node.names
        if name.name not in defined(node.module)
    ]
    assert missing == []


def test_the_list_names_every_example_and_no_other():
    listed = re.findall(
        r"^``(plot_\w+)\.py``", (FOLDER / "README.rst").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == [path.stem for path in EXAMPLES]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICKEST)
def test_an_example_runs(name, tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("agg")
    pyplot.close("all")
    try:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        assert figures
        assert all(
            axes.has_data() and axes.get_xlabel() for figure in figures for axes in figure.axes
        )
    finally:
        pyplot.close("all")
    assert "error" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
