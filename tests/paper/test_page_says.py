"""What the pages of the reproduction say, against numbers read off results/ in another way."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from bench.decisions import snapshots
from levelhead_lab.methods import METHODS
from levelhead_lab.paper import page
from levelhead_lab.paper.beyond_texts import strong_text
from levelhead_lab.paper.figure_style import Sources
from levelhead_lab.paper.record import whole_snapshots
from levelhead_lab.paper.tables import tables
from levelhead_lab.paper.wvn_differs import authors_verdict

RESULTS = Path(__file__).parents[2] / "results"
DOCS = RESULTS.parent / "docs"
COLUMNS = [
    f"{data}:{ratio}" for data in ("cifar10", "cifar100") for ratio in (200, 100, 50, 20, 10)
]


def read(name: str):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def records() -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((RESULTS / "records").glob("*.json"))]


@pytest.fixture(scope="module")
def said(records) -> dict[str, str]:
    sources = Sources(records, whole_snapshots(RESULTS / "networks"))
    return page.places(sources, page.Measured.read(RESULTS))


def whole(records: list[dict], column: str, method: str) -> list[dict]:
    """The networks of a cell that were trained on the whole training set."""
    key = (column, method, 0.0)
    return [r for r in records if (r["column"], r["method"], r["hold_out"]) == key]


def at(records: list[dict], column: str, method: str, gamma: float) -> list[float]:
    """The errors of a cell at a gamma, in percent; curves have a point every hundredth."""
    return [100 * r["curve"][round(100 * gamma)] for r in whole(records, column, method)]


def held_out(records: list[dict], column: str, method: str) -> list[float]:
    (companion,) = [
        r for r in records if (r["column"], r["method"]) == (column, method) and r["hold_out"]
    ]
    return at(records, column, method, companion["held_out"]["rescale"]["gamma"])


def published(method: str, table: str = "table1") -> dict[str, float]:
    rows = {row["method"]: row["published"] for row in tables()[table]["rows"]}
    return dict(zip(tables()[table]["columns"], rows[method], strict=True))


def near(ours: dict[str, list[float]], theirs: dict[str, float]) -> str:
    close = [round(abs(mean(errors) - theirs[c]), 2) <= 1 for c, errors in ours.items()]
    return f"{sum(close)} of {len(close)}"


def test_the_headline_counts_columns_within_a_point(records, said):
    plain = {c: at(records, c, "baseline", 0.0) for c in COLUMNS}
    scaled = {c: held_out(records, c, "baseline") for c in COLUMNS}
    wvn = {c: held_out(records, c, "wvn") for c in COLUMNS}
    rs, both = near(scaled, published("baseline+rs")), near(wvn, published("wvn+rs"))
    assert (
        f"in {near(plain, published('baseline'))} imbalanced columns of Table 1" in said["headline"]
    )
    assert f"Baseline+RS in {rs}, its gamma chosen on training images" in said["headline"]
    ahead = sum(mean(wvn[c]) < mean(scaled[c]) for c in COLUMNS)
    assert (
        f"within a point in {both} columns, and ahead of Baseline+RS in {ahead} of 10"
        in (said["headline"])
    )
    assert len(said["headline"].splitlines()) == 5
    assert f"| WVN+RS, gamma from a hold-out | {both} |" in said["distances"]
    assert f"| Baseline+RS, gamma from a hold-out | {rs} |" in said["distances"]


def test_the_distances_of_a_row_are_its_errors_minus_the_published_ones(records, said):
    theirs = published("baseline+rs")
    for gamma, title in ((0.5, "0.5, of the released script"), (0.1, "0.1, the released default")):
        off = {c: mean(at(records, c, "baseline", gamma)) - theirs[c] for c in COLUMNS}
        farthest = max(off.values(), key=abs)
        row = next(
            line for line in said["distances"].splitlines() if f"Baseline+RS, gamma {title}" in line
        )
        assert f"| {mean(off.values()):+.2f} | {farthest:+.2f} (" in row


def test_the_spread_is_the_largest_of_any_cell(records, said):
    alone = [stdev(at(records, c, m, 0.0)) for c in COLUMNS for m in ("baseline", "wvn")]
    assert f"up to {max(alone):.1f} points for Baseline and WVN alone" in said["spread"]
    after = [stdev(held_out(records, c, m)) for c in COLUMNS for m in ("baseline", "wvn")]
    after += [
        stdev(at(records, c, m, gamma))
        for c in COLUMNS
        for m in ("baseline", "wvn")
        for gamma in (0.1, 0.5)
    ]
    assert f"and up to {max(after):.1f} after RS" in said["spread"]


def test_copied_rows_and_their_control(records, said):
    trained = {(r["column"], r["method"]) for r in records}
    theirs = tables()["table2-sources"]["columns"]
    for method, title in (("class-balanced", "CB SM: class-balanced softmax, not focal"),
                          ("ldam-drw", "LDAM-DRW")):  # fmt: skip
        count = sum((column, method) in trained for column in theirs)
        assert f"Table 4, {title} | {count} of 4 columns |" in said["copied"]
    control = {
        "cifar10:100": 29.64,
        "cifar10:10": 13.61,
        "cifar100:100": 61.68,
        "cifar100:10": 44.30,
    }
    off = [mean(at(records, f"cao2019-init/{c}", "baseline", 0.0)) - e for c, e in control.items()]
    words = "{:+.1f}, {:+.1f}, {:+.1f} and {:+.1f} with their images and initial weights".format(
        *off
    )
    assert words in said["sources-text"]
    ldam = {c: at(records, f"cao2019/{c}", "ldam-drw", 0.0) for c in COLUMNS}
    assert f"LDAM-DRW in {near(ldam, published('ldam'))}" in said["headline"]


def test_more_steps_win_back_less_than_half_of_what_under_sampling_loses(records):
    for column in tables()["readings"]["columns"]:
        plain = mean(at(records, column, "baseline", 0.0))
        (short,) = at(records, column, "under-sample-once", 0.0)
        (long,) = at(records, column, "under-sample-long", 0.0)
        assert 0 < short - long < (short - plain) / 2
    assert "less than half" in METHODS["under-sample"].card


def test_cells_of_heads_without_a_hold_out_are_empty_and_it_is_said(said):
    rows = [line for line in said["heads"].splitlines() if line.startswith("| CIFAR")]
    lacking = [row for row in rows if row.endswith("|  |  |  |")]
    assert lacking == [row for row in rows if "a tenth held out" not in row] != []
    assert (
        "empty where a network was trained on all images, and has no hold-out"
        in (said["heads-text"])
    )


def test_what_is_said_of_table_2(records, said):
    theirs = dict(
        zip(tables()["table2-sources"]["columns"], tables()["table2"]["columns"], strict=True)
    )
    plain, scaled = published("baseline", "table2"), published("baseline+rs", "table2")
    words = "{:+.1f}, {:+.1f}, {:+.1f} and {:+.1f} points from"
    off = [mean(at(records, c, "baseline", 0.0)) - plain[of][0] for c, of in theirs.items()]
    assert words.format(*off) + " the published errors" in said["table2-text"]
    off = [mean(at(records, c, "baseline", 0.1)) - scaled[of][0] for c, of in theirs.items()]
    assert words.format(*off) + " its row" in said["table2-text"]
    step = "tiny-imagenet:step:100"
    (wvn,) = whole(records, step, "wvn")
    assert (
        f"WVN has {100 * wvn['match_prior']['error']:.2f} so, {100 * wvn['error']:.2f} alone"
        in (said["table2-text"])
    )
    assert max(wvn["recall"][100:]) == 0
    ahead = [
        100 * (whole(records, c, "wvn")[0]["best_on_test"]["error"]
               - whole(records, c, "baseline")[0]["best_on_test"]["error"])
        for c in tables()["table2"]["columns"]
    ]  # fmt: skip
    assert (
        "{:+.1f}, {:+.1f}, {:+.1f} and {:+.1f} points, ahead in".format(*ahead)
        in (said["table2-text"])
    )


def test_what_the_authors_code_gives_is_said(said):
    authors = read("authors")
    runs = authors["runs"]
    columns = list(dict.fromkeys(run["column"] for run in runs))
    assert columns == ["cifar10:100", "cifar100:100", "cifar10:10"]
    lowest, behind = [], []
    for column in columns:
        rs = {
            (m, w): [
                r["RS"] for r in runs if (r["column"], r["method"], r["which"]) == (column, m, w)
            ]
            for m in ("wvn", "baseline")
            for w in ("last", "model_best")
        }
        lowest.append(min(rs["wvn", "last"] + rs["wvn", "model_best"]))
        behind.append(mean(rs["wvn", "last"]) - mean(rs["baseline", "last"]))
        assert lowest[-1] > published("wvn+rs")[column]
    assert min(behind) > 0
    words = "its lowest errors, after the last epoch or the one that is best on test and at the best gamma"
    assert f"in none of 3: {words}" in said["authors"]
    assert (
        "are {:.2f}, {:.2f} and {:.2f}, where 20.17, 55.50 and 10.71".format(*lowest)
        in (said["authors"])
    )
    assert "in all 3 (by {:+.1f}, {:+.1f} and {:+.1f} points)".format(*behind) in said["authors"]
    turned = {**authors, "runs": [run | {"RS": run["RS"] / 2} for run in runs]}
    assert "in all 3: its lowest errors" in authors_verdict(turned)


def test_one_setting_has_one_number(records, said):
    precision = [
        run["RS"]
        for run in read("precision")["runs"]
        if (run["method"], run["precision"]) == ("wvn", "bfloat16")
    ]
    (epochs,) = [run for run in read("epochs") if (run["method"], run["ratio"]) == ("wvn", 100.0)]
    pooled = [100 * r["best_on_test"]["error"] for r in whole(records, "cifar10:100", "wvn")]
    pooled += [*precision, 100 * epochs["epochs"][-1]["rescale"]["error"]]
    text = f"WVN+RS: **{mean(pooled):.2f} ± {stdev(pooled):.2f}** over {len(pooled)} networks"
    assert text in said["pooled"]


def test_precisions_are_compared_by_pairs_of_one_seed(said):
    of = {
        name: {
            run["seed"]: run["RS"]
            for run in read("precision")["runs"]
            if (run["method"], run["precision"]) == ("wvn", name)
        }
        for name in ("bfloat16", "float32")
    }
    apart = np.array([of["bfloat16"][seed] - of["float32"][seed] for seed in range(8)])
    text = f"{apart.mean():+.2f} ± {apart.std(ddof=1) / 8**0.5:.2f}"
    row = next(
        line for line in said["precision"].splitlines() if "WVN, bfloat16 minus float32" in line
    )
    assert row.split(" | ")[2] == text


def test_the_epoch_that_is_best_on_test_does_not_explain_the_row(said):
    lines = said["epochs-text"].splitlines()
    theirs = [
        run["RS"]
        for run in read("authors")["runs"]
        if (run["column"], run["method"], run["which"]) == ("cifar10:100", "wvn", "model_best")
    ]
    (wvn,) = [run for run in read("epochs") if (run["method"], run["ratio"]) == ("wvn", 100.0)]
    best = min(wvn["epochs"], key=lambda row: row["error"])
    assert f"ours have {100 * best['rescale']['error']:.2f} and" in lines[0]
    assert "those of the authors' code {:.2f}, {:.2f} and {:.2f}.".format(*theirs) in lines[0]
    assert "1 of 5 networks reach it" in lines[0]
    assert "none of 4 networks reach it" in lines[1]
    assert all("That reading does not explain the row" in line for line in lines)


def test_readings_of_sampling(records, said):
    theirs = published("under-sample")
    columns = tables()["readings"]["columns"]
    off = [mean(at(records, c, "under-sample-once", 0.0)) - theirs[c] for c in columns]
    words = "{:+.1f}, {:+.1f}, {:+.1f} and {:+.1f} points from".format(*off)
    assert f"Under-sample, drawn once: {words}" in said["readings-text"]
    trained = sum(bool(whole(records, c, "under-sample-once")) for c in COLUMNS)
    assert f"Under-sample, drawn once in {trained} of 10;" in said["table1-text"]


def test_the_frontier(records, said):
    for data, title in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100")):
        column = f"frontier/{data}:100"
        (held,) = [
            r
            for r in records
            if (r["column"], r["method"]) == (column, "baseline") and r["hold_out"]
        ]
        strength = held["held_out"]["shift"]["gamma"]  # curves of a shift have a point every 0.04
        runs = whole(records, column, "baseline")
        shifted = mean(100 * r["shift"]["curve"][round(strength / 0.04)] for r in runs)
        plain = mean(100 * r["error"] for r in runs)
        assert f"from {plain:.2f} to {shifted:.2f} on {title} at ratio 100" in said["frontier-text"]
    long = whole(records, "frontier-long/cifar100:100", "baseline")
    assert f"on CIFAR-100 at ratio 100 ({len(long)} networks)" in said["frontier-long-text"]


def test_past_the_frontier(said):
    runs = {(r["data"], r["method"], r["weight_decay"]): r["tried"] for r in read("past_frontier")}
    for data, title in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100")):
        tried = {
            (row["weights"], row["views"]): 100 * row["shift"]["match_prior"]["error"]
            for row in runs[data, "baseline", 5e-4]
            if row["statistics"] == "as trained"
        }
        quarter = "mean of the last quarter"
        errors = [tried["last", 1], tried[quarter, 1], tried[quarter, 2]]
        assert all(later < earlier for earlier, later in pairwise(errors))
        assert (
            "on {} from {:.2f} to {:.2f}, and to {:.2f} with".format(title, *errors)
            in (said["past-frontier-text"])
        )


def test_a_stronger_recipe(records, said):
    column = "strong/cifar10:100"
    errors = [
        f"{mean(e):.2f} ± {stdev(e):.2f}"
        for c in (column, "cifar10:100")
        for e in (at(records, c, "baseline", 0.0), held_out(records, c, "baseline"))
    ]
    assert (
        "an error of {}, and {} with RS and the hold-out's gamma ({} and {} under".format(*errors)
        in (said["strong-text"])
    )


def test_fewer_networks_after_the_shift_are_said(records, said):
    parts = []
    for column in tables()["strong"]["columns"]:
        runs = [run for method in ("baseline", "wvn") for run in whole(records, column, method)]
        shifted = sum("shift" in run for run in runs)
        if shifted < len(runs):
            data, ratio = column.removeprefix("strong/").split(":")
            title = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}[data]
            parts.append(f"{title} at ratio {ratio} ({shifted} of {len(runs)})")
    assert len(parts) == 3
    *others, last = parts
    assert f"than those above them on {', '.join(others)} and {last}: the" in said["strong-text"]
    newer = [record for record in records if "shift" in record]
    assert "Rows after the shift" not in strong_text(newer)


def test_rounding(said):
    runs = [
        r for r in read("rounding")["runs"] if r["stacked with, first time"] != r["second time"]
    ]
    by = [abs(first - second) for first, second in (run["error, %"] for run in runs)]
    assert f"by {mean(by):.1f} points in the mean of {len(by)} networks" in said["rounding"]
    assert f"by {max(by):.1f} at most" in said["rounding"]


def test_what_the_docs_advise_about_wvn_was_measured(records):
    advice = " ".join((DOCS / "training.md").read_text(encoding="utf-8").split())
    apart = {}
    for method in ("wvn", "baseline"):
        held = [
            r["held_out"]
            for r in records
            if r["column"] in COLUMNS and r["method"] == method and r["hold_out"]
        ]
        apart[method] = [100 * (h["rescale"]["error"] - h["shift"]["error"]) for h in held]
    wvn, plain = apart["wvn"], apart["baseline"]
    ahead = f"in {sum(gain > 0 for gain in wvn)} of {len(wvn)} columns of CIFAR, by {mean(wvn):.1f} points on average"
    level = f"on plain heads the two are level (RS ahead by {-mean(plain):.1f} points)"
    assert f"{ahead}; {level}" in advice
    lost = []
    for method in ("wvn", "baseline"):
        runs = [run for c in COLUMNS for run in whole(records, c, method)]
        errors = [(r["match_prior"]["error"], r["best_on_test"]["error"]) for r in runs]
        lost.append(100 * mean(matched - best for matched, best in errors))
    assert "lands {:.1f} points above the best error on average, {:.1f} on a plain head".format(
        *lost
    ) in (advice)


def test_the_readme_has_a_strength_that_no_test_image_chose(records):
    measured = snapshots.measure(RESULTS)
    assert measured == read("snapshots")
    after = held_out(records, "cifar10:100", "baseline")
    assert f"{mean(after):.1f} ± {stdev(after):.1f} % after" in snapshots.sentence(measured)
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert f"-->\n{snapshots.sentence(measured)}\n<!-- end" in readme
