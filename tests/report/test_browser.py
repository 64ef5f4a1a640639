"""The page in headless chromium: it opens without a request, sorts, searches, copies, fits and prints.

A picture of a page that is too wide goes to test-artifacts/. Without chromium these are skipped.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from levelhead.report import PageTable, write

from . import made

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip(
        "chromium is not installed (apt-get install chromium), so the page is not tested",
        allow_module_level=True,
    )
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.slow
ARTIFACTS = Path(__file__).parents[2] / "test-artifacts"
PAGES = {
    "ten": lambda: [made.ten()],
    "test": lambda: [made.two(chosen_on="test", target=[4, 1])],
    "forty": lambda: [made.forty()],
    "thousand": lambda: [made.thousand()],
    "blind": lambda: [made.blind()],
    "trained": lambda: [made.trained()],
    "strength": lambda: [made.ten(rule="rescale")],
    "several": lambda: [made.ten(), made.trained(), made.blind()],
    "choice": lambda: [made.choice()],
    "long": lambda: [made.long_names(), made.long_names()],
    "labels": lambda: [made.several_labels()],
    "tables": list,
}
TABLE = PageTable(
    "a table", ["ratio", "100", "10"], [["Baseline", "29.71", "13.26"], ["WVN", "20.17", "10.71"]]
)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as library:
        started = library.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            ignore_default_args=["--hide-scrollbars"],
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The subjects and the file of each page, made on first use."""
    made_already = {}

    def find(name: str):
        if name not in made_already:
            subjects = PAGES[name]()
            out = tmp_path_factory.mktemp("page") / f"{name}.html"
            tables = [] if len(subjects) == 1 else [TABLE]
            made_already[name] = (subjects, write(out, subjects, tables=tables))
        return made_already[name]

    return find


@pytest.fixture(scope="module")
def tab(browser):
    """One tab for all tests: a process for each page would take three times as long to show it."""
    return browser.new_page()


@pytest.fixture
def show(tab, written):
    """Open a page; in the end it must have logged nothing, thrown nothing, requested nothing."""
    complaints, asked = [], {"about:blank", "data:,"}
    listeners = {
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "dialog": lambda dialog: complaints.append(dialog.message),
        "request": lambda request: (
            complaints.append(request.url) if request.url not in asked else None
        ),
    }
    for event, listener in listeners.items():
        tab.on(event, listener)

    def leave() -> None:
        if tab.url != "about:blank":
            tab.evaluate("localStorage.clear()")
            tab.goto("about:blank")

    def open_(name: str, *, width: int = 1200, theme: str = "light"):
        leave()
        subjects, path = written(name)
        asked.add(path.as_uri())
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(media="screen", color_scheme=theme)
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-ready=yes]")
        return tab, subjects

    yield open_
    leave()
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert complaints == []


def column(page, heading: str) -> list[str]:
    """The cells below a heading of the table of classes, in the order shown."""
    return page.evaluate(
        """(heading) => {
        const table = document.querySelector("table.classes");
        const at = [...table.tHead.rows[0].cells].findIndex((c) => c.innerText.startsWith(heading));
        return [...table.tBodies[0].rows].filter((row) => !row.hidden)
          .map((row) => row.cells[at].textContent);
        }""",
        heading,
    )


def test_classes_are_sorted_by_any_column(show):
    page, (subject,) = show("ten")
    assert column(page, "Class") == [row.name for row in subject.rows]  # the rarest first
    gained = {row.name: row.recall[1] - row.recall[0] for row in subject.rows}
    heading = page.locator("table.classes").get_by_role("button", name="Change")
    heading.click()
    assert [gained[name] for name in column(page, "Class")] == sorted(gained.values())
    heading.click()
    assert [gained[name] for name in column(page, "Class")] == sorted(gained.values())[::-1]
    assert heading.locator("xpath=..").get_attribute("aria-sort") == "descending"


def test_what_is_not_known_is_sorted_to_the_end(show):
    page, (subject,) = show("thousand")
    unknown = sum(np.isnan(row.precision[0]) for row in subject.rows)
    assert unknown > 0
    heading = page.locator("table.classes").get_by_role("button", name="Precision before")
    for _ in range(2):
        heading.click()
        shown = column(page, "Precision before")
        assert shown[-unknown:] == ["\N{EN DASH}"] * unknown
        assert "\N{EN DASH}" not in shown[:-unknown]


def test_long_names_leave_room_for_the_numbers(show):
    page, _ = show("long")
    places = page.evaluate("""() => [...document.querySelectorAll(".sortable")].map((table) =>
        table.rows[1].cells[1].getBoundingClientRect().right)""")
    assert places
    assert max(places) < 1200


@pytest.mark.parametrize("width", [390, 1200])
def test_the_names_of_confused_pairs_are_whole(show, width):
    page, (subject,) = show("thousand", width=width)
    cells = page.locator(".pairs tbody td:nth-child(-n+2)")
    assert set(cells.all_text_contents()) <= set(subject.tuned.names)
    cut = cells.evaluate_all("(cells) => cells.filter((c) => c.scrollWidth > c.clientWidth).length")
    assert cut == 0


def test_classes_are_searched(show):
    page, _ = show("thousand")
    page.fill("input[type=search]", "SPECIES 77")
    assert len(column(page, "Class")) == 11
    assert page.text_content("output") == "11 of 1,000"
    page.fill("input[type=search]", "")
    assert len(column(page, "Class")) == 1000


def test_one_of_several_models_is_shown_in_detail(show):
    page, subjects = show("several")
    for i, subject in enumerate(subjects):
        page.select_option("#subject", str(i))
        shown = page.locator("h2 .said:visible").all_text_contents()
        assert shown == [subject.tuned.verdict_text()]


def test_the_chart_has_a_mark_for_each_class_where_its_recall_is(show):
    page, (subject,) = show("ten")
    places = page.evaluate("""() => [...document.querySelectorAll(".wide svg g")].map((g) =>
        [...g.querySelectorAll("circle")].map((c) => Number(c.getAttribute("cy"))))""")
    recalls = np.array([row.recall for row in subject.rows[::-1]])
    top, bottom = np.array(places).min(), np.array(places).max()
    assert len(places) == 10
    heights = (bottom - np.array(places)) / (bottom - top)
    wanted = (recalls - recalls.min()) / (recalls.max() - recalls.min())
    np.testing.assert_allclose(heights, wanted, atol=0.001)


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("name", ["ten", "trained", "strength", "forty", "thousand", "labels"])
def test_the_texts_of_a_chart_are_inside_it_and_apart(show, name, width):
    page, _ = show(name, width=width)
    wrong = page.evaluate("""() => {
        const wrong = [];
        for (const chart of document.querySelectorAll("svg")) {
          const frame = chart.getBoundingClientRect();
          if (!frame.width) continue;  // the one for another width
          const texts = [...chart.querySelectorAll("text")];
          const boxes = texts.map((text) => text.getBoundingClientRect());
          boxes.forEach((a, i) => {
            const outside = a.left < frame.left || a.right > frame.right || a.top < frame.top;
            if (outside || a.bottom > frame.bottom + 2) wrong.push(texts[i].textContent);
            boxes.slice(i + 1).forEach((b, j) => {
              const apart = a.right < b.left || b.right < a.left || a.bottom < b.top || b.bottom < a.top;
              if (!apart) wrong.push(texts[i].textContent + " on " + texts[i + 1 + j].textContent);
            });
          });
        }
        return wrong;
        }""")
    assert wrong == []


@pytest.mark.parametrize("name", ["ten", "trained", "strength", "forty", "thousand", "labels"])
def test_a_phone_shows_the_whole_of_each_chart_at_a_size_that_can_be_read(show, name):
    page, _ = show(name, width=390)
    charts = page.evaluate("""() => [...document.querySelectorAll(".drawing")]
        .filter((place) => place.clientWidth)
        .map((place) => [place.scrollWidth - place.clientWidth, place.firstChild.getCTM().a])""")
    assert charts
    for beyond, scale in charts:
        assert beyond == 0
        assert scale > 0.7


def test_the_verdict_stands_beside_its_sign_on_a_phone(show):
    page, _ = show("ten", width=390)
    sign, said = (page.locator(f"h2 .{name}").bounding_box() for name in ("sign", "said"))
    assert said["y"] < sign["y"] + sign["height"]


def test_the_choice_is_saved_as_a_file(show, tmp_path):
    page, (subject,) = show("ten")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save tuned.json").click()
    assert download.value.suggested_filename == "tuned.json"
    saved = json.loads(Path(download.value.path()).read_text())
    assert saved == json.loads(json.dumps(subject.tuned.to_dict()))


def test_code_is_copied(show):
    page, _ = show("ten")
    page.get_by_role("button", name="Copy the code").click()
    page.get_by_text("Copied").first.wait_for(timeout=5000)


def test_what_is_not_worthwhile_is_folded(show):
    page, _ = show("test")
    assert not page.locator("#python-0").is_visible()
    page.get_by_text("Apply it anyway").click()
    assert page.locator("#python-0").is_visible()
    assert "chosen on test labels" in page.locator(".alarm").first.text_content()


def test_the_theme_changes_and_is_kept(show):
    page, _ = show("ten")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert page.text_content("#theme") == "Light theme"


@pytest.mark.parametrize(
    ("name", "theme"), [*((name, "light") for name in PAGES), ("ten", "dark"), ("test", "dark")]
)
def test_it_opens_without_requests_fits_three_widths_and_is_accessible(show, name, theme):
    page, _ = show(name, theme=theme)
    assert page.locator("h2").first.is_visible()
    assert page.evaluate("window.hacked") is None
    assert "levelhead" in page.title()
    for width in (360, 800, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        if (found := page.evaluate("document.documentElement.scrollWidth")) > width:
            picture = ARTIFACTS / f"{name}-{theme}-{width}.png"
            page.screenshot(path=picture, full_page=True)
            pytest.fail(f"{found} pixels wide, of {width}; see {picture}")
    page.evaluate((Path(__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    bad = [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert bad == []


@pytest.mark.parametrize("name", ["several", "long", "trained"])
def test_nothing_is_cut_off_on_paper(show, name):
    page, _ = show(name, width=700)
    page.emulate_media(media="print")
    cut = page.evaluate("""() => [...document.querySelectorAll(".scroll, pre")]
        .filter((part) => getComputedStyle(part).overflowX !== "visible")
        .filter((part) => part.scrollWidth > part.clientWidth)
        .map((part) => part.getAttribute("aria-label") || part.textContent)""")
    assert cut == []


@pytest.mark.parametrize("name", ["ten", "forty", "several"])
def test_tables_stay_in_their_cards_on_paper(show, name):
    page, _ = show(name, width=794)  # A4
    page.emulate_media(media="print")
    beyond = page.evaluate("""() => [...document.querySelectorAll(".scroll")]
        .map((part) => part.scrollWidth - part.clientWidth)""")
    assert max(beyond) <= 0


def test_it_prints(show):
    page, _ = show("ten", theme="dark")
    page.emulate_media(media="print")
    card = "getComputedStyle(document.querySelector('.card')).backgroundColor"
    assert page.evaluate(card) == "rgb(255, 255, 255)"
    assert page.locator("table.classes tbody tr:visible").count() == 10
    assert not page.locator("#theme").is_visible()
    ARTIFACTS.mkdir(exist_ok=True)
    page.pdf(path=ARTIFACTS / "ten.pdf")
