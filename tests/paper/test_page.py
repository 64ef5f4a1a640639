"""The pages of the reproduction have a place for every generated part, and are written again byte for byte."""

import json
import re
import shutil
from pathlib import Path

import pytest

from levelhead_lab.paper import page
from levelhead_lab.paper.all_claims import CLAIMS
from levelhead_lab.paper.cells import load_records
from levelhead_lab.paper.figure_style import Sources
from levelhead_lab.paper.figures import collect_sources
from levelhead_lab.paper.markdown import places_in
from levelhead_lab.paper.record import whole_snapshots

from .made import made

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
FIGURE_PLACES = ("figures", "frontier-figure", "epochs-figure")
RECORDS = [
    made(),
    made(seed=1, error=0.32),
    made(gamma=0.4),
    made("cifar100:10", "wvn", error=0.45, best=0.43),
]
PLACE = re.compile(r"^(<!-- ([\w-]+) -->\n).*?^(<!-- end of \2 -->)$", re.M | re.S)


def blank_pages(folder: Path) -> None:
    """Write the pages into a folder, with nothing in their places."""
    for name in page.PAGES:
        text = (DOCS / name).read_text(encoding="utf-8")
        (folder / name).write_text(PLACE.sub(r"\1to be written\n\3", text), encoding="utf-8")


@pytest.fixture(scope="module")
def sources() -> Sources:
    networks = whole_snapshots(RESULTS / "networks")
    return collect_sources(RESULTS, networks, load_records(RESULTS / "records"))


@pytest.fixture(scope="module")
def said(sources) -> dict[str, str]:
    """What results/ say at every place of the pages but the figures."""
    return page.places(sources, page.Measured.read(RESULTS))


@pytest.mark.slow
def test_every_page_is_written_again_byte_for_byte(levelhead, tmp_path):
    blank_pages(tmp_path)
    words = ("--docs", tmp_path, "--pictures", tmp_path / "images" / "paper")
    status, out, err = levelhead("reproduce", "figures", "--results", RESULTS / "records", *words)
    assert (status, err) == (0, "")
    for name in page.PAGES:
        assert (tmp_path / name).read_bytes() == (DOCS / name).read_bytes(), name
        assert name in out
    drawn = {path.name for path in (tmp_path / "images" / "paper").iterdir()}
    assert drawn == {path.name for path in (DOCS / "images" / "paper").iterdir()}


def test_every_place_of_the_pages_says_what_results_say(said):
    written = {}
    for name in page.PAGES:
        for match in PLACE.finditer((DOCS / name).read_text(encoding="utf-8")):
            assert match[2] not in written, "each place is there once"
            written[match[2]] = match[0]
    assert sorted(written) == sorted([*said, *FIGURE_PLACES])
    for name, text in said.items():
        assert written[name] == f"<!-- {name} -->\n\n{text}\n\n<!-- end of {name} -->", name


def test_outside_its_places_a_page_has_no_measured_number():
    """Numbers of errors have two decimals; settings, such as 5e-4 or 10 %, do not."""
    for name in page.PAGES:
        prose = PLACE.sub("", (DOCS / name).read_text(encoding="utf-8"))
        assert re.findall(r"\d+\.\d\d\b", prose) == [], name


@pytest.fixture
def filled(tmp_path) -> str:
    """The pages, written from a few records made by hand."""
    results = tmp_path / "results"
    (results / "records").mkdir(parents=True)
    for i, record in enumerate(RECORDS):
        (results / "records" / f"{i}.json").write_text(json.dumps(record))
    (results / "figures").mkdir()
    shutil.copy(RESULTS / "figures" / "boundary.json", results / "figures")
    blank_pages(tmp_path)
    written, text = page.draw_figures(
        results / "records", tmp_path, tmp_path / "images", say=lambda _: None
    )
    assert written["pages"] == [str(tmp_path / name) for name in page.PAGES]
    assert text.endswith(str(tmp_path / page.PAGES[-1]))
    return "".join((tmp_path / name).read_text(encoding="utf-8") for name in page.PAGES)


def test_tables_claims_figures_and_cost_stand_on_them(filled):
    assert "to be written" not in filled
    assert "| Baseline | *35.67* | 31.00 ± 1.41, *29.71* |" in filled
    assert (
        "|  | CIFAR-10, CIFAR-100 | Tiny ImageNet |\n|---|---|---|\n| network | resnet32 | resnet18-64 |"
        in filled
    )
    assert "| epochs | 180 | 50, 28, 21, 20 |" in filled
    # 3 networks of 180 epochs in 90 s each, none with a hash
    assert "| CIFAR-10 | 3 | 540 | 0.07 | 3 |" in filled
    assert "| all | 4 | 720 | 0.10 | 4 |" in filled
    assert "Trained on: a GPU; torch 2.13.0." in filled
    assert "![The boundary between weight vectors (Figure 3)](images/boundary.png)" in filled
    assert "Not drawn: no record of tiny-imagenet:step:100:baseline." in filled
    assert "Not drawn: no network of the recipe frontier has a record." in filled
    assert "| LDMLR | [Han et al., 2024](https://arxiv.org/abs/2404.04517) | ResNet-32 |" in filled
    assert "LDAM on CIFAR-10 at ratio 1 is 9.13 in the paper" in filled


def test_claims_without_records_are_named(filled):
    judged = re.findall(r"^\| .* \| \*\*(?:reproduced|partly|not reproduced)\*\* \|", filled, re.M)
    named = filled.partition("records are missing: ")[2].partition("\n")[0].split(", ")
    assert len(judged) + len(named) == len(CLAIMS) + 7
    assert "wvn flattens the curve" in named  # no column has both baseline and WVN


def test_what_is_not_there_yet_is_said(filled):
    assert filled.count("No such network has a record yet.") >= 5
    assert filled.count("Not measured.") == 11
    assert "Not yet, or not in every column" not in filled
    assert "not yet, or not in every column: Table 1, Focal loss, Table 1, CB" in filled


def test_pages_without_any_record_say_so():
    empty = page.places(Sources([]))
    assert empty["cost"] == "No network has a record yet."
    assert empty["claims"] == "No claim has its records yet."
    for name in (
        "headline",
        "beyond",
        "strong",
        "strong-text",
        "frontier-text",
        "sources",
        "spread",
    ):
        assert empty[name] == "No such network has a record yet.", name


def test_a_place_that_nothing_is_written_at_is_named(tmp_path):
    file = tmp_path / page.PAGES[0]
    file.write_text("<!-- mine -->\n<!-- end of mine -->\n")
    with pytest.raises(ValueError, match="nothing is written at 'mine'; the places are a, b"):
        page.fill_pages([file], {"b": "", "a": ""})
    for name in page.PAGES:
        (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match="no page has a place for a"):
        page.fill_pages([tmp_path / name for name in page.PAGES], {"a": ""})
    assert places_in(DOCS / page.PAGES[2])[0] == "setup"


def test_a_network_of_another_recipe_costs_too_and_counts_for_no_claim():
    other = {**made(power=-0.1), "column": "strong/cifar10:100"}
    assert "| CIFAR-10 | 1 | 180 | 0.03 | 1 |" in page.places(Sources([other]))["cost"]
    hashed = {**other, "data_sha256": {"train": "0" * 64}}
    assert "| CIFAR-10 | 1 | 180 | 0.03 | 0 |" in page.places(Sources([hashed]))["cost"]
    assert page.places(Sources([other]))["claims"] == "No claim has its records yet."


def test_a_row_stands_on_a_page_as_soon_as_it_has_a_record():
    new = {**made(method="ldam-drw"), "column": "frontier/cifar10:100"}
    places = page.places(Sources([new]))
    assert re.search(r"^\| LDAM-DRW \| \d", places["frontier"], re.M)
    column = "cao2019-64/tiny-imagenet-sorted:step:10"
    theirs = {**made("tiny-imagenet:step:10", "ldam-drw", error=0.48), "column": column}
    theirs["top"] = {"k": 5, "curve": [0.24] * 101}
    places = page.places(Sources([theirs]))
    assert (
        "| LDAM, recipe of Cao et al. |  |  |  | 48.00 / 24.00, *47.43 / 23.26* |"
        in (places["table2"])
    )
    assert "Table 4, LDAM-DRW | 1 of 4 columns |" in places["copied"]
    seed = {**made(seed=2, error=0.2), "column": "frontier-long/cifar10:100"}
    assert "| Baseline | 20.00 |  |" in page.places(Sources([seed]))["frontier-long"]


def test_no_cell_of_the_papers_tables_is_empty(said):
    for name, rows in (
        ("table1-cifar10", 18),
        ("table1-cifar100", 18),
        ("table2", 14),
        ("table3", 5),
    ):
        lines = [
            line
            for line in said[name].splitlines()[2:]
            if not any(
                words in line
                for words in ("recipe", "to the largest", "drawn once", "in the batch")
            )
        ]  # those are trained in some columns
        assert len(lines) == rows
        assert not [line for line in lines if "|  |" in line]
