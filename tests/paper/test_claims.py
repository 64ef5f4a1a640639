"""Claims about norms and features, each judged on records for which it is true, half true and false."""

import numpy as np
import pytest

from levelhead_lab.paper import (
    all_claims,
    claims,
    feature_claims,
    norm_claims,
    table_claims,
)
from levelhead_lab.paper.claims import Finding
from levelhead_lab.paper.page import claims_table
from levelhead_lab.paper.tables import table1_columns

from .made import EACH, made, shuffled, verdicts


def test_norm_follows_frequency():
    outcomes = verdicts(
        norm_claims.norm_follows_frequency,
        [made()],
        shuffled([made("cifar100:100")], 0.6, "norms"),
        [made(power=-0.1)],
    )
    assert outcomes == EACH
    assert norm_claims.norm_follows_frequency([made()]).number == 1
    assert norm_claims.norm_follows_frequency([made(power=-0.1)]).number == -1


def test_only_the_baseline_on_whole_imbalanced_training_sets_counts():
    others = [
        made(method="wvn", power=-0.1),
        made(gamma=0.4, power=-0.1),
        made("cifar10:1"),
        made("tiny-imagenet:step:10"),
    ]
    assert norm_claims.norm_follows_frequency(others) is None
    assert norm_claims.norm_follows_frequency([*others, made()]).number == 1


def test_rare_test_clusters_are_wider_and_centers_drift_apart():
    for claim, key in (
        (feature_claims.rare_test_clusters_are_wider, "sigma_test"),
        (feature_claims.centers_drift_apart, "center_gap"),
    ):
        half = shuffled([made("cifar100:100")], 0.6, key, "geometry")
        assert verdicts(claim, [made()], half, [made(rarer=-0.2)]) == EACH


def test_balanced_data_show_the_effect_of_class_order_alone():
    record = made("cifar10:1")
    assert "balanced data" not in norm_claims.norm_follows_frequency([made()]).seen
    record["norms"] = list(range(10, 0, -1))
    assert norm_claims.norm_follows_frequency([made(), record]).seen.endswith(
        "relative to balanced data, which have 1.00"
    )
    assert norm_claims.norm_follows_frequency([made(), record]).number == 1


def test_each_class_is_compared_with_itself_on_balanced_data():
    balanced, record = made("cifar10:1"), made()
    by_themselves = [3, 1, 2, 1, 3, 1, 2, 1, 3, 1]  # what the classes are by themselves
    balanced["geometry"]["sigma_test"] = [None, *by_themselves[1:]]
    record["geometry"]["sigma_test"] = [
        a * (1 + 0.01 * i) for i, a in enumerate(by_themselves)
    ]  # a little wider, the rarer
    finding = feature_claims.rare_test_clusters_are_wider([record, balanced])
    assert finding.outcome == "not reproduced"  # judged by what the paper says
    assert "; 1.00 relative to balanced data" in finding.seen


def test_a_class_without_a_value_is_left_out():
    record = made()
    record["geometry"]["sigma_test"][0] = None
    assert feature_claims.rare_test_clusters_are_wider([record]).number == 1


def test_the_page_counts_every_outcome_and_names_what_was_not_judged():
    text = claims_table(all_claims.every_finding([made(power=-0.1)], {}, None))
    assert "| **not reproduced** |" in text
    assert text.startswith(
        "**Reproduced: 4 of 8.** **Partly: 1 of 8.** **Not reproduced: 3 of 8.**\n"
    )
    assert text.endswith(
        "rare class is scattered, frequent classes have low precision, rare classes gain."
    )
    assert claims_table(all_claims.every_finding([], {}, None)) == "No claim has its records yet."


def test_a_claim_is_judged_on_the_papers_own_setting_with_all_columns_beside():
    other = made("cifar100:100", rarer=-1.0)
    finding = claims.judged(feature_claims.centers_drift_apart, [made(), other])
    assert (finding.outcome, finding.number) == ("reproduced", 1)
    assert (
        finding.seen
        == "CIFAR-10, ratio 100: rank correlation 1.00; all columns: **not reproduced**"
    )
    assert "all columns" not in claims.judged(feature_claims.centers_drift_apart, [made()]).seen
    assert claims.judged(feature_claims.centers_drift_apart, [other]) is None
    every = claims.judged(
        norm_claims.norm_follows_frequency, [made(), other]
    )  # the paper does not say which set it is
    assert every == norm_claims.norm_follows_frequency([made(), other])


def test_rare_centers_are_far_apart():
    cases = [made(rarer=1.5)], [made(rarer=1.0)], [made(rarer=0.5)]  # 2 + 5 rarer log(100)
    assert verdicts(feature_claims.rare_centers_are_far_apart, *cases) == EACH
    assert (
        "25.0 degrees on CIFAR-10, ratio 100"
        in feature_claims.rare_centers_are_far_apart(cases[1]).seen
    )
    assert feature_claims.rare_centers_are_far_apart([made("cifar100:100")]) is None


def test_balanced_norms_are_uniform():
    def case(balanced: float) -> list[dict]:
        records = [made("cifar10:10", power=0.15), made("cifar10:1")]
        records[1]["norms"] = [1.0, 1.0 + balanced] * 5
        return records

    assert (
        verdicts(norm_claims.balanced_norms_are_uniform, case(0.05), case(0.2), case(0.8)) == EACH
    )
    spread = np.std([1.0, 1.05]) / 1.025
    seen = norm_claims.balanced_norms_are_uniform(case(0.05)).seen
    assert f"{spread:.1%} on CIFAR-10 (" in seen
    assert norm_claims.balanced_norms_are_uniform([made("cifar10:1")]) is None


def test_train_clusters_saturate():
    def case(*thirds: float) -> list[dict]:
        """Widths of the three most frequent classes, of the four in the middle, and of the three rarest."""
        record = made()
        record["geometry"]["sigma_train"] = np.repeat(thirds, [3, 4, 3]).tolist()
        return [record]

    cases = case(16.0, 15.0, 10.0), case(18.0, 15.0, 10.0), case(22.0, 15.0, 10.0)
    assert verdicts(feature_claims.train_clusters_saturate, *cases) == EACH
    assert "widen by 5.0 degrees" in feature_claims.train_clusters_saturate(cases[0]).seen
    assert feature_claims.train_clusters_saturate(cases[0]).number == pytest.approx(0.2)
    falling = case(16.0, 10.0, 15.0)
    assert feature_claims.train_clusters_saturate(falling).outcome == "not reproduced"
    assert feature_claims.train_clusters_saturate([made(geometry={})]) is None


def test_recall_follows_frequency():
    half = shuffled([made("cifar100:100")], 0.6, "recall")
    claim = feature_claims.recall_follows_frequency
    assert verdicts(claim, [made()], half, [made(rarer=-1.0)]) == EACH


def test_norms_align_late():
    late, always, never = made(early=-0.1), made(early=0.1), made(power=-0.1)
    assert verdicts(norm_claims.norms_align_late, [late], [always], [never]) == EACH
    assert (
        norm_claims.norms_align_late([made(norms_over_epochs={"epochs": [], "norms": []})]) is None
    )


def test_norms_part_with_ratio():
    def case(powers: dict[int, float], **more) -> list[dict]:
        return [made(f"cifar10:{ratio}", power=power, **more) for ratio, power in powers.items()]

    grows, flat = case({100: 0.15, 50: 0.15, 10: 0.15}), case({100: 0.02, 50: 0.06, 10: 0.2})
    wrong_ends = case({100: 0.15, 50: 0.15, 10: 0.15})
    wrong_ends[0]["norms"][:2] = wrong_ends[0]["norms"][1::-1]
    assert verdicts(norm_claims.norms_part_with_ratio, grows, wrong_ends, flat) == EACH
    assert norm_claims.norms_part_with_ratio(grows[:2]) is None


def test_step_norms_part():
    def case(spread: float, power: float = 0.2) -> list[dict]:
        rng = np.random.default_rng(0)
        records = [made(column, power=power) for column in norm_claims.STEP_COLUMNS]
        for record in records:
            record["norms"] = (np.array(record["norms"]) + spread * rng.normal(size=200)).tolist()
        return records

    assert (
        verdicts(norm_claims.step_norms_part, case(0.05), case(0.25), case(0.05, power=0.0)) == EACH
    )
    assert norm_claims.step_norms_part(case(0.05)[:1]) is None


def test_over_sampling_levels():
    def case(power: float) -> list[dict]:
        return [made(power=0.2), made(method="over-sample", power=power)]

    assert verdicts(norm_claims.over_sampling_levels, case(0.05), case(0.19), case(-0.3)) == EACH
    both = [*case(0.19), made(method="over-sample-largest", power=0.05)]  # this reading decides
    assert verdicts(norm_claims.over_sampling_levels, both) == ["reproduced"]


def test_every_finding_states_its_rule_and_every_column_is_imbalanced():
    columns = table1_columns(imbalanced=True)
    full = [
        made(c, m, gamma=gamma)
        for c in columns
        for m in ("baseline", "wvn")
        for gamma in (None, 0.4)
    ]
    full += [
        made(method=method) for method in (*table_claims.LOSSES, "over-sample", "under-sample")
    ]
    full += [made(column) for column in ("cifar10:1", "cifar100:1", *norm_claims.STEP_COLUMNS)]
    full += [made(column, "wvn") for column in ("cifar10:1", "cifar100:1")]
    for claim in all_claims.CLAIMS:
        finding = claim(full)
        assert isinstance(finding, Finding)
        assert "; partly: " in finding.rule
    assert len(columns) == 10
    assert not any(column.endswith(":1") for column in columns)
