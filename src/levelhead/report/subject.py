"""`Subject`: a choice on one set of samples, as a page shows it.

`of_tuned` makes one: it checks the samples and, if the choice was made on others, judges it on
these. What the page needs beyond that is computed when it is asked for, once: rows of classes,
predictions before and after, the path over a strength.

Two kinds of numbers meet here. Those of the tables (`rows`) come from the choice's evidence, where
each sample was predicted by a fit that has not seen it. Those from the logits (`predictions`,
`path`) are of the one fit that is used, on samples that it was fitted on, and look a little better;
the notes of words.py say so. On other samples (`measured`) both are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.class_names import check_titles
from ..core.constant_direction import check_features, find_reach
from ..core.doubts import EQUAL
from ..core.gamma_path import GammaPath
from ..core.goal import Goal
from ..core.head import Head
from ..core.judge import Outcomes, judge, judged_by
from ..core.probabilities import smooth_votes
from ..core.samples import Given
from ..core.tuned import Tuned, rule_of
from ..io import arrays
from ..labels.check import check_label_scores, check_label_table
from ..labels.judge import judge_labels
from ..path.direction import Direction
from ..path.engines import find_changes
from ..support.arrays import Array, as_array
from ..support.errors import LevelheadError, named
from ..support.logits import read_as
from ..support.read import read_chunks
from ..support.types import Kind

Pair = tuple[float, float]  # before and after; NaN where it is not known


class Applied(NamedTuple):
    """Where a choice is applied already.

    Args:
        where: such as "to fc, when the training ended".
        code: what to do with it, or to undo it, in Python.

    >>> Applied("to fc, when the training ended", "callback.adjusted.restore()").where
    'to fc, when the training ended'
    """

    where: str
    code: str


@dataclass(frozen=True)
class ClassRow:
    """One class, or one label of several, before and after: a row of the page's table."""

    index: int  # its column in the logits
    name: str  # its index as text, if it has no name
    count: float | None  # training samples; None if that is not known, or it is left alone
    samples: int | None  # among those shown; None if that is not known
    recall: Pair
    precision: Pair
    share: Pair  # of the predictions
    threshold: float | None = None  # of a label's probability


class _ClassMeasures(NamedTuple):
    """What is known of each class, [K] each; NaN where it is not."""

    recall: np.ndarray  # of its samples, the share that is predicted so
    precision: np.ndarray  # of what is predicted so, the share that is right
    share: np.ndarray  # of the predictions


@dataclass(frozen=True, eq=False)
class Subject:
    """What was chosen for one model, on one set of samples. What is not known is None or empty.

    Args:
        title: what to call it.
        tuned: the choice; its evidence is of the samples shown.
        logits, labels: [N, K] and [N], of the samples shown; [N, K] of several labels per sample.
        reach: [N], how much of each offset arrives in the scores of a sample, where the choice is
            for a head without a bias; None where all of it does.
        measured: what the samples shown are, such as `test`, if they had no part in the choice.
        head: of the model, for its weight norms.
        log: a dict for each epoch of its training, with at least `epoch` and `norms`.
        facts: where it comes from, by title.
        files: {"logits": file, ...}, as commands take them.
        model: the file of the model, for the commands to copy.
        tuned_file: the tuned.json that holds the choice.
        applied: where the choice is applied already; None if it is not.

    >>> from levelhead.core.adjustment import Adjustment
    >>> tuned = Tuned("shift", Adjustment.adding([0.0, 1.5]), evidence=None, names=("elk", "newt"))
    >>> subject = Subject("animals", tuned)
    >>> subject.classes, subject.name(1)
    (2, 'newt')
    """

    title: str
    tuned: Tuned
    logits: Array | None = None
    labels: np.ndarray | None = None
    reach: np.ndarray | None = None
    measured: str | None = None
    head: Head | None = None
    log: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    tuned_file: str = ""
    applied: Applied | None = None

    @property
    def classes(self) -> int:
        """K."""
        return self.tuned.classes

    def name(self, i: int) -> str:
        """Return what a class is called; its index if it has no name.

        Args:
            i: its column in the logits.
        """
        if self.tuned.names is None:
            return str(i)
        return str(self.tuned.names[i])

    # ---- The classes ---------------------------------------------------------------------------

    @cached_property
    def sizes(self) -> np.ndarray | None:
        """How many of the samples shown each class has, [K]; None if that is not known.

        Of several labels per sample, how many samples have each label.
        """
        if self.labels is not None:
            if self.tuned.multilabel:
                return (self.labels > 0).sum(axis=0)
            return np.bincount(self.labels, minlength=self.classes)
        if self.tuned.evidence is None:
            return None
        # Toward a target, tables hold shares instead of samples; but samples may have been counted.
        if self.tuned.target is not None:
            return np.array(self.tuned.counts) if self.tuned.counted else None
        return self.tuned.tables[0].sizes

    @property
    def counts(self) -> np.ndarray | None:
        """How many training samples each class has, [K]; None if that is not known.

        A class that is left alone, the background, has the largest count of the others: by it no rule
        changes it, but it is not its own. Where `tune` was given none, those of its samples stood
        in; these are `sizes`, and no counts.
        """
        if self.tuned.counted or not self.tuned.counts:
            return None
        return np.array(self.tuned.counts)

    @property
    def rare_by_counts(self) -> bool:
        """Whether the training counts say which classes are rare: they are known, and differ.

        Counts whose largest is at most 1.1 times the smallest (`core.doubts.EQUAL`) are taken to be equal.
        """
        counts = self.counts
        return counts is not None and bool(counts.max() > EQUAL * counts.min())

    @cached_property
    def frequency(self) -> np.ndarray:
        """How frequent each class is, [K]: in training or, if that does not tell, here.

        By it the page sorts classes, so that rare ones stand together. Equal counts of a training set
        say nothing of which class is rare, while the samples at hand may. A class that is left alone is
        none of these: it comes after the most frequent one.
        """
        frequency = np.ones(self.classes)
        if self.sizes is not None and not self.rare_by_counts:
            frequency = np.asarray(self.sizes, np.float64)
        elif self.counts is not None:
            frequency = self.counts
        if self.tuned.background is not None:
            frequency = frequency.copy()
            frequency[self.tuned.background] = np.inf
        return frequency

    @cached_property
    def rare_first(self) -> np.ndarray:
        """The classes, the rarest first, [K]."""
        return np.argsort(self.frequency, kind="stable")

    @cached_property
    def rows(self) -> list[ClassRow]:
        """A row for each class, the rarest first: it is these that an adjustment is for.

        Before and after come from the same samples, and are NaN where there is nothing to divide by: the
        recall of a class without samples, the precision of one that is never predicted.
        """
        from scipy.special import expit

        before, after = self._measures()
        rows = []
        for i in self.rare_first.tolist():
            count = None
            if self.counts is not None and i != self.tuned.background:
                count = float(self.counts[i])
            samples = None
            if self.sizes is not None:
                samples = int(self.sizes[i])
            threshold = None
            if self.tuned.multilabel:
                # A label is predicted where logit + offset > 0: sigmoid(-offset) as a probability.
                threshold = float(expit(-self.tuned.adjustment.offset[i]))
            rows.append(
                ClassRow(
                    index=i,
                    name=self.name(i),
                    count=count,
                    samples=samples,
                    recall=(float(before.recall[i]), float(after.recall[i])),
                    precision=(float(before.precision[i]), float(after.precision[i])),
                    share=(float(before.share[i]), float(after.share[i])),
                    threshold=threshold,
                )
            )
        return rows

    def _measures(self) -> tuple[_ClassMeasures, _ClassMeasures]:
        """Return what is known of each class, before and after: the less, the less there is at hand.

        With evidence, its tables. Without (no labels), predictions can be counted if there are logits,
        which gives shares and nothing else; of a choice alone, nothing is known.
        """
        evidence = self.tuned.evidence
        if evidence is not None:
            before, after = (
                _ClassMeasures(table.recall, table.precision, table.share)
                for table in self.tuned.tables
            )
            if self.tuned.multilabel:  # of the samples, how many get the label
                before = before._replace(share=evidence.before.share[:, 1])
                after = after._replace(share=evidence.after.share[:, 1])
            return before, after
        unknown = np.full(self.classes, np.nan)
        measures = _ClassMeasures(unknown, unknown, unknown)
        if self.logits is None:
            return measures, measures
        # Without labels, predictions can be counted, but not judged.
        before, after = (
            np.bincount(predicted, minlength=self.classes) / len(predicted)
            for predicted in self.predictions
        )
        return measures._replace(share=before), measures._replace(share=after)

    # ---- From the logits -----------------------------------------------------------------------

    @property
    def read_as(self) -> Kind:
        """How the logits are read."""
        return read_as(self.tuned.kind)

    @cached_property
    def predictions(self) -> tuple[np.ndarray, np.ndarray]:
        """What the model predicts as it is, and adjusted, [N] each; of one class per sample.

        In a head without a bias, by what arrives of each offset, as `tune` judged it.
        """
        return predict(self.tuned, self.logits, self.read_as, self.reach)

    @cached_property
    def path(self) -> GammaPath | None:
        """The exact path from 0 to twice the strength of a rule that has one; None for others.

        Twice, so that one sees what more of it would do.
        """
        strength = self.tuned.strength
        if not strength or self.logits is None or self.labels is None:
            return None
        if self.reach is not None:  # the path adds the same to all samples
            return None
        # A choice keeps what its strength does to each class, not what does it, such as counts. From
        # that follow the ratios: at strength 1 a class is multiplied by its ratio, or the logarithm
        # of the ratio is added.
        adjustment = self.tuned.adjustment
        rule = rule_of(self.tuned)
        if rule.multiplies:
            ratios = adjustment.scale ** (1 / strength)
        else:
            ratios = np.exp(adjustment.offset / strength)
        # The engine follows one direction from the scores that it is given, so smoothing is done before.
        direction = Direction(rule.name, ratios, rule.multiplies)
        logits = self.logits
        kind = self.read_as
        # Votes of a forest have zeros, which are smoothed before the logarithm, by what was tuned.
        if adjustment.smoothing:
            chunks = [chunk for _, chunk in read_chunks(logits, kind=kind)]
            logits = smooth_votes(np.concatenate(chunks), adjustment.smoothing)[0]
            kind = "logits"
        reach = (min(0.0, 2 * strength), max(0.0, 2 * strength))
        changes = find_changes(logits, direction, reach, kind=kind)
        target = None
        if self.tuned.target is not None:
            target = np.array(self.tuned.target)
        counts = np.array(self.tuned.counts)
        return GammaPath(changes, self.labels, counts, direction, reach, target)


def of_tuned(
    tuned: Tuned,
    logits: Array | None = None,
    labels: Array | None = None,
    *,
    features: Array | None = None,
    title: str = "model",
    measured: str | None = None,
    head: Head | None = None,
    log: Sequence[Mapping[str, Any]] = (),
    facts: Mapping[str, str] | None = None,
    files: Mapping[str, str | Path] | None = None,
    model: str = "",
    tuned_file: str = "",
    applied: Applied | None = None,
) -> Subject:
    """Return the subject of a choice, on the samples that it was made on or on others.

    Args:
        tuned: what any `tune` returned.
        logits, labels: [N, K] and [N] (or [N, K], of several labels) of the samples it was chosen
            on, for confusions, calibration and the chart over a strength. They may be left out: the
            choice brings its tables.
        features: [N, d], what `tune` was given as such, where the choice is for a head without a
            bias. Without them, what needs predictions is left out, and the page says so.
        measured: with other samples than those, what they are, such as `test`: the choice is then
            judged on them.
        facts: as in `Subject`; the files and their sha256 if None.
        title, head, log, files, model, tuned_file, applied: as in `Subject`.

    Raises:
        LevelheadError: logits of another number of classes, labels that do not fit them, a kind of
            scores that the rule refuses; `measured` without samples; features where they mean nothing.

    >>> from levelhead import tune
    >>> labels = np.repeat([0, 1, 2], [40, 20, 10])
    >>> logits = np.eye(3)[labels] + np.random.default_rng(0).normal(size=(70, 3)) + [2.0, 1.0, 0.0]
    >>> subject = of_tuned(tune(logits, labels), logits, labels, title="tiny")
    >>> [row.name for row in subject.rows]
    ['2', '1', '0']
    """
    # The samples, as far as there are any; labels alone would show nothing.
    checked = None
    if logits is not None:
        logits, checked = _check_samples(tuned, logits, labels)
    reach = None
    if features is not None:
        reach = _reach_of(tuned, features, logits, measured)
    if measured is not None:
        if logits is None or checked is None:
            raise LevelheadError("expected the samples it is measured on", parameter="measured")
        tuned = judged_on(tuned, logits, checked)
    elif tuned.reach is not None and reach is None:
        # What is predicted depends on features that are not here: better nothing than another's.
        logits = None
    # All that is shown is numpy from here on, wherever the head is.
    if head is not None:
        head = head.numpy()
    files = files or {}
    if facts is None:
        facts = with_sha256(files)
    return Subject(
        title=title,
        tuned=tuned,
        logits=logits,
        labels=checked,
        reach=reach,
        measured=measured,
        head=head,
        log=log,
        facts=facts,
        files={role: str(file) for role, file in files.items()},
        model=model,
        tuned_file=tuned_file,
        applied=applied,
    )


def _check_samples(
    tuned: Tuned, logits: Array, labels: Array | None
) -> tuple[Array | None, np.ndarray | None]:
    """Return logits [N, K], and labels as indices [N] or, of several per sample, [N, K] of 0 and 1.

    Samples that a choice was made on were checked then, but a page may be made of others, or of a
    file that has changed. Logits stay as they are, a file mapped into memory too: they are read in
    chunks later.
    """
    if tuned.names is not None:
        with named("logits"):
            check_titles(logits, tuned.names)
    if tuned.multilabel and labels is None:
        return None, None  # nothing is drawn from them
    checked = None
    if tuned.multilabel:
        if tuned.names is not None:
            with named("labels"):
                check_titles(labels, tuned.names)
        checked = check_label_table(labels)
        logits = check_label_scores(logits, checked, tuned.kind)
    elif labels is None:
        logits = as_array(logits)
    else:
        given = Given.of(logits, labels, None, names=tuned.names, kind=read_as(tuned.kind))
        rule_of(tuned).refuse_kind(given.kind, "logits")
        logits = given.logits
        checked = given.labels
    if logits.ndim != 2 or len(logits) == 0 or logits.shape[1] != tuned.classes:
        reason = f"expected [N, {tuned.classes}], as it was tuned, got shape {list(logits.shape)}"
        raise LevelheadError(reason, parameter="logits")
    return logits, checked


def _reach_of(
    tuned: Tuned, features: Array, logits: Array | None, measured: str | None
) -> np.ndarray:
    """Return how much of each offset arrives in the scores of each sample, [N], as `tune` found it.

    Raises:
        LevelheadError: the choice is for a head with a bias; or the samples are others than it was
            made on. Offsets go along a direction of its own features, which a choice does not keep.
    """
    if tuned.reach is None:
        reason = "the choice is not one for a head without a bias; leave them out"
        raise LevelheadError(reason, parameter="features")
    if logits is None or measured is not None:
        reason = "expected those of the samples that the choice was made on, with their logits"
        raise LevelheadError(reason, parameter="features")
    return find_reach(check_features(features, samples=len(logits)))[1]


def judged_on(tuned: Tuned, logits: Array, labels: np.ndarray) -> Tuned:
    """Return a choice with evidence of other samples than it was made on.

    They are new to all of its fit, so it is judged as it is, without folds.

    Args:
        tuned: the choice, whose metric and level of the interval are kept; where they cannot be
            (`judged_by`), it is balanced error, and a warning says so.
        logits: [N, K] of the samples.
        labels: [N], indices; or [N, K] of several labels.
    """
    if tuned.multilabel:
        return judge_labels(tuned, logits, labels)
    by = judged_by(tuned.evidence, "balanced_error")
    warnings = (*tuned.warnings, *by.notes)
    if tuned.reach is not None:
        note = "it is for a head without a bias, but judged as if all of each offset arrived"
        warnings = (*warnings, note)
    before, after = predict(tuned, logits, read_as(tuned.kind))
    outcomes = Outcomes.of(labels, before, after, tuned.classes)
    goal = Goal(by.metric).on(labels, tuned.classes, tuned.names, tuned.target)
    return replace(tuned, evidence=judge(outcomes, goal, by.level), warnings=warnings)


def predict(
    tuned: Tuned, logits: Array, kind: Kind, reach: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a model predicts as it is, and adjusted, [N] each.

    Args:
        tuned: the choice.
        logits: [N, K], read in chunks.
        kind: how they are read.
        reach: [N], as in `Subject`.
    """
    before = []
    after = []
    for first, chunk in read_chunks(logits, kind=kind):
        reach_of_chunk = None
        if reach is not None:
            reach_of_chunk = reach[first : first + len(chunk)]
        before.append(chunk.argmax(axis=1))
        after.append(tuned.adjustment.predict(chunk, reach_of_chunk))
    return np.concatenate(before), np.concatenate(after)


def with_sha256(files: Mapping[str, str | Path]) -> dict[str, str]:
    """Return files by what they hold, with the sha256 of each: where the page's numbers come from.

    Args:
        files: ``{"logits": FILE:KEY, ...}``; the digest is of the whole file.

    >>> from hashlib import sha256
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(f"{folder}/held-out.csv")
    ...     _ = path.write_bytes(b"label")
    ...     with_sha256({"labels": path})["labels"].endswith(sha256(b"label").hexdigest())
    True
    """
    return {role: f"{file}, sha256 {arrays.sha256(file)}" for role, file in files.items()}
