"""The package as others see it: what it asks for, what the index shows, and the recipe for conda."""

import doctest
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from levelhead import __version__
from levelhead.support.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BUILDS_THE_DOCS_OR_CHECKS = {"docs", "dev"}  # extras that test-lowest does not install
ADDRESS = "https://example.org/someone/levelhead"
yaml = pytest.importorskip("yaml")


def load_by_path(path: Path) -> ModuleType:
    """Import a file that is no part of the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement(text: str) -> tuple[str, str]:
    """Return the name and the lowest version of a requirement; no version where it has none."""
    match = re.match(r"([\w.-]+)(?:\[.*\])?(.*)", text)
    assert match is not None
    floor = re.search(r">=([\d.]+)", match[2])
    return normal(match[1]), floor[1] if floor else ""


def requirements_with_extra() -> list[tuple[str, str]]:
    extras = PROJECT["optional-dependencies"]
    rows = [
        (extra, each)
        for extra in extras
        if extra not in BUILDS_THE_DOCS_OR_CHECKS
        for each in extras[extra]
    ]
    return [("", each) for each in PROJECT["dependencies"]] + rows


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {
        normal(line.split("==")[0]): line.split("==")[1]
        for line in lines
        if line and not line.startswith("#")
    }


def as_version(text: str) -> tuple[int, ...]:
    parts = tuple(map(int, text.split(".")))
    return parts[: max(i for i, part in enumerate((1, *parts)) if part)]  # 1.0 is 1


def test_the_lowest_versions_tested_are_those_declared():
    floors = dict(requirement(each) for _, each in requirements_with_extra())
    floors.pop("levelhead")
    lowest = pins("constraints-lowest.txt")
    assert lowest.pop("click").startswith(
        "8.1."
    )  # typer 0.19 asks for any 8, and shows no help of arguments with 8.5
    assert lowest.pop("sqlalchemy").startswith(
        "2.0."
    )  # mlflow 2.17 asks for any 2, and does not work with 2.1
    assert sorted(lowest) == sorted(floors)
    assert {n: v for n, v in floors.items() if as_version(v) != as_version(lowest[n])} == {}
    assert "".join(sorted(lowest)) == "".join(lowest)  # in order, for whoever looks one up


def test_every_requirement_has_a_lowest_version_and_a_pin():
    pinned = pins("constraints.txt")
    missing = [
        each
        for _, each in requirements_with_extra()
        if not each.startswith("levelhead[") and not requirement(each)[1]
    ]
    assert missing == []
    assert [n for n, _ in map(requirement, PROJECT["dependencies"]) if n not in pinned] == []


def test_every_library_named_in_a_hint_has_its_extra_and_every_extra_for_users_a_hint():
    extras = set(PROJECT["optional-dependencies"])
    assert set(EXTRAS.values()) <= extras
    assert extras - set(EXTRAS.values()) == {"all", "track", "test", "docs", "dev"}


def test_the_imports_of_the_base_are_declared():
    names = {requirement(each)[0] for each in PROJECT["dependencies"]}
    assert names == {"numpy", "scipy", "safetensors", "typer", "rich", "jinja2"}


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    pytest.importorskip("hatchling")
    return load_by_path(ROOT / "hatch_build.py")


def relative_links(text: str) -> list[str]:
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [
        path for path in re.findall(r"\]\(([^)\s]+)\)", outside) if not path.startswith("https://")
    ]


def test_without_an_address_the_index_page_has_no_link_into_the_repository(hook):
    text = hook.index_page(README, "", __version__)
    assert len(relative_links(README)) > 10
    assert relative_links(text) == []
    assert "<!--" not in text
    assert "![" not in text
    assert (
        "[*Adjusting Decision Boundary for Class Imbalanced Learning*](https://arxiv.org/abs/1912.01857)"
        in text
    )
    assert re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL) == re.findall(
        r"^```.*?^```",
        re.sub(r"^<!--.*?-->", "", README, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE | re.DOTALL,
    )


def test_with_an_address_every_link_leads_to_a_file_of_that_version(hook):
    text = hook.index_page(README, ADDRESS + "/", "1.2.3")
    assert relative_links(text) == []
    for path in relative_links(README):
        kind = (
            "raw"
            if f"![Recall of each class before and after: the rare ones catch up]({path})" in README
            else "blob"
        )
        assert f"]({ADDRESS}/{kind}/v1.2.3/{path})" in text
        assert (ROOT / path.partition("#")[0]).exists()


def test_the_examples_of_the_build_hook_hold(hook):
    done = doctest.testmod(hook)
    assert done.attempted > 0
    assert done.failed == 0


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_the_index_renders_the_page(hook, address):
    markdown = pytest.importorskip("readme_renderer.markdown")
    if not markdown.variants:
        pytest.skip("readme_renderer[md] is not installed")
    page = markdown.render(hook.index_page(README, address, __version__))
    assert page is not None
    assert ("<img" in page) == bool(address)
    assert page.count("<pre") == len(re.findall(r"^```\w", README, re.MULTILINE))
    assert "<table>" in page


def check_recipe(recipe: dict) -> None:
    """Compare a conda recipe with pyproject.toml."""
    spaced = [each.replace(">=", " >=") for each in PROJECT["dependencies"]]
    python = f"python {PROJECT['requires-python']}"
    assert recipe["package"] == {"name": PROJECT["name"], "version": __version__}
    assert recipe["requirements"]["run"] == [python, *spaced]
    assert recipe["requirements"]["host"] == [python, "pip", "hatchling >=1.27"]
    [[name, target]] = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {target}"]
    assert recipe["build"]["noarch"] == "python"
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    text = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text)
    recipe["package"]["version"] = recipe["context"][
        "version"
    ]  # where the recipe's own language names it
    check_recipe(recipe)
    assert (ROOT / recipe["about"]["license_file"]).exists()


def test_conda_tools_read_the_recipe():
    rattler = pytest.importorskip(
        "rattler_build", reason="rattler-build is not installed: pip install py-rattler-build"
    )
    [variant] = rattler.Stage0Recipe.from_file(ROOT / "conda" / "recipe.yaml").render()
    check_recipe((variant.recipe() if callable(variant.recipe) else variant.recipe).to_dict())
