"""Claims that whole networks decide, on networks for which each is true, half true and false."""

import numpy as np
import pytest

from levelhead import Head
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.paper import (
    network_claims,
)

from .made import EACH, verdicts


def head_of_three(*norms: float, features=(1.0, 1.0, 1.0), counts=(90, 30, 10)) -> Snapshot:
    """Three classes at right angles; the training and test features of a class are so many times its direction."""
    labels = np.arange(3).repeat(2)
    x = np.eye(3)[labels] * np.array(features)[labels, None]
    return Snapshot(
        Head(np.diag(np.array(norms, float))),
        np.array(counts),
        {"train": x, "test": x},
        {"train": labels, "test": labels},
    )


def test_volumes_follow_frequency():
    plain, level = head_of_three(3.0, 2.0, 1.0), head_of_three(1.0, 1.0, 1.0)
    findings = [
        network_claims.volumes_follow_frequency(*pair)
        for pair in ((plain, level), (plain, plain), (head_of_three(1.0, 2.0, 3.0), level))
    ]
    assert [finding.outcome for finding in findings] == EACH
    assert "WVN, non-negative directions 33% to 33%" in findings[0].seen


def test_losses_follow_frequency():
    cases = head_of_three(3, 2, 1), head_of_three(3, 1, 2), head_of_three(1, 2, 3)
    findings = [network_claims.losses_follow_frequency(network) for network in cases]
    assert [finding.outcome for finding in findings] == EACH
    assert findings[0].seen == "rank correlation 1.00; of the test loss 1.00"


def test_own_norms_are_pulled_up():
    assert network_claims.own_norms_are_pulled_up(head_of_three(1, 1, 1)).outcome == "reproduced"
    away = network_claims.own_norms_are_pulled_up(head_of_three(1, 1, 1, features=(1.0, 1.0, -1.0)))
    assert away.outcome == "not reproduced"
    assert away.number == pytest.approx(2 / 3)
    assert "negative for 2 of 3 classes" in away.seen


def two_features(*norms: float) -> dict:
    """Networks of two classes at a right angle, the frequent class of norm 1, the rare one of the norm given."""

    def weights(*lengths):
        return [[[1.0, 0.0], [0.0, length]] for length in lengths]

    return {
        "counts": [90, 10],
        "baseline": {"weights": weights(*norms)},
        "wvn": {"weights": weights(1.0)},
    }


def test_boundary_leans_toward_the_rarer_class():
    cases = two_features(0.5, 0.5), two_features(0.5, 2.0), two_features(2.0, 2.0)
    assert verdicts(network_claims.boundary_leans, *cases) == EACH
    assert (
        "27 degrees from its weight vector, 63 from"
        in network_claims.boundary_leans(two_features(0.5)).seen
    )


def snapshot(*angles: float, recall: tuple[float, float] = (1.0, 1.0)) -> Snapshot:
    """Two classes whose test centers are turned by so many degrees from the training ones, and their recall."""
    base = np.radians([0.0, 90.0])
    turned = base + np.radians([angles[0], -angles[1]])
    test = np.concatenate(
        [
            np.where(np.arange(100) < 100 * share, angle, other)
            for share, angle, other in zip(recall, turned, turned[::-1], strict=True)
        ]
    )
    train = np.repeat(base, 4) + np.tile([-0.02, 0.02], 4)
    features = {
        name: np.stack([np.cos(x), np.sin(x)], axis=1)
        for name, x in (("train", train), ("test", test))
    }
    labels = {"train": np.repeat([0, 1], 4), "test": np.repeat([0, 1], 100)}
    return Snapshot(Head(np.eye(2)), np.array([90, 10]), features, labels)


def test_the_rare_class_is_scattered():
    assert (
        verdicts(
            network_claims.rare_class_is_scattered, snapshot(5, 20), snapshot(5, 8), snapshot(20, 5)
        )
        == EACH
    )
    assert network_claims.rare_class_is_scattered(snapshot(5, 20)).number == pytest.approx(
        4, rel=1e-3
    )


def test_frequent_classes_have_low_precision():
    def case(*lost: float) -> Snapshot:
        """Three classes of ten test samples, of which so many tenths are taken for the next more frequent class."""
        labels = np.arange(3).repeat(10)
        taken = labels.copy()
        for k, share in enumerate(lost):
            taken[10 * k : 10 * k + round(10 * share)] = max(k - 1, 0)
        return Snapshot(
            Head(np.eye(3)), np.array([90, 30, 10]), {"test": np.eye(3)[taken]}, {"test": labels}
        )

    finding = network_claims.frequent_classes_have_low_precision(case(0.0, 0.3, 0.1))
    assert finding.outcome == "reproduced"  # 10 of 13, 7 of 8 and 9 of 9 are right
    assert "most frequent classes 77%, of the 1 rarest 100%" in finding.seen
    level = network_claims.frequent_classes_have_low_precision(case(0.0, 0.0, 0.0))
    assert level.outcome == "not reproduced"


def test_rare_classes_gain_without_a_loss_of_frequent_ones():
    before = snapshot(0, 0, recall=(0.9, 0.4))
    after = [snapshot(0, 0, recall=pair) for pair in ((0.9, 0.8), (0.7, 0.8), (0.9, 0.3))]
    findings = [network_claims.rare_classes_gain(before, network, 0.0) for network in after]
    assert [finding.outcome for finding in findings] == EACH
    assert findings[0].number == pytest.approx(40)
