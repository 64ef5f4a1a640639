"""The page in headless chromium: it shows what `GammaPath.at` returns, digit for digit.

A picture of a page that is too wide goes to test-artifacts/. Without chromium these tests are skipped.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from levelhead.report import PageTable, write
from levelhead.report.subject import rule_title

from . import made

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip(
        "chromium is not installed (apt-get install chromium), so the page is not tested in a browser",
        allow_module_level=True,
    )
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.slow
ARTIFACTS = Path(__file__).parents[2] / "test-artifacts"
PAGES = {
    "ten": lambda: [made.ten()],
    "two": lambda: [made.two(samples="test", target=[4, 1])],
    "thousand": lambda: [made.thousand()],
    "blind": lambda: [made.blind()],
    "trained": lambda: [made.trained()],
    "several": lambda: [made.ten(), made.trained(), made.blind()],
    "choice": lambda: [made.choice()],
    "tried": lambda: [made.tried()],
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
            made_already[name] = (
                subjects,
                write(out, subjects, tables=[] if len(subjects) == 1 else [TABLE]),
            )
        return made_already[name]

    return find


@pytest.fixture(scope="module")
def tab(browser):
    """One tab for all tests: a process of its own for each page would take three times as long to show it."""
    return browser.new_page()


@pytest.fixture
def show(tab, written):
    """Open a page as for the first time; in the end it must have logged nothing, thrown nothing, requested nothing."""
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
            tab.mouse.move(0, 0)
            tab.goto("about:blank")

    def open_(name: str, *, width: int = 1200, theme: str = "light"):
        leave()
        subjects, path = written(name)
        asked.add(path.as_uri())
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(media="screen", color_scheme=theme)
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-ready=yes]")
        settle(tab)
        return tab, subjects

    yield open_
    leave()
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert complaints == []


def settle(page) -> None:
    """Wait two frames, after which the change has been drawn."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def type_gamma(page, gamma: float) -> None:
    page.fill("#typed", f"{gamma:.4f}")
    page.press("#typed", "Enter")
    settle(page)


def percent(share: float) -> str:
    return f"{100 * share + 1e-9:.2f}\N{NO-BREAK SPACE}%"


def readouts(page) -> dict[str, str]:
    return dict(
        page.evaluate("""() => [...document.querySelectorAll("[data-read]")].filter((node) => !node.hidden)
        .map((node) => [node.dataset.read, node.querySelector("[data-now]").textContent])""")
    )


def bars(page) -> dict[int, str]:
    """The text of the bar of each class in view."""
    return {
        int(c): text
        for c, text in page.evaluate("""() => [...document.querySelectorAll("#classes .row")]
        .filter((row) => !row.hidden).map((row) => [row.dataset.class, row.querySelector(".value").textContent])""")
    }


def expected(path, gamma: float) -> dict[str, str]:
    """What the path gives; the halves are the five, hundreds, ... rarest and most frequent classes."""
    point, order, half = (
        path.at(gamma),
        np.argsort(path.counts, kind="stable"),
        len(path.counts) // 2,
    )
    recalls = point.class_accuracy[order[:half]], point.class_accuracy[order[-half:]]
    return {
        "balanced": percent(point.balanced_error),
        "error": percent(point.error),
        **{
            name: percent(np.mean(recall))
            for name, recall in zip(("rare", "common"), recalls, strict=True)
        },
    }


def test_dragging_the_slider_shows_what_the_path_gives(show):
    page, (subject,) = show("ten")
    page.locator("#gamma").scroll_into_view_if_needed()
    rng, box = np.random.default_rng(5), page.locator("#gamma").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * subject.gamma / subject.views[0].end, middle)
    page.mouse.down()
    seen = set()
    for share in rng.random(20):
        page.mouse.move(box["x"] + box["width"] * share, middle)
        settle(page)
        gamma = float(page.input_value("#gamma"))
        seen.add(gamma)
        assert readouts(page) == expected(subject.path, gamma)
        accuracy = subject.path.class_accuracy(gamma)
        assert bars(page) == {c: percent(accuracy[c]) for c in range(10)}
    page.mouse.up()
    assert len(seen) == 20


def test_the_confusion_matrix_follows_gamma(show):
    page, (subject,) = show("ten")
    order = np.argsort(subject.counts, kind="stable")
    for gamma in np.random.default_rng(2).uniform(0, subject.views[0].end, 5).round(4):
        type_gamma(page, gamma)
        cells = page.evaluate("""() => [...document.querySelectorAll(".matrix tbody tr")]
            .map((row) => [...row.cells].slice(1).map((cell) => cell.title))""")
        table = subject.path.confusion(gamma)[order][:, order]
        assert cells == [[f"{int(n)} of 40" for n in row] for row in table]


def test_every_rule_can_be_looked_at_and_is_exact(show):
    page, (subject,) = show("tried")
    order = np.argsort(subject.counts, kind="stable")
    titles = page.locator("#rule option").all_text_contents()
    assert titles == [
        rule_title(view.rule) + " (chosen)" * (i == 0) for i, view in enumerate(subject.views)
    ]
    assert len(titles) >= 3
    labels = np.repeat(np.arange(10), 40)
    for i, view in enumerate(subject.views):
        page.select_option("#rule", str(i))
        settle(page)
        assert readouts(page) == expected(view.path, view.gamma)
        for strength in np.random.default_rng(i).uniform(0, view.end, 4).round(4):
            type_gamma(page, strength)
            assert readouts(page) == expected(view.path, strength)
            cells = page.evaluate("""() => [...document.querySelectorAll(".matrix tbody tr")]
                .map((row) => [...row.cells].slice(1).map((cell) => cell.title))""")
            table = np.bincount(
                labels * 10 + view.changes.predictions(strength), minlength=100
            ).reshape(10, 10)
            assert cells == [[f"{n} of 40" for n in row] for row in table[order][:, order]]
    drawn = page.locator("#curve .u-legend .u-label").all_text_contents()
    assert all(any(title in text for text in drawn) for title in titles)


def test_on_a_phone_counts_stay_and_code_scrolls_visibly(show):
    page, _ = show("ten", width=400)
    assert page.locator("#classes .count").first.is_visible()
    code = page.locator("#command-0").locator("..")
    wide, seen, tall, inner = code.evaluate(
        "(e) => [e.scrollWidth, e.clientWidth, e.offsetHeight, e.clientHeight]"
    )
    assert wide > seen
    assert tall - inner > 6  # a scroll bar that takes its room is visible without a touch


def test_calibration_has_the_full_width(show):
    page, _ = show("trained")
    card, charts = (
        page.locator("#calibration-card").bounding_box(),
        page.locator("#calibration svg"),
    )
    assert charts.count() == 3
    assert card["width"] > 1100
    assert charts.first.bounding_box()["width"] > 250


def test_the_best_of_several_models_is_marked(show):
    page, subjects = show("several")
    found = page.locator("tr.best th").first.text_content()
    after = {
        one.title: one.path.at(one.gamma).balanced_error for one in subjects if one.path is not None
    }
    assert found.startswith(min(after, key=after.get))


def test_a_thousand_classes_follow_twenty_typed_gammas(show):
    page, (subject,) = show("thousand")
    for gamma in np.random.default_rng(6).uniform(0, subject.views[0].end, 20).round(4):
        type_gamma(page, gamma)
        assert readouts(page) == expected(subject.path, gamma)
        accuracy = subject.path.class_accuracy(gamma)
        shown = bars(page)
        assert len(shown) >= 8
        assert shown == {c: percent(accuracy[c]) for c in shown}
    table = subject.path.confusion(gamma)
    np.fill_diagonal(table, 0)
    counts = [
        int(text) for text in page.locator(".pairs tbody td:nth-child(3)").all_text_contents()
    ]
    assert counts == sorted(table.ravel().astype(int).tolist(), reverse=True)[:20]


def test_classes_weigh_as_the_target_says(show):
    page, (subject,) = show("two")
    for gamma in (0.0, 0.1, 0.25):
        type_gamma(page, gamma)
        error = 1 - subject.path.class_accuracy(gamma) @ [0.8, 0.2]
        assert (
            readouts(page)["balanced"]
            == percent(error)
            == percent(subject.path.at(gamma).balanced_error)
        )


def test_the_chosen_gamma_is_shown_to_its_last_bit(show):
    page, (subject,) = show("ten")
    page.click("#zero")
    settle(page)
    assert readouts(page) == expected(subject.path, 0.0)
    page.click("#chosen")
    settle(page)
    assert readouts(page) == expected(subject.path, subject.gamma)
    assert repr(subject.gamma) in page.text_content("#command")
    assert repr(subject.gamma) in page.text_content("#python")
    assert page.text_content("#where") == "chosen"


def test_without_labels_the_predicted_shares_are_shown(show):
    page, (subject,) = show("blind")
    for gamma in (0.0, 0.05, 0.3):
        type_gamma(page, gamma)
        shares = subject.views[0].changes.shares(gamma)
        assert bars(page) == {c: percent(share) for c, share in enumerate(shares)}
        assert readouts(page) == {"mismatch": percent(np.abs(shares - 1 / 3).sum() / 2)}
    assert not page.locator("#confusion-card").is_visible()


def test_the_keyboard_changes_gamma(show):
    page, (subject,) = show("ten")
    page.focus("#gamma")

    def press(key: str) -> float:
        page.keyboard.press(key)
        settle(page)
        return float(page.input_value("#gamma"))

    assert press("Home") == 0
    assert press("ArrowRight") == 0.01
    assert press("PageUp") == 0.11
    assert press("ArrowLeft") == 0.1
    here = press("Shift+ArrowRight")
    assert (
        here
        == np.ceil(
            subject.views[0].changes.gamma[subject.views[0].changes.gamma > 0.1].min() * 10_000
        )
        / 10_000
    )
    assert press("Shift+ArrowLeft") < here
    assert press("End") == subject.views[0].end
    assert "balanced error" in page.get_attribute("#gamma", "aria-valuetext")


def test_quick_keys_lose_no_step(show):
    page, _ = show("ten")
    page.focus("#gamma")
    page.keyboard.press("Home")
    page.evaluate("""() => { for (let i = 0; i < 7; i++) document.querySelector("#gamma").dispatchEvent(
        new KeyboardEvent("keydown", { key: "ArrowRight" })); }""")
    settle(page)
    assert float(page.input_value("#gamma")) == 0.07


def test_classes_are_searched_and_sorted(show):
    page, (subject,) = show("thousand")
    first = "#classes .row:not([hidden]) .name"
    assert (
        subject.counts[int(page.locator("#classes .row").first.get_attribute("data-class"))] == 5
    )  # rare ones first
    page.select_option("#classes select", "frequent")
    assert page.locator(first).first.text_content() == "species 0 of the northern woods"
    page.select_option("#classes select", "gain")
    change = subject.path.class_accuracy(subject.gamma) - subject.path.class_accuracy(0.0)
    assert int(page.locator("#classes .row").first.get_attribute("data-class")) == int(
        np.argmax(change)
    )
    page.fill("#classes input", "SPECIES 77")
    assert page.text_content("#classes [data-note]") == "11 of 1,000 classes"
    assert page.locator(first).count() == 11
    page.fill("#confusion-card input", "species 77 of")
    names = page.locator(".pairs tbody tr:not([hidden])").all_text_contents()
    assert names
    assert all("species 77 of" in name for name in names)


def test_only_rows_in_view_exist_and_scrolling_brings_the_others(show):
    page, _ = show("thousand")
    assert page.locator("#classes .row").count() < 25
    page.evaluate("() => { document.querySelector('[data-rows]').scrollTop = 1e6; }")
    settle(page)
    assert (
        int(page.locator("#classes .row:not([hidden])").first.get_attribute("aria-rowindex")) > 900
    )
    assert page.get_attribute("[data-rows]", "aria-rowcount") == "1000"


def test_a_list_that_scrolls_says_so(show):
    for name, scrolls in (("thousand", True), ("two", False)):
        page, _ = show(name)
        assert page.locator("#classes [data-more]").is_visible() == scrolls
        assert ("more" in page.locator("#classes").get_attribute("class").split()) == scrolls
    page, _ = show("thousand")
    page.evaluate("() => { document.querySelector('[data-rows]').scrollTop = 1e6; }")
    settle(page)
    assert not page.locator("#classes [data-more]").is_visible()  # the end is in view


def test_rare_classes_come_first_in_the_matrix_and_among_labels(show):
    page, (subject,) = show("ten")
    rows = page.locator(".matrix tbody th").all_text_contents()
    assert rows == [str(subject.names[c]) for c in np.argsort(subject.counts, kind="stable")]
    page, (subject,) = show("labels")
    shown = page.locator("table.sortable tbody td:nth-child(2)").all_text_contents()
    assert [int(text.replace(",", "")) for text in shown] == sorted(
        row.frequency for row in subject.rows
    )


def test_the_headline_fills_its_card(show):
    page, _ = show("ten")
    lines, room, one = page.evaluate("""() => {
        const head = document.querySelector(".verdict h2"), range = document.createRange();
        range.selectNodeContents(head);
        const boxes = [...range.getClientRects()];
        return [Math.max(...boxes.map((box) => box.right)) - head.getBoundingClientRect().left,
          head.getBoundingClientRect().width, head.getBoundingClientRect().height];
    }""")
    assert one < 60 or lines > 0.75 * room


@pytest.mark.parametrize(
    ("name", "width"), [("ten", 1200), ("ten", 390), ("two", 390), ("tried", 1200)]
)
def test_no_curve_strikes_through_a_label(show, name, width):
    page, _ = show(name, width=width)
    labels = page.locator("#curve .mark-label")
    assert labels.all_text_contents() == ["as trained", "chosen"]
    boxes = [label.bounding_box() for label in labels.all()]
    over = page.locator("#curve .u-over").bounding_box()
    for box in boxes:
        assert over["x"] <= box["x"]
        assert box["x"] + box["width"] <= over["x"] + over["width"] + 1
        assert over["y"] - 1 <= box["y"]
        assert box["y"] + box["height"] <= over["y"] + over["height"] + 1
    first, second = boxes
    apart = (
        first["x"] + first["width"] <= second["x"] or first["y"] >= second["y"] + second["height"]
    )
    assert apart or first["y"] + first["height"] <= second["y"]
    ground = "(node) => getComputedStyle(node).backgroundColor"
    assert [label.evaluate(ground) for label in labels.all()] == [
        "rgb(255, 255, 255)"
    ] * 2  # covers what is below


def test_changes_are_in_points_and_axes_have_titles(show):
    page, _ = show("trained")
    page.select_option("#rule", label="RS")
    settle(page)
    for change in page.locator("[data-read]:visible [data-change]").all_text_contents():
        assert change.split(" ", 1)[1] in ("points", "points, better", "points, worse")
    off = page.locator("#calibration figcaption span").first.text_content()
    assert (
        "Every class weighs the same, here and where"
        in page.locator("#calibration-note").text_content()
    )
    assert re.fullmatch(r"off by \d+\.\d\d points on average, log loss \d\.\d{3}", off)
    for card, titles in {
        "#calibration svg": ["confidence, %", "right, %"],
        "#norms svg": ["norm of the weight vector"],
    }.items():
        texts = page.locator(card).first.locator("text").all_text_contents()
        assert set(titles) <= set(texts)


def test_the_comparison_sorts_by_any_column(show):
    page, subjects = show("several")
    titles = lambda: (  # noqa: E731
        page.locator("table.sortable").first.locator("tbody th bdi").all_text_contents()
    )
    assert titles() == [subject.title for subject in subjects]
    page.click("table.sortable >> nth=0 >> text=Gamma")
    assert titles() == [subject.title for subject in sorted(subjects, key=lambda one: one.gamma)]
    page.click("table.sortable >> nth=0 >> text=Gamma")
    assert titles() == [subject.title for subject in sorted(subjects, key=lambda one: -one.gamma)]
    assert page.locator("th[aria-sort=descending]").count() == 1


def test_a_table_of_the_paper_sorts_too(show):
    page, _ = show("tables")
    page.click("table.sortable >> text=100")
    assert page.locator("tbody th").all_text_contents() == ["WVN", "Baseline"]


def test_a_choice_without_its_samples_shows_the_verdict_alone(show):
    page, _ = show("choice")
    assert page.locator(".verdict h2").is_visible()
    assert not page.locator("#explore").is_visible()
    assert "levelhead adjust" in page.text_content("#command-0")


def test_another_model_is_shown_in_detail(show):
    page, subjects = show("several")
    page.select_option("#subject", "1")
    settle(page)
    assert readouts(page) == expected(subjects[1].path, subjects[1].gamma)
    assert page.locator(".verdict:visible").count() == 1
    assert not page.locator("#norms svg").is_visible()  # a shift leaves the norms alone
    page.select_option("#rule", "1")
    settle(page)
    assert page.locator("#norms svg").is_visible()
    assert page.locator("#training canvas").is_visible()
    page.select_option("#subject", "2")
    settle(page)
    assert list(readouts(page)) == ["mismatch"]


def test_the_theme_changes_and_is_kept(show):
    page, _ = show("two", theme="dark")
    ground = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    dark = ground()
    page.click("#theme")
    light = ground()
    assert light != dark
    assert page.text_content("#theme") == "Dark theme"
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert ground() == light


def test_hostile_class_names_stay_text(show):
    page, _ = show("ten")
    names = page.locator("#classes .name").all_text_contents()
    assert names == made.HOSTILE[::-1]  # rare classes first
    assert page.locator("img, svg[onload], bdi *").count() == 0
    assert page.evaluate("window.hacked") is None


def test_the_command_is_copied(show):
    page, _ = show("ten")
    page.click("[data-copy=command-0]")
    page.wait_for_selector("[data-copy=command-0]:has-text('Copied')")
    assert page.text_content("#said") == "Copied"


def test_a_gamma_chosen_on_test_is_visible_at_once(show):
    page, _ = show("two")
    warning = page.locator(".verdict .alarm").first
    assert warning.is_visible()
    assert "chosen on test labels" in warning.text_content()
    assert warning.bounding_box()["y"] < 900
    assert not page.locator("#best").is_visible()


@pytest.mark.parametrize(
    ("name", "theme"), [*((name, "light") for name in PAGES), ("ten", "dark"), ("two", "dark")]
)
def test_it_opens_without_requests_fits_three_widths_and_has_no_serious_accessibility_violation(
    show, name, theme
):
    page, _ = show(name, theme=theme)
    assert page.locator("h2").first.is_visible()
    assert page.evaluate("window.hacked") is None
    assert "levelhead" in page.title()
    for width in (360, 800, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
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


def test_it_prints(show):
    page, _ = show("ten", theme="dark")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    assert page.locator("#classes .row:visible").count() == 10
    assert not page.locator("#zero").is_visible()
    ARTIFACTS.mkdir(exist_ok=True)
    page.pdf(path=ARTIFACTS / "ten.pdf")
