"""The page of the reproduction has a place for every generated part, and its text states what was measured."""

import json
import re
from collections import Counter
from pathlib import Path
from statistics import mean, stdev

import pytest

from levelhead_lab.paper import page
from levelhead_lab.paper.beyond_tables import shift_cell
from levelhead_lab.paper.cells import PAPER_GAMMA, cell, companion, full_runs, load_records
from levelhead_lab.paper.figure_claims import CLAIMS
from levelhead_lab.paper.figures import collect_sources
from levelhead_lab.paper.tables import REPEATED, table1_columns, tables

from .made import made

HELD_AND_UNLABELLED = ("a hold-out", "unlabelled images")
TEMPLATE = Path(__file__).parents[2] / "docs" / "reproduction.md"
RECORDS = [
    made(),
    made(seed=1, error=0.32),
    made(gamma=0.4),
    made("cifar100:10", "wvn", error=0.45, best=0.43),
]


@pytest.fixture
def filled(tmp_path) -> str:
    (tmp_path / "results" / "records").mkdir(parents=True)
    for i, record in enumerate(RECORDS):
        (tmp_path / "results" / "records" / f"{i}.json").write_text(json.dumps(record))
    (tmp_path / "results" / "figures").mkdir()
    boundary = TEMPLATE.parents[1] / "results" / "figures" / "boundary.json"
    (tmp_path / "results" / "figures" / "boundary.json").write_bytes(boundary.read_bytes())
    text = tmp_path / "reproduction.md"
    text.write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    results = tmp_path / "results"
    sources = collect_sources(results, {}, load_records(results / "records"))
    page.write(results, text, tmp_path / "images", sources, say=lambda _: None)
    return text.read_text(encoding="utf-8")


def test_every_place_of_the_page_is_filled():
    marks = re.findall(r"^<!-- ([\w-]+) -->$", TEMPLATE.read_text(encoding="utf-8"), re.M)
    assert sorted(marks) == sorted(
        [*page.places(RECORDS), *page.MEASURED, "figures", "frontier-figure", "epochs-figure"]
    )


def test_tables_claims_figures_and_cost_stand_on_it(filled):
    assert "| Baseline | *35.67* | 31.00 ± 1.41, *29.71* |" in filled
    assert (
        "|  | CIFAR-10, CIFAR-100 | Tiny ImageNet |\n|---|---|---|\n| network | resnet32 | resnet18-64 |"
        in filled
    )
    assert "| epochs | 180 | 50, 28, 21, 20 |" in filled
    assert (
        "| CIFAR-10 | 3 | 540 | 0.07 | 3 |" in filled
    )  # 3 networks of 180 epochs in 90 s each, none with a hash
    assert "| all | 4 | 720 | 0.10 | 4 |" in filled
    assert "Trained on: a GPU; torch 2.13.0." in filled
    # judged: six of norms and clusters, the boundary; no column has both baseline and WVN, no network is given
    assert filled.count(" | **") == 7
    assert (
        len(re.findall(", ", filled.partition("records are missing: ")[2].partition("\n")[0]))
        == len(CLAIMS) + 6 - 8
    )
    assert "![The boundary between weight vectors (Figure 3)](images/boundary.png)" in filled
    assert "Not drawn: no record of tiny-imagenet:step:100:baseline." in filled
    assert "Not drawn: no network of the recipe frontier has a record." in filled
    assert "| LDMLR | 13.71 | 48.08 |" in filled
    assert "| PaCo | - | 48.0 |" in filled
    assert "LDAM on CIFAR-10 at ratio 1 is 9.13 in the paper" in filled


def test_a_network_of_another_recipe_costs_too_and_counts_for_no_claim():
    other = [{**made(power=-0.1), "column": "strong/cifar10:100"}]
    assert "| CIFAR-10 | 1 | 180 | 0.03 | 1 |" in page.places(other)["cost"]
    hashed = [{**other[0], "data_sha256": {"train": "0" * 64}}]
    assert "| CIFAR-10 | 1 | 180 | 0.03 | 0 |" in page.places(hashed)["cost"]
    assert page.places(other)["claims"] == "No claim has its records yet."


def test_the_frontier_table_waits_for_records_and_has_a_row_for_each_of_its_methods():
    assert page.places(RECORDS)["frontier"] == "No such network has a record yet."
    found = page.places([{**made(method="ldam-drw"), "column": "frontier/cifar10:100"}])["frontier"]
    assert re.search(r"^\| LDAM-DRW \| \d", found, re.M)
    lacking = ", 96 of 96 of the recipe frontier, 16 of 16 of the recipe frontier-long."
    assert page.places(RECORDS)["cost"].endswith(lacking)
    lacking = "4 of 32 of Table 2, 16 of 86 of the recipes of the sources, 2 of 16 of the recipe frontier-long."
    assert (
        f"Without a record, their cells empty or of fewer seeds: {lacking}"
        in TEMPLATE.read_text(encoding="utf-8")
    )


def test_no_cell_of_the_papers_tables_is_empty():
    found = page.places(load_records(TEMPLATE.parents[1] / "results" / "records"))
    for name, rows in (
        ("table1-cifar10", 14),
        ("table1-cifar100", 14),
        ("table2", 14),
        ("table3", 5),
    ):
        lines = [
            line for line in found[name].splitlines()[2:] if "recipe" not in line
        ]  # trained in some columns
        assert len(lines) == rows
        assert not [line for line in lines if "|  |" in line]


def test_rows_by_their_own_recipes_are_counted_as_the_records_have_them():
    said, records = words(TEMPLATE), load_records(TEMPLATE.parents[1] / "results" / "records")
    found = {
        (r["column"], r["method"]): r
        for r in records
        if r["column"].startswith(("cao2019", "cui2019"))
    }
    assert len([column for column, _ in found if "-i" not in column and "-64" not in column]) == 34
    control = {
        "cifar10:100": 29.64,
        "cifar10:10": 13.61,
        "cifar100:100": 61.68,
        "cifar100:10": 44.30,
    }
    below = "it is {:.1f}, {:.1f}, {:.1f} and {:.1f} points below"
    for recipe, title in (("cao2019", "recipe"), ("cao2019-init", "recipe and code")):
        runs = {
            c: [r["error"] for r in full_runs(records, f"{recipe}/{c}", "baseline")]
            for c in control
        }
        assert [len(each) for each in runs.values()] == [3] * 4
        off = {c: 100 * mean(runs[c]) - theirs for c, theirs in control.items()}
        assert below.format(*(-points for points in off.values())) in said
        near = sum(abs(points) <= 0.7 for points in off.values())
        assert f"| Cross entropy, {title} of Cao et al. | 0.7 | {near} of 4 |" in said
        assert f"| {max(off.values(), key=abs):+.2f} |" in said
    assert near == 4

    published = dict(
        zip(tables()["table1"]["columns"], tables()["table1"]["rows"][6]["published"], strict=True)
    )
    counted = []
    for of in (lambda r: r["error"], lambda r: min(r["error"], r["best_epoch"]["error"])):
        off = [
            100 * of(found[f"cao2019/{c}", "ldam-drw"]) - published[c]
            for c in table1_columns(imbalanced=True)
        ]
        counted.append(f"{sum(round(abs(points), 2) <= 1 for points in off)} of 10")
    assert f"| LDAM-DRW, recipe of Cao et al. | 1 | {' | '.join(counted)} |" in said
    seeds = [
        cell(records, c, method).errors
        for c in table1_columns(imbalanced=True)
        for method in REPEATED
    ]
    assert f"Baseline and WVN over seeds is up to {max(map(stdev, seeds)):.1f} points" in said
    assert page.places(RECORDS)["sources"] == "No such network has a record yet."


def test_over_sampling_does_not_improve_on_the_baseline_of_cifar10_as_published():
    records = load_records(TEMPLATE.parents[1] / "results" / "records")
    published = {row["method"]: row["published"] for row in tables()["table1"]["rows"]}
    assert all(
        over < plain
        for over, plain in zip(published["over-sample"][:5], published["baseline"][:5], strict=True)
    )
    for column in table1_columns("cifar10", imbalanced=True):
        assert cell(records, column, "over-sample").errors[0] > mean(
            cell(records, column, "baseline").errors
        )
    assert "in all five imbalanced columns of CIFAR-10 as published, and in none of ours" in words(
        TEMPLATE
    )


def test_what_the_page_says_of_the_frontier_was_measured():
    said, records = words(TEMPLATE), load_records(TEMPLATE.parents[1] / "results" / "records")

    def of(data: str) -> list[str]:
        column = f"frontier/{data}:100"
        shifted = [
            shift_cell(records, column, "baseline", f"gamma from {where}")
            for where in HELD_AND_UNLABELLED
        ]
        return [f"{mean(one.errors):.2f}" for one in (cell(records, column, "baseline"), *shifted)]

    ten, hundred = of("cifar10"), of("cifar100")
    assert (
        f"from {ten[0]} to {ten[1]} on CIFAR-10, and from {hundred[0]} to {hundred[1]} on CIFAR-100"
        in said
    )
    assert f"with the strength from unlabelled images to {ten[2]} and {hundred[2]}" in said
    assert float(ten[1]) <= 15.3  # without test data: the strength of a hold-out
    assert float(hundred[1]) <= 50
    behind = [
        mean(cell(records, f"frontier/{data}:100", "baseline", "gamma from a hold-out").errors)
        - float(shift)
        for data, shift in (("cifar10", ten[1]), ("cifar100", hundred[1]))
    ]
    assert "**The shift is ahead of RS** by {:.1f} and {:.1f} points".format(*behind) in said
    chosen = [
        companion(records, f"frontier/{data}:100", "baseline")["held_out"]
        for data in ("cifar10", "cifar100")
    ]
    assert [one["auto"]["rule"] for one in chosen] == ["shift", "rescale"]
    assert f"which costs {behind[1]:.1f} points" in said
    assert f"among the {chosen[1]['n']:,} held out" in said


def test_what_the_page_says_of_the_chosen_rule_was_measured():
    said, records = words(TEMPLATE), load_records(TEMPLATE.parents[1] / "results" / "records")
    columns, methods = tables()["frontier"]["columns"], tables()["frontier"]["methods"]
    held = [
        companion(records, column, method)["held_out"] for column in columns for method in methods
    ]
    rules = Counter(one["auto"]["rule"] for one in held)
    assert set(rules) == {"shift", "rescale", "vector"}
    assert (
        f"is the shift in {rules['shift']} of the {len(held)} companion runs, RS in {rules['rescale']} and vector "
        f"scaling in {rules['vector']}." in said
    )
    gain = {
        rule: 100 * mean(one[rule]["error"] - one["auto"]["error"] for one in held)
        for rule in ("rescale", "shift")
    }
    assert gain["rescale"] > 0 > gain["shift"]
    assert f"{gain['rescale']:.1f} points better on average than RS always" in said
    assert f"and {-gain['shift']:.1f} worse than the shift always" in said


def test_what_the_page_says_past_frontier_was_measured():
    said, results = words(TEMPLATE), TEMPLATE.parents[1] / "results"
    runs = json.loads((results / "past_frontier.json").read_text(encoding="utf-8"))
    records = load_records(results / "records")

    def shifted(data: str, method: str = "baseline", *variant: object) -> str:
        (run,) = [
            r for r in runs if (r["data"], r["method"], r["weight_decay"]) == (data, method, 5e-4)
        ]
        (row,) = [t for t in run["tried"] if (t["weights"], t["statistics"], t["views"]) == variant]
        return f"{100 * row['shift']['match_prior']['error']:.2f}"

    one, mean_ = ("last", "as trained", 1), ("mean of the last quarter", "as trained")
    ten, hundred = (
        [shifted(data, "baseline", *v) for v in (one, (*mean_, 1), (*mean_, 2))]
        for data in ("cifar10", "cifar100")
    )
    assert (
        f"goes from {ten[0]} to {ten[1]} on CIFAR-10 and from {hundred[0]} to {hundred[1]} on CIFAR-100"
        in said
    )
    assert f"takes these to {ten[2]} and {hundred[2]}" in said
    source = "gamma from unlabelled images"
    softmax, ldam = (
        [
            f"{mean(shift_cell(records, f'frontier/{data}:100', method, source).errors):.2f}"
            for data in ("cifar10", "cifar100")
        ]
        for method in ("balanced-softmax", "ldam-drw")
    )
    assert "stands at {} and {}".format(*softmax) in said
    assert "LDAM-DRW stays behind both: {} and {}".format(*ldam) in said


def test_what_the_page_says_of_readings_and_epochs_was_measured():
    said, results = words(TEMPLATE), TEMPLATE.parents[1] / "results"
    records, runs = (
        load_records(results / "records"),
        json.loads((results / "epochs.json").read_text(encoding="utf-8")),
    )
    published = {row["method"]: dict(zip(tables()["table1"]["columns"], row["published"], strict=True))
                 for row in tables()["table1"]["rows"]}  # fmt: skip
    columns = ("cifar100:100", "cifar10:100", "cifar100:10")

    def off(method: str, of: str, *columns: str) -> list[float]:
        return [
            cell(records, column, method).errors[0] - published[of][column] for column in columns
        ]

    once = [abs(points) for points in off("under-sample-once", "under-sample", *columns)]
    assert max(once[:2]) < 0.6
    assert f"and {once[2]:.1f} on CIFAR-100 at ratio 10" in said
    anew = [-points for points in off("under-sample", "under-sample", *columns)]
    assert "anew is {:.1f}, {:.1f} and {:.1f} points better".format(*anew) in said
    (above,) = off("under-sample-once", "under-sample", "cifar10:10")
    assert f"at ratio 10 drawing once is {above:.1f} points above" in said
    assert (
        "stays {:.1f} to {:.1f} points above".format(
            *off("over-sample-largest", "over-sample", *columns[:2])
        )
        in said
    )
    best = [
        cell(records, column, "over-sample-largest", "best epoch on test").errors[0]
        - published["over-sample"][column]
        for column in columns[:2]
    ]
    assert max(map(abs, best)) < 0.501
    assert "its best epoch on test is within 0.5 of both." in said
    assert (
        max(map(abs, off("over-sample-largest", "over-sample", "cifar10:10", "cifar100:10"))) < 0.4
    )
    assert "At ratio 10 its last epoch is within 0.4 points of both published numbers" in said
    (wvn,) = (run for run in runs if (run["method"], run["ratio"]) == ("wvn", 100))
    best = min(wvn["epochs"], key=lambda row: row["error"])
    assert best["epoch"] == 85
    assert f"that reading ({100 * best['rescale']['error']:.2f})" in said
    orders = [run for run in runs if run["ratio"] == 10 and run["method"] != "baseline"]
    least = min(100 * row["rescale"]["error"] for run in orders for row in run["epochs"])
    assert len(orders) == 2
    assert (
        f"no less than {least:.2f} at any epoch, and {published['wvn+rs']['cifar10:10']} is published"
        in said
    )


def words(path: Path) -> str:
    """Return a page's text without its line breaks."""
    return " ".join(path.read_text(encoding="utf-8").split())


def test_what_the_page_says_of_rounding_was_measured():
    said = words(TEMPLATE)
    found = json.loads(
        (TEMPLATE.parents[1] / "results" / "rounding.json").read_text(encoding="utf-8")
    )
    runs = [
        (*run["error, %"], run["stacked with, first time"] == run["second time"])
        for run in found["runs"]
    ]
    assert [run["all else in the record alike"] for run in found["runs"]] == [
        alike for *_, alike in runs
    ]
    by = [abs(first - second) for first, second, alike in runs if not alike]
    assert len(by) == 8
    mean, most = (
        f"by {sum(by) / 8:.1f} points in the mean of eight networks",
        f"by {max(by):.1f} at most",
    )
    assert f"{mean} of CIFAR-10 at ratio 200, {most}" in said


def test_without_a_record_it_says_so():
    empty = page.places([])
    assert empty["cost"] == "No network has a record yet."
    assert empty["claims"] == "No claim has its records yet."
    assert empty["beyond"] == "No such network has a record yet."


def test_what_the_page_says_of_table_2_was_measured():
    said = " ".join(TEMPLATE.read_text(encoding="utf-8").split())
    records = load_records(TEMPLATE.parents[1] / "results" / "records")
    table = tables()["table2"]

    def errors(method: str, reading: str, columns: list[str]) -> list[float]:
        return [mean(cell(records, column, method, reading).errors) for column in columns]

    plain = errors("baseline", "last epoch", table["columns"])
    above = [
        round(ours - theirs, 1)
        for ours, (theirs, _) in zip(plain, table["rows"][0]["published"], strict=True)
    ]
    assert (
        "By our recipe, a short one, it is {}, {}, {} and {} points above.".format(*above) in said
    )
    theirs = errors("baseline", "last epoch", tables()["table2-sources"]["columns"])
    off = [
        round(ours - it, 1)
        for ours, (it, _) in zip(theirs, table["rows"][0]["published"], strict=True)
    ]
    scaled = errors("baseline", PAPER_GAMMA, tables()["table2-sources"]["columns"])
    published = next(row["published"] for row in table["rows"] if row["title"] == "Baseline+RS")
    assert max(abs(ours - it) for ours, (it, _) in zip(scaled, published, strict=True)) < 1.5
    assert "RS at the paper's 0.1 is within 1.5 points of its row in every column" in said
    words = "it is {} and {} points below the published long-tailed errors, {} and {} above those of the steps"
    assert words.format(-off[0], -off[1], off[2], off[3]) in said

    best = "best gamma on test"
    ahead, elsewhere = (
        [
            a - b
            for a, b in zip(
                errors("baseline", best, columns), errors("wvn", best, columns), strict=True
            )
        ]
        for columns in (
            table["columns"],
            [c for c in table1_columns(imbalanced=True) if full_runs(records, c, "wvn")],
        )
    )
    assert (
        f"ahead of the plain network in every column, by {min(ahead):.1f} to {max(ahead):.1f} points"
        in said
    )
    assert "On CIFAR it is behind in all ten columns." in said
    assert sum(points < 0 for points in elsewhere) == len(elsewhere) == 10

    column = "tiny-imagenet:step:100"
    pairs = [
        (
            cell(records, column, method, "gamma from unlabelled images").text,
            cell(records, column, method).text,
        )
        for method in REPEATED
    ]
    assert (
        "{} where the network alone has {}, with WVN {} where it has {}.".format(
            *pairs[0], *pairs[1]
        )
        in said
    )
    assert all(
        max(full_runs(records, column, method)[0]["recall"][100:]) == 0 for method in REPEATED
    )
    assert not full_runs(
        records, column, "class-balanced"
    )  # "We have no such network on Tiny ImageNet yet"


def test_the_row_called_cb_focal_is_compared_with_no_focal_network():
    found = page.places(load_records(TEMPLATE.parents[1] / "results" / "records"))
    assert "| CB Focal | *72.72 / 52.62* | *51.58 / 28.91* |" in found["table2"]
    assert "| CB Focal, not the published row's loss | 79.06 / 56.96 |" in found["table2"]
    assert "| Table 2, CB Focal | Cao et al., Table 4, CB SM" in found["copied"]


def test_what_the_authors_code_gives_is_said():
    results = TEMPLATE.parents[1] / "results"
    said, authors = (
        words(TEMPLATE),
        json.loads((results / "authors.json").read_text(encoding="utf-8")),
    )
    last = {
        m: [r["RS"] for r in authors["runs"] if (r["method"], r["which"]) == (m, "last")]
        for m in REPEATED
    }
    wvn, plain = (f"{mean(last[method]):.2f}" for method in ("wvn", "baseline"))
    assert float(wvn) > float(plain)
    assert "The authors' released code does not put WVN+RS ahead either" in said
    assert (
        f"WVN+RS has {wvn} ± {stdev(last['wvn']):.2f} and Baseline+RS {plain}, where 20.17 and 21.36"
        in said
    )
    turned = {**authors, "runs": [r | {"RS": 50 - r["RS"]} for r in authors["runs"]]}
    assert "puts WVN+RS ahead of Baseline+RS" in page.MEASURED["authors"][1](turned)


def test_what_the_page_says_of_precision_was_measured():
    runs = json.loads(
        (TEMPLATE.parents[1] / "results" / "precision.json").read_text(encoding="utf-8")
    )["runs"]
    of = {
        name: [r for r in runs if (r["method"], r["precision"]) == ("wvn", name)]
        for name in ("bfloat16", "float32")
    }
    assert len(of["bfloat16"]) == len(of["float32"]) == 8
    for part in ("alone", "RS", "shift"):
        assert mean(r[part] for r in of["bfloat16"]) <= mean(r[part] for r in of["float32"])
    assert (
        "Eight seeds of WVN, with the same batches in each precision, have no higher error"
        in words(TEMPLATE)
    )


def test_what_the_page_says_of_the_stronger_recipe_was_measured():
    said = " ".join(TEMPLATE.read_text(encoding="utf-8").split())
    records, strong = load_records(TEMPLATE.parents[1] / "results" / "records"), tables()["strong"]
    held, best = "gamma from a hold-out", "best gamma on test"

    def error(column: str, method: str, reading: str) -> float:
        return mean(cell(records, column, method, reading).errors)

    first, known = strong["best_known"]["column"], strong["best_known"]["error"]
    ours = [
        f"{error(c, 'baseline', r):.2f}"
        for c in (first, "cifar10:100")
        for r in ("last epoch", held)
    ]
    assert "an error of {}, and {} with RS and the hold-out's gamma".format(*ours) in said
    assert "({} and {} under the paper's)".format(*ours[2:]) in said
    assert f"that we know of there is {known}." in said

    ahead = {
        c: error(c, "baseline", held) - error(c, "wvn", held)
        for c in strong["columns"]
        if companion(records, c, "wvn")
    }
    more, less = (
        [gain for gain in ahead.values() if gain > 0],
        [-gain for gain in ahead.values() if gain <= 0],
    )
    assert (
        f"ahead in {len(more)} of {len(ahead)} columns by {min(more):.1f} to {max(more):.1f} points, behind"
        in said
    )
    assert f"behind in the others by {min(less):.1f} to {max(less):.1f}." in said

    regret = {
        c: [error(c, method, held) - error(c, method, best) for method in REPEATED] for c in ahead
    }
    few = regret.pop("strong/cifar100:50")
    most = max(map(max, regret.values()))
    assert (
        f"costs at most {most:.1f} points against the best on test, but {few[0]:.1f} and {few[1]:.1f}"
        in said
    )


def test_what_the_docs_advise_about_wvn_was_measured():
    said = words(TEMPLATE.with_name("training.md"))
    records, columns = (
        load_records(TEMPLATE.parents[1] / "results" / "records"),
        table1_columns(imbalanced=True),
    )

    def rs_minus_shift(method: str) -> list[float]:
        held = [
            one["held_out"] for column in columns if (one := companion(records, column, method))
        ]
        return [100 * (one["rescale"]["error"] - one["shift"]["error"]) for one in held]

    def lost_without_labels(method: str) -> float:
        runs = [one for column in columns for one in full_runs(records, column, method)]
        return mean(
            100 * (one["match_prior"]["error"] - one["best_on_test"]["error"]) for one in runs
        )

    wvn, plain = rs_minus_shift("wvn"), rs_minus_shift("baseline")
    ahead = f"in {sum(gain > 0 for gain in wvn)} of {len(wvn)} columns of CIFAR, by {mean(wvn):.1f} points on average"
    assert (
        f"{ahead}; on plain heads the two are level (RS ahead by {-mean(plain):.1f} points)" in said
    )
    lost = [lost_without_labels(method) for method in ("wvn", "baseline")]
    assert (
        "lands {:.1f} points above the best error on average, {:.1f} on a plain head".format(*lost)
        in said
    )
