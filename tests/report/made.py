"""Models for the page's tests: logits of imbalanced classes, with hostile names."""

from __future__ import annotations

import numpy as np

import levelhead as lh
from levelhead.report import Subject, of_tuned
from levelhead.support.warnings import quiet

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
TEN = np.array([900, 500, 300, 170, 100, 60, 30, 19, 10, 5])


def logits_of(
    counts: np.ndarray, each: int, seed: int = 0, noise: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of a model that favors frequent classes."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), each)
    logits = noise * rng.normal(size=(len(labels), len(counts))) + 2.5 * np.eye(len(counts))[labels]
    return logits + 0.6 * np.log(counts / counts.max()) + 5, labels


def balanced_already(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of five classes, of a model that favors none."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(5, size=600)
    return rng.normal(size=(600, 5)) + 3 * np.eye(5)[labels], labels


def ten(rule: str = "offsets", **options) -> Subject:
    """Ten classes with hostile names, chosen on these samples."""
    logits, labels = logits_of(TEN, 40)
    with quiet():
        tuned = lh.tune(logits, labels, TEN, rule=rule, names=HOSTILE, **options)
    return of_tuned(tuned, logits, labels, title="ten <i>classes</i>")


def long_names() -> Subject:
    """Ten classes with names that are longer than any screen."""
    logits, labels = logits_of(TEN, 40)
    with quiet():
        tuned = lh.tune(logits, labels, TEN, names=[300 * letter for letter in "abcdefghij"])
    return of_tuned(tuned, logits, labels, title="run-" * 100, facts={"file": "f" * 300})


def forty() -> Subject:
    """As many classes as are named, in capitals."""
    counts = np.arange(800, 0, -20)
    logits, labels = logits_of(counts, 20)
    with quiet():
        tuned = lh.tune(logits, labels, counts, names=[f"CARCINOMA, GRADE {i}" for i in range(40)])
    return of_tuned(tuned, logits, labels, title="forty classes")


def two(**options) -> Subject:
    counts = np.array([900, 45])
    logits, labels = logits_of(counts, 150, noise=2.0)
    with quiet():
        tuned = lh.tune(logits, labels, counts, **options)
    return of_tuned(tuned, logits, labels, title="two classes")


def several_labels(**options) -> Subject:
    """Four labels per sample, some with a hostile name."""
    logits, labels = label_samples()
    with quiet():
        tuned = lh.tune_labels(logits, labels, names=[*HOSTILE[:3], "kite"], **options)
    return of_tuned(tuned, logits, labels, title="four labels")


def label_samples(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.random((500, 4)) < [0.5, 0.2, 0.06, 0.03]
    return 2.2 * labels - [0.8, 2.2, 3.4, 4.0] + rng.normal(size=(500, 4)), labels


def thousand(each: int = 5) -> Subject:
    counts = np.maximum(5, (1280 * (1 / 256) ** (np.arange(1000) / 999)).astype(int))
    logits, labels = logits_of(counts, each)
    logits = logits.astype(np.float32)
    names = [f"species {i} of the northern woods" for i in range(1000)]
    with quiet():
        tuned = lh.tune(logits, labels, counts, names=names)
    return of_tuned(tuned, logits, labels, title="a thousand classes")


def blind() -> Subject:
    """Chosen without labels."""
    logits = logits_of(np.array([900, 300, 45]), 60)[0]
    with quiet():
        return of_tuned(lh.tune_unlabelled(logits), logits, title="no labels")


def choice() -> Subject:
    """A choice whose samples are not at hand."""
    return of_tuned(ten().tuned, title="a choice")


def trained(rule: str = "rescale") -> Subject:
    """A head with a log of its norms, chosen on held-out samples and judged on test samples."""
    counts = np.array([500, 200, 80, 30])
    rng = np.random.default_rng(1)
    head = lh.Head(np.eye(4, 12) * (counts[:, None] / 500) ** 0.3)
    logits = []
    labels = []
    for sizes in ([40, 20, 10, 6], [50, 50, 50, 50]):
        y = np.repeat(np.arange(4), sizes)
        features = 3 * np.eye(4, 12)[y] + rng.normal(size=(len(y), 12)) + 2
        logits.append(head.logits(features))
        labels.append(y)
    with quiet():
        tuned = lh.tune(logits[0], labels[0], counts, rule=rule, names=["cat", "dog", "owl", "ant"])
    log = [{"epoch": e, "norms": (head.norms * e / 8).tolist()} for e in range(1, 9)]
    return of_tuned(
        tuned, logits[1], labels[1], measured="test", title="a training", head=head, log=log
    )
