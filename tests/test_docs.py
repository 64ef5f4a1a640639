"""The documentation is complete, and its links lead somewhere. (test_readme.py runs its examples.)"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import levelhead
from levelhead import cli
from levelhead.cli.common import GROUPS
from levelhead_lab.methods import METHODS
from levelhead_lab.methods.table import reference as paper_of
from levelhead_lab.paper.cells import BEST_ON_TEST, HELD_OUT, cell, load_records
from levelhead_lab.paper.geometry import boundary_angles

pytestmark = pytest.mark.usefixtures("no_collection")
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
EXAMPLES = {path.stem for path in (ROOT / "examples").glob("*.py")}
WRITTEN = {f"gallery/{name}.rst" for name in {"index", *EXAMPLES}}  # by the build
COMMENT = re.compile(r"<!--.*?-->", re.S)
FENCED = re.compile(r"^(`{3,})(?!\{).*?^\1$", re.S | re.M)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(\s*([^)\s]+)\s*\)")


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return import_module("reference")


def prose(path: Path) -> str:
    return FENCED.sub("", COMMENT.sub("", path.read_text(encoding="utf-8")))


def documented() -> list[str]:
    """Return the full names in api.md; each block has its own module."""
    names, page = [], (DOCS / "api.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```\{eval-rst\}\n(.*?)^```$", page, re.S | re.M):
        module = re.search(r"currentmodule:: (\S+)", block)
        names += (
            [f"{module[1]}.{name}" for name in re.findall(r"^   ([\w.]+)$", block, re.M)]
            if module
            else []
        )
        names += re.findall(r"py:data:: (\S+)", block)
    return names


def bound(module: str) -> set[str]:
    """Return the public names of a module by its source: its `__all__`, or what it defines."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    listed = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AugAssign) and ast.unparse(node).startswith("__all__ ")
    ]
    if listed:
        return {name for names in listed for name in names}
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name for name in defined if not name.startswith("_")}


def test_every_public_name_is_in_the_reference():
    names = set(documented())
    modules = {"levelhead.core.counts", "levelhead.core.measure", "levelhead.core.rules"}
    modules |= {"levelhead", "levelhead.report", "levelhead_lab.methods"}
    modules |= {"levelhead.hosts.lightning"}
    rooms = {f"levelhead.{name}" for name in ("counts", "measure", "priors", "rules", "warnings")}
    elsewhere = {"levelhead.core.rules.RULES", "levelhead.core.rules.Adjustment"}
    assert bound("levelhead") == set(levelhead.__all__)
    public = {f"{module}.{name}" for module in modules for name in bound(module)}
    estimators = "levelhead.hosts.sklearn"
    public |= {f"{estimators}.{name}" for name in bound(estimators) if name.startswith("Adjusted")}
    assert public - names - rooms - elsewhere == set(), "docs/api.md lacks these"


def test_every_warning_is_in_the_reference_and_in_the_questions():
    kinds = {name for name in bound("levelhead.support.warnings") if name.endswith("Warning")}
    assert kinds - {name.rpartition(".")[2] for name in documented()} == set()
    questions = (DOCS / "faq.md").read_text(encoding="utf-8")
    assert kinds - {"LevelheadWarning"} - set(re.findall(r"`(\w+)`", questions)) == set()


def test_the_reference_has_nothing_twice_and_nothing_that_is_gone():
    names = documented()
    assert len(names) > 60
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert [
        name for name in names if name.rpartition(".")[2] not in bound(name.rpartition(".")[0])
    ] == []


Explained = type | Callable[..., object]


def explanation(thing: Explained) -> str:
    """Return what the reference says of a class or function: its docstring, and `#:` beside its fields."""
    beside = re.findall(r"#: .*\n\s+\w+|\w+: .*#: ", inspect.getsource(thing))
    return "\n".join([inspect.getdoc(thing) or "", *beside])


def functions_and_classes() -> Iterator[tuple[str, Explained]]:
    """Yield what the reference shows by name, but for errors, warnings and data."""
    for name in documented():
        module, _, last = name.rpartition(".")
        try:
            thing = getattr(import_module(module), last)
        except ImportError:  # of a library that is not here
            continue
        if callable(thing) and not (isinstance(thing, type) and issubclass(thing, Exception)):
            yield name, thing


def methods_of(thing: Explained) -> Iterator[tuple[str, Explained]]:
    """Yield the methods that a class defines, but for hooks, which the trainer explains that calls them."""
    if not isinstance(thing, type):
        return
    trainers = [base for base in thing.__mro__[1:] if not base.__module__.startswith("levelhead")]
    for name, defined in vars(thing).items():
        is_method = isinstance(defined, FunctionType | staticmethod) and not name.startswith("_")
        if is_method and not any(hasattr(base, name) for base in trainers):
            yield name, getattr(thing, name)


def unexplained(thing: Explained) -> list[str]:
    """Return the arguments that an explanation does not mention."""
    arguments = set(inspect.signature(thing).parameters) - {"self", "args", "kwargs"}
    missing = arguments - set(re.findall(r"\w+", explanation(thing)))
    return sorted(name for name in missing if not name.startswith("_"))


def test_the_reference_explains_every_argument():
    missing = {}
    for name, thing in functions_and_classes():
        missing[name] = unexplained(thing)
        for method, function in methods_of(thing):
            missing[f"{name}.{method}"] = unexplained(function)
    assert len(missing) > 100
    assert {name: arguments for name, arguments in missing.items() if arguments} == {}


def test_everything_in_the_reference_has_an_example():
    assert [
        name
        for name, thing in functions_and_classes()
        if not re.search(">>>|Example", explanation(thing))
    ] == []


def test_the_list_of_commands_cuts_no_sentence_short(levelhead):
    status, out, _ = levelhead("--help")
    assert status == 0
    assert "..." not in out.split("Your model:")[1]


def runs_of(commands) -> list[str]:
    """Return the name of each command: the one it was given, or its function's."""
    return [command.name or command.callback.__name__.replace("_", "-") for command in commands]


def test_every_command_and_option_is_in_the_command_line_reference(reference):
    sections = dict(
        re.findall(r"^## levelhead (\S+)\n(.*?)(?=^## |\Z)", reference.commands(), re.S | re.M)
    )
    runner, listed = CliRunner(), [name for names in GROUPS.values() for name in names]
    assert list(sections) == listed
    assert sorted(runs_of(cli.app.registered_commands)) == sorted(
        listed
    )  # each command is in a group
    for name in listed:
        told = runner.invoke(
            cli.app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}
        ).output
        options = set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", told, re.M)) - {"--help"}
        assert options, told
        assert {option for option in options if option not in sections[name]} == set(), name


def test_every_method_has_its_row_its_paper_and_its_card(reference):
    rows, cards = reference.table().splitlines()[2:], reference.cards()
    assert len(rows) == len(METHODS)
    for row, method in zip(rows, METHODS.values(), strict=True):
        assert f"`{method.name}`" in row
        assert paper_of(method).rstrip(".") in row.replace("\\", "")
        assert f"\n### {method.name}\n" in f"\n{cards}"
    anchors = set(re.findall(r"^\((method-\S+)\)=$", cards, re.M))
    assert {target for _, _, target in LINK.findall(reference.table() + cards)} <= {
        f"#{name}" for name in anchors
    }


def broken(path: Path, picture: str, text: str, target: str) -> str | None:
    """Return what is wrong with a link of a page, or None."""
    if not text.strip():
        return "has no text"
    if re.match(r"[a-z]+:", target):
        return "would be fetched from another site" if picture else None
    page, _, anchor = target.partition("#")
    there = path.parent / page if page else path
    if not there.exists():
        return None if page in WRITTEN else "does not exist"
    headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.M) if anchor else []
    slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return f"is not a heading of {there.name}" if anchor and anchor not in slugs else None


def test_every_link_leads_somewhere_and_every_picture_has_a_description():
    wrong = [
        f"{path.name}: {target} {problem}"
        for path in [ROOT / "README.md", *PAGES]
        for picture, text, target in LINK.findall(prose(path))
        if (problem := broken(path, picture, text, target))
    ]
    assert wrong == []


def test_every_page_is_in_one_table_of_contents():
    listed = [
        entry
        for path in PAGES
        for block in re.findall(
            r"^```\{toctree\}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.S | re.M
        )
        for entry in re.findall(r"^(?:[^:\n]*<)?([\w/-]+)>?$", block, re.M)
    ]
    assert sorted(entry for entry in listed if "/" not in entry) == sorted(
        path.stem for path in PAGES if path.stem != "index"
    )


def best_on_test(method: str) -> dict[str, list[tuple[float, float]]]:
    """Return (gamma, error) of every network of a method trained on a whole column of the paper's tables, by column."""
    records = [
        json.loads(path.read_text())
        for path in (ROOT / "results" / "records").glob(f"*-{method}-?-*.json")
    ]
    best_of: dict[str, list[tuple[float, float]]] = {}
    for record in sorted(records, key=lambda record: record["seed"]):
        if (
            record["method"] == method
            and not record["hold_out"]
            and record["column"].split(":")[1] != "1"
        ):
            best = record["best_on_test"]
            best_of.setdefault(record["column"], []).append((best["gamma"], 100 * best["error"]))
    return best_of


def test_what_the_pages_say_of_wvn_is_in_the_records():
    plain, kept = best_on_test("baseline"), best_on_test("wvn")
    ahead = {
        column: np.mean(plain[column], axis=0)[1] - np.mean(kept[column], axis=0)[1]
        for column in kept
    }
    cifar, tiny, by_source = (
        [gain for column, gain in ahead.items() if column.startswith(names)]
        for names in (("cifar", "strong/cifar"), "tiny", "cao2019-64/tiny")
    )
    assert len(cifar) >= 13
    assert len(tiny) == len(by_source) == 4
    assert np.mean(np.less(cifar, 0)) >= 0.75  # "behind plain training almost everywhere on CIFAR"
    assert min(tiny) > 0 > max(by_source)  # ahead of it by one recipe, behind by the other
    text = " ".join((DOCS / "training.md").read_text().split())
    assert f"behind by up to {max(tiny):.1f} points by one recipe" in text
    assert f"ahead by up to {-min(by_source):.1f} by another" in text


def test_what_the_hold_outs_strength_costs_is_in_the_records():
    records = load_records(ROOT / "results" / "records")
    columns = {r["column"] for r in records if r["held_out"] and r["method"] == "wvn"}
    costs = {}
    for method in ("baseline", "wvn"):
        held, best = (
            [cell(records, column, method, source).mean_error for column in columns]
            for source in (HELD_OUT, BEST_ON_TEST)
        )
        costs[method] = np.mean(held) - np.mean(best)
    assert len(columns) == 26
    text = " ".join((DOCS / "training.md").read_text().split())
    for cost in costs.values():
        assert f"about as far from the best error, {cost:.1f} points in the mean" in text


def test_what_the_method_says_of_the_boundary_is_so():
    """The head is that of the picture, docs/images/guide-boundary.svg."""
    angles = boundary_angles(levelhead.Head(np.array([[2.0, 0.35], [0.25, 1.0]])), 0, 1)
    said = " ".join((DOCS / "method.md").read_text(encoding="utf-8").split())
    stray = "may stray {1:.0f} degrees before it is taken for the other one; of the frequent class, {0:.0f}."
    assert stray.format(*angles) in said


def test_markup_in_help_and_cards_stays_text(reference):
    assert reference._escape("a_b <c> `d_e` |f|") == r"a\_b \<c\> `d_e` \|f\|"


def test_pages_have_no_holes_in_a_clone():
    """Directives that insert a file are empty boxes where a repository shows the page."""
    holes = [
        f"{path.name}: {line}"
        for path in PAGES
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r"^```\{(?:literal)?include\}", line)
    ]
    assert holes == []


def test_files_that_the_site_shows_are_linked_by_name(reference):
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        for file in reference.SHOWN.findall(page):
            if not file.startswith("generated/"):
                assert (path.parent / file).is_file(), f"{path.name}: {file}"
                assert f"[{Path(file).name}]({file})" in page, f"{path.name} does not link {file}"


def test_the_site_shows_files_where_a_comment_names_them(reference, tmp_path):
    (tmp_path / "code.py").write_text("x = 1\n")
    (tmp_path / "text.md").write_text("## Title\n")
    page = "before\n\n<!-- shown: code.py -->\n\n<!-- shown: text.md -->\n"
    expected = "before\n\n```python\nx = 1\n```\n\n## Title\n\n"
    assert reference.show_files(page, tmp_path) == expected


def _heights_drawn(element: ElementTree.Element) -> Iterator[float]:
    """Yield how far down paths, marks and texts of a picture of matplotlib are, without its background."""
    if element.tag.endswith(("}defs", "}metadata")) or element.get("id") == "patch_1":
        return
    if element.tag.endswith("}path"):
        yield from map(float, re.findall(r"-?\d+\.?\d*", element.get("d", ""))[1::2])
    moved = re.match(r"translate\(\S+ (\S+)\)", element.get("transform", ""))
    if moved:  # the outlines of a text, in units of their own
        yield float(moved[1])
        return
    for inner in element:
        yield from _heights_drawn(inner)


@pytest.mark.parametrize(
    "picture", sorted((DOCS / "images").glob("*.svg")), ids=lambda path: path.stem
)
def test_pictures_have_no_blank_band_below_or_above(picture):
    root = ElementTree.parse(picture).getroot()
    height = float(root.get("viewBox").split()[3])
    drawn = list(_heights_drawn(root))
    assert min(drawn) < 20  # a title's line
    assert max(drawn) > height - 10
