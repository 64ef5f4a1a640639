"""Models for the page's tests: logits of imbalanced classes, with hostile names."""

from __future__ import annotations

import numpy as np

from levelhead import Head, Snapshot
from levelhead.report import LabelSubject, Subject, of_labels, of_logits, of_snapshot

HOSTILE = [
    '</script><img src=x onerror="window.hacked=1">',
    "<b>bold</b>",
    "{{ 7 * 7 }}",
    "&lt;amp&gt;",
    "a'\"`${1}`b",
    "\u202egnp.exe",
    "<!-- open",
    "]]><svg onload=window.hacked=1>",
    "javascript:hacked",
    "plain",
]


def logits_of(
    counts: np.ndarray, each: int, seed: int = 0, noise: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of a model that favors frequent classes."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), each)
    logits = (
        5 + noise * rng.normal(size=(len(labels), len(counts))) + 2.5 * np.eye(len(counts))[labels]
    )
    return logits * (counts / counts.max()) ** 0.15, labels


def balanced_already(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of five classes, of a model that favors none."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(5, size=600)
    return rng.normal(size=(600, 5)) + 3 * np.eye(5)[labels], labels


def ten(**given) -> Subject:
    """Ten classes with hostile names; gamma chosen on these samples."""
    counts = np.array([900, 500, 300, 170, 100, 60, 30, 19, 10, 5])
    given = {
        "names": HOSTILE,
        "rule": "rescale",
        "bootstrap": 20,
        "title": "ten <i>classes</i>",
    } | given
    return of_logits(*logits_of(counts, 40), counts, **given)


def two(**given) -> Subject:
    counts = np.array([900, 45])
    given = {"bootstrap": 20, "rule": "rescale", "title": "two classes"} | given
    return of_logits(*logits_of(counts, 150, noise=2.0), counts, **given)


def tried(**given) -> Subject:
    """Ten classes, all rules tried."""
    return ten(**{"rule": "auto", "title": "every rule"} | given)


def several_labels() -> LabelSubject:
    """Four labels per sample, one with a hostile name."""
    rng = np.random.default_rng(0)
    labels = rng.random((500, 4)) < [0.5, 0.2, 0.06, 0.03]
    logits = 2.2 * labels - [0.8, 2.2, 3.4, 4.0] + rng.normal(size=(500, 4))
    return of_labels(
        logits, labels, names=[*HOSTILE[:3], "kite"], bootstrap=50, title="four labels"
    )


def thousand(each: int = 5) -> Subject:
    counts = np.maximum(5, (1280 * (1 / 256) ** (np.arange(1000) / 999)).astype(int))
    logits, labels = logits_of(counts, each)
    return of_logits(
        logits.astype(np.float32),
        labels,
        counts,
        rule="rescale",  # all rules would be cross-fitted
        bootstrap=3,
        title="a thousand classes",
        names=[f"species {i} of the northern woods" for i in range(1000)],
    )


def blind() -> Subject:
    counts = np.array([900, 300, 45])
    return of_logits(logits_of(counts, 60)[0], None, counts, bootstrap=20, title="no labels")


def choice() -> Subject:
    """A choice whose files are not known."""
    return Subject("a choice", np.ones(3, np.int64), ten().choice)


def training() -> Snapshot:
    """A head with held-out and test samples."""
    rng, counts = np.random.default_rng(1), np.array([500, 200, 80, 30])
    weight = np.eye(4, 12) * (counts[:, None] / 500) ** 0.3
    splits = {
        "held-out": np.repeat(np.arange(4), [40, 20, 10, 6]),
        "test": np.repeat(np.arange(4), 50),
    }
    features = {
        split: 3 * np.eye(4, 12)[y] + rng.normal(size=(len(y), 12)) + 2
        for split, y in splits.items()
    }
    return Snapshot(Head(weight, names=["cat", "dog", "owl", "ant"]), counts, features, splits)


def trained(**given) -> Subject:
    """That head with a log of its norms, judged on the test split, gamma chosen on the held-out one."""
    snapshot = training()
    log = [{"epoch": e, "norms": (snapshot.head.norms * e / 8).tolist()} for e in range(1, 9)]
    return of_snapshot(snapshot, title="a training", log=log, bootstrap=20, **given)
