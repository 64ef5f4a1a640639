"""Claims about tables and the error over gamma, on records for which each is true, half true and false."""

import pytest

from levelhead_lab.paper import gamma_claims, table_claims
from levelhead_lab.paper.tables import readings_of_table2, tables

from .made import EACH, made, verdicts


def test_under_sampling_degrades_and_re_weighting_does_not_help():
    def rows(under: float, weighted: float) -> list[dict]:
        return [
            made(),
            made(method="under-sample", error=under),
            made(method="re-weighting", error=weighted),
        ]

    claim = table_claims.balancing_the_data_does_not_help
    assert verdicts(claim, rows(0.5, 0.3), rows(0.5, 0.2), rows(0.32, 0.3)) == EACH
    assert claim([made(), made(method="under-sample")]) is None
    assert (
        "Under-sample +20.00 to +20.00, Re-weighting -10.00 to -10.00" in claim(rows(0.5, 0.2)).seen
    )


def test_wvn_on_balanced_data():
    def pairs(change: float) -> list[dict]:
        errors = {"baseline": 0.3, "wvn": 0.3 + change}
        return [
            made(f"{data}:1", m, error=e)
            for data in ("cifar10", "cifar100")
            for m, e in errors.items()
        ]

    claim = table_claims.wvn_matters_little_on_balanced_data
    assert verdicts(claim, pairs(0.005), pairs(-0.015), pairs(0.03)) == EACH
    assert claim(pairs(0.005)[:2]) is None


def test_rs_beats_the_losses():
    ours = [made(best=0.2), made(gamma=0.5)]
    losses = [
        made(method=method, error=error)
        for method, error in zip(table_claims.LOSSES, (0.25, 0.24, 0.22, 0.23, 0.21), strict=True)
    ]
    ahead = [made(method=method, error=0.15) for method in table_claims.LOSSES]
    cases = ([*ours, *losses], [*ours, *losses[:3], *ahead[3:]], [*ours, *ahead])
    assert verdicts(table_claims.rs_beats_the_losses, *cases) == EACH
    assert table_claims.rs_beats_the_losses(cases[0]).number == pytest.approx(1.0)
    assert (
        table_claims.rs_beats_the_losses([*ours, *losses[:-1]]) is None
    )  # one of the rows is not there yet


def test_wvn_with_rs_is_the_best():
    def case(column: str, wvn: float, loss: float = 0.25) -> list[dict]:
        return [
            made(column, best=0.2),
            made(column, gamma=0.5),
            made(column, "wvn", best=wvn),
            made(column, "wvn", gamma=0.5),
            made(column, "ldam-drw", error=loss),
        ]

    tiny = "tiny-imagenet:step:10"
    better = case("cifar10:100", 0.19)
    assert (
        verdicts(
            table_claims.wvn_with_rs_is_the_best,
            better,
            [*better, *case(tiny, 0.21)],
            [*case("cifar10:100", 0.21), *case(tiny, 0.22)],
        )
        == EACH
    )
    assert verdicts(table_claims.wvn_with_rs_is_the_best, case(tiny, 0.19, loss=0.18)) == [
        "not reproduced"
    ]  # another leads
    assert table_claims.wvn_with_rs_is_the_best(
        [*better, *case(tiny, 0.21)]
    ).number == pytest.approx(0)
    assert (
        "in 1 of 1 columns of Table 1, gamma from a hold-out (by +1.00 points)"
        in table_claims.wvn_with_rs_is_the_best(better).seen
    )
    assert (
        table_claims.wvn_with_rs_is_the_best([*better[:2], *better[3:]]) is None
    )  # none of WVN on the whole training set


@pytest.mark.parametrize(
    ("prefix", "method"),
    [
        ("cao2019/", "ldam-drw"),
        ("cui2019-sigmoid/", "cui-focal-1-0.9999"),
        ("kim2020-batch/", "re-weighting"),
    ],
)
def test_wvn_with_rs_has_to_beat_rows_of_table_1_by_other_recipes_too(prefix, method):
    column = "cifar10:100"
    wvn = [made(best=0.2), made(gamma=0.5)]
    wvn += [made(method="wvn", best=0.19), made(method="wvn", gamma=0.5)]
    claim = table_claims.wvn_with_rs_is_the_best
    assert "of all rows in 1" in claim(wvn).seen
    for error, leads in ((0.18, 0), (0.22, 1)):
        rival = {**made(column, method, error=error), "column": f"{prefix}{column}"}
        assert f"of all rows in {leads}" in claim([*wvn, rival]).seen


def test_rs_is_remarkable_on_tiny_imagenet():
    theirs = tables()["table2-sources"]["columns"]

    def case(columns: list[str], *errors: float, loss: float | None = None) -> list[dict]:
        """The baseline's error of each column, which RS at 0.1 takes to 22.56 %, and that of a loss."""
        records = []
        for column, error in zip(columns, errors, strict=True):
            of = "tiny-imagenet:" + column.partition(":")[2]
            records.append({**made(of, error=error, best=0.2), "column": column})
            if loss is not None:
                records.append({**made(of, "ldam-drw", error=loss), "column": column})
        return records

    claim = table_claims.rs_is_remarkable_on_tiny_imagenet
    good = case(theirs, 0.25, 0.26, 0.27, 0.28)
    cases = good, case(theirs, 0.22, 0.26, 0.27, 0.28), case(theirs, 0.22, 0.23, 0.22, 0.23)
    assert verdicts(claim, *cases) == EACH
    assert "gains 2.44, 3.44, 4.44, 5.44 points on the baseline; no other row" in claim(good).seen
    assert "by the recipe of Cao et al." in claim(good).seen
    behind = case(theirs, 0.25, 0.26, 0.27, 0.28, loss=0.2)
    assert claim(behind).outcome == "partly"
    assert "ahead of the other rows in 0 of 4" in claim(behind).seen
    for reading in readings_of_table2():  # the same row by another reading of its recipe
        column, method = reading.places[1]
        read_otherwise = {**made("tiny-imagenet:long-tail:10", method, error=0.2), "column": column}
        assert "ahead of the other rows in 0 of 1" in claim([*good, read_otherwise]).seen
    ours = case(tables()["table2"]["columns"], 0.25, 0.26, 0.27, 0.28)
    assert "by our recipe" in claim([*ours, *good[:3]]).seen  # not all of theirs are trained
    assert claim([]) is None


def test_the_plain_oracle_is_better_and_wvn_comes_nearer_to_its_own():
    def case(*oracles: tuple[float, float]) -> list[dict]:
        return [
            made(column, method, oracle=oracle, gamma=gamma)
            for column, pair in zip(("cifar10:100", "cifar10:10"), oracles, strict=False)
            for method, oracle in zip(("baseline", "wvn"), pair, strict=True)
            for gamma in (None, 0.5)
        ]

    cases = case((0.1, 0.12)), case((0.1, 0.12), (0.1, 0.08)), case((0.1, 0.08))
    assert verdicts(table_claims.the_plain_oracle_is_better, *cases) == EACH
    assert verdicts(table_claims.wvn_comes_nearer_to_its_oracle, *cases) == EACH
    assert "by 2.00 points" in table_claims.the_plain_oracle_is_better(cases[0]).seen
    left = table_claims.wvn_comes_nearer_to_its_oracle(cases[0]).seen
    assert "8.00 points are left, 10.00 without WVN" in left
    assert (
        table_claims.the_plain_oracle_is_better([made()])
        is table_claims.wvn_comes_nearer_to_its_oracle([made()])
        is None
    )


def test_wvn_flattens_the_curve():
    narrow, other = made(width=0.3), made("cifar10:10", width=0.3)
    wide, slim = made(method="wvn", width=0.8), made("cifar10:10", "wvn", width=0.28)
    assert (
        verdicts(
            gamma_claims.wvn_flattens_the_curve,
            [narrow, wide],
            [narrow, wide, other, slim],
            [other, slim],
        )
        == EACH
    )
    assert verdicts(
        gamma_claims.wvn_flattens_the_curve, [narrow, made(method="wvn", width=0.4)]
    ) == ["partly"]  # not by half
    assert gamma_claims.wvn_flattens_the_curve([narrow, wide]).number == pytest.approx(
        0.8 / 0.3, rel=0.1
    )
    assert gamma_claims.wvn_flattens_the_curve([narrow]) is None


def test_cifar100_is_more_sensitive():
    def case(*widths: float) -> list[dict]:
        of = zip(("200", "100", "50", "20", "10"), widths, strict=True)
        return [
            made(f"{data}:{ratio}", width=w)
            for ratio, x in of
            for data, w in (("cifar10", 0.5), ("cifar100", x))
        ]

    cases = (
        case(0.2, 0.2, 0.2, 0.2, 0.2),
        case(0.8, 0.2, 0.2, 0.2, 0.2),
        case(0.8, 0.8, 0.2, 0.2, 0.2),
    )
    assert verdicts(gamma_claims.cifar100_is_more_sensitive, *cases) == EACH
    assert "in 3 of 5 pairs" in gamma_claims.cifar100_is_more_sensitive(cases[2]).seen
    assert gamma_claims.cifar100_is_more_sensitive([made()]) is None


def test_every_gamma_helps():
    def case(error: float) -> list[dict]:
        return [
            made(error=error),
            made(method="wvn", best=0.2, middle=0.5, width=0.4),
        ]  # 0.2 to 0.2625

    assert verdicts(gamma_claims.every_gamma_helps, case(0.27), case(0.25), case(0.21)) == EACH
    assert (
        "are better: WVN+RS 100% to 100%, Baseline+RS"
        in gamma_claims.every_gamma_helps(case(0.27)).seen
    )
    assert "varies by 6.2 to 6.2 points" in gamma_claims.every_gamma_helps(case(0.27)).seen
    assert gamma_claims.every_gamma_helps([made()]) is None
