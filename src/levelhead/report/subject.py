"""A subject: one model on one set of samples, with the gamma chosen for it, and all that a page shows of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..core.adjust import RuleName
from ..core.array import Array, as_array
from ..core.counts import Counts, groups, resolve
from ..core.curve import Curve
from ..core.errors import LevelheadError
from ..core.head import Head
from ..core.measure import Kind
from ..core.warnings import quiet
from ..gamma.envelope import Envelope, compute_envelope
from ..gamma.path import GammaPath, gamma_path
from ..gamma.rule import make_rule
from ..gamma.tune import match_prior, tune, tune_path
from ..gamma.tuned import Tuned
from ..io.snapshot import Snapshot

RANGE = (0.0, 2.0)  # of gamma on a page, unless a larger one was chosen
LARGEST_GAMMA = 50.0  # at this gamma, a class with half the samples is scaled by 10^15
MAX_RESAMPLED = 2_000_000  # samples times replicates: with more than 2,000 samples, fewer replicates are enough
ChoiceRecord = dict[str, Any]  # what Tuned.to_dict returns, or its first few entries


@dataclass(frozen=True, eq=False)
class Subject:
    """One model on one set of samples.

    Args:
        title, names: what to call it and its classes.
        counts: [K], training samples of each class.
        choice: gamma and how it was chosen: Tuned.to_dict(), or at least `gamma`, `rule` and `chosen_on`.
        path: the gamma path of the samples shown, if their labels are known.
        changes: every change of a prediction over gamma; None if there are no logits, only a choice.
        logits, samples: [N, K], of the samples shown, and what these are, in words: `test`, `held-out`.
        apart: whether the samples shown had no part in the choice.
        target: [K], what each class weighs; equal if None.
        held_out: other logits and labels than those shown, to fit a temperature on.
        head, log: the head, where it is known; a dict per epoch of its training, with at least `epoch` and `norms`.
        facts, model: where the subject comes from, by title; the model's file in the command to copy.

    >>> subject = of_logits(np.eye(3) + 1, [0, 1, 2], [90, 30, 10], gamma=0.5)
    >>> subject.gamma, subject.classes, subject.name(2)
    (0.5, 3, '2')
    """

    title: str
    counts: np.ndarray
    choice: ChoiceRecord
    path: GammaPath | None = None
    changes: Envelope | None = None
    logits: Array | None = None
    samples: str = "held-out"
    apart: bool = False
    names: Sequence[str] | None = None
    target: np.ndarray | None = None
    held_out: tuple[Array, np.ndarray] | None = None
    head: Head | None = None
    log: Sequence[dict[str, Any]] = ()
    facts: dict[str, str] = field(default_factory=dict)
    model: str = "model.safetensors"
    tuned_file: str = ""  # the tuned.json that holds the choice, if there is one

    @property
    def gamma(self) -> float:
        return float(self.choice["gamma"])

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """The interval of the gain in balanced error; None if the choice has none, or was made by another metric."""
        found = self.choice.get("gain_interval") if self.choice.get("metric") in (None, "balanced_error") else None
        return None if found is None else (found[0], found[1])

    @property
    def level(self) -> float:
        """The confidence level of the intervals shown."""
        return self.choice.get("level") or 0.95

    @property
    def classes(self) -> int:
        return len(self.counts)

    def name(self, i: int) -> str:
        return str(i) if self.names is None else str(self.names[i])

    @cached_property
    def present(self) -> np.ndarray:
        """The classes with a sample among those shown; all if labels are not known."""
        return np.arange(self.classes) if self.path is None else np.unique(self.path.labels)

    @cached_property
    def mass(self) -> np.ndarray:
        """What each class weighs in the balanced error, [K]; 0 for a class without a sample."""
        share = np.zeros(self.classes)
        share[self.present] = 1.0 if self.target is None else self.target[self.present]
        return share / share.sum()

    @cached_property
    def curve(self) -> Curve | None:
        """The balanced error over gamma or, without labels, the mismatch of predicted shares."""
        if self.path is not None:
            return self.path.balanced_error_curve
        return None if self.changes is None else self.changes.mismatch(self.target)

    @cached_property
    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """The rarer and the more frequent half, by training counts, of the classes with samples."""
        order = self.present[np.argsort(self.counts[self.present], kind="stable")]
        size = max(1, len(order) // 2)
        return np.sort(order[:size]), np.sort(order[len(order) - size :])

    @cached_property
    def groups(self) -> dict[str, list[int]]:
        """The many-, medium- and few-shot classes with samples."""
        found = {name: np.intersect1d(members, self.present).tolist() for name, members in groups(self.counts).items()}
        return {name: members for name, members in found.items() if members}

    @cached_property
    def end(self) -> float:
        """The end of the slider: past the choice, its interval, the best gamma, and every gamma no worse than 0."""
        curve, interval = self.curve, self.choice.get("interval") or (0, 0)
        assert curve is not None
        useful = float(curve.gammas[curve.values <= float(curve.at(0.0))].max())
        wanted = max(0.4, self.gamma, interval[1], useful, curve.middle(curve.plateau()))
        return min(curve.end, float(np.ceil(12.5 * wanted) / 10))


def of_snapshot(
    snapshot: Snapshot,
    *,
    title: str = "snapshot",
    gamma: float | None = None,
    rule: RuleName = "rescale",
    tuned: Tuned | ChoiceRecord | None = None,
    log: Sequence[dict[str, Any]] = (),
    facts: dict[str, str] | None = None,
    bootstrap: int = 1000,
    model: str = "model.safetensors",
) -> Subject:
    """Return the subject of a training's snapshot, shown on its test split or, without one, on its held-out split.

    Args:
        snapshot: head, counts, features and labels.
        title, log, facts, model: as in `Subject`.
        gamma: a gamma of your own; or else that of `tuned`; or else one chosen on the held-out split or, without one,
            by making the predicted shares of the samples shown equal, which needs no labels.
        rule, tuned: what gamma does, where `tuned` does not say; what `tune` returned, or its `to_dict()`.
        bootstrap: replicates at most, where gamma is chosen here.

    Returns:
        The subject, for `write`.

    >>> split = {"test": np.eye(3) + 1}, {"test": np.arange(3)}
    >>> of_snapshot(Snapshot(Head(np.eye(3)), np.array([90, 30, 10]), *split), gamma=0.5).samples
    'test'
    """
    shown = next((split for split in ("test", "held-out") if split in snapshot.features), None)
    if shown is None:
        raise LevelheadError(
            f"{title}: expected a snapshot with a test or held-out split, got "
            f"{', '.join(snapshot.features) or 'none'}; train with a hold-out"
        )
    head, names = snapshot.head.numpy(), snapshot.head.names
    held_out = (snapshot.logits("held-out"), snapshot.labels["held-out"]) if "held-out" in snapshot.features else None
    choice = _choice(gamma, rule, tuned)
    if choice is None and held_out is not None:
        with quiet():  # the page shows the warnings
            found = tune(*held_out, snapshot.counts, rule=rule, norms=head.norms, names=names, bootstrap=bootstrap)
        choice = found.to_dict()
    norms = head.norms if (rule if choice is None else choice["rule"]) == "tau" else None
    return of_logits(
        snapshot.logits(shown),
        snapshot.labels[shown],
        snapshot.counts,
        title=title,
        rule=rule,
        tuned=choice,
        names=names,
        norms=norms,
        samples=shown,
        apart=shown == "test" or gamma is not None,
        log=log,
        head=head,
        held_out=held_out if shown == "test" else None,
        facts=facts,
        bootstrap=bootstrap,
        model=model,
        blind=True,
    )


def of_logits(
    logits: Array,
    labels: Array | None,
    counts: Counts,
    *,
    title: str = "model",
    gamma: float | None = None,
    rule: RuleName = "rescale",
    tuned: Tuned | ChoiceRecord | None = None,
    names: Sequence[str] | None = None,
    target: Array | None = None,
    norms: Array | None = None,
    kind: Kind = "logits",
    samples: str = "held-out",
    apart: bool = False,
    blind: bool = False,
    bootstrap: int = 1000,
    head: Head | None = None,
    log: Sequence[dict[str, Any]] = (),
    held_out: tuple[Array, np.ndarray] | None = None,
    facts: dict[str, str] | None = None,
    model: str = "model.safetensors",
) -> Subject:
    """Return the subject of a model's logits on samples that it was not trained on.

    Args:
        logits, labels: [N, K] and [N]; without labels (None), only the predicted shares are shown.
        title, counts, names, target, head, log, held_out, facts, model: as in `Subject`.
        norms, kind: as in `tune`.
        gamma: a gamma of your own; or else that of `tuned`; or else one chosen on these samples.
        rule, tuned, bootstrap: as in `of_snapshot`.
        samples: what the samples are: `held-out`, `test`; a gamma chosen on `test` gets a warning on top of the page.
        apart, blind: whether these samples had no part in a given choice; whether to choose gamma without labels.

    Returns:
        The subject, for `write`.

    >>> of_logits(np.eye(3) + 1, [0, 1, 2], [90, 30, 10], title="tiny", gamma=0.5).choice
    {'gamma': 0.5, 'rule': 'rescale', 'chosen_on': 'given'}
    """
    logits = as_array(logits)
    n = resolve(counts, logits.shape[1] if logits.ndim == 2 else None, names=names)
    choice = _choice(gamma, rule, tuned)
    if choice is not None and choice.get("classes") not in (None, len(n)):
        raise LevelheadError(f"gamma was chosen on logits of {choice['classes']} classes, but these have {len(n)}")
    rule, reach = (rule, RANGE) if choice is None else (choice["rule"], (0.0, max(RANGE[1], 1.25 * choice["gamma"])))
    made = make_rule(rule, n, norms=norms if rule == "tau" else None)
    prior = None if target is None else np.asarray(target, np.float64) / np.sum(target)
    path = (
        None
        if labels is None
        else gamma_path(
            logits, labels, n, range=reach, rule=rule, kind=kind, target=prior, norms=norms if rule == "tau" else None
        )
    )
    if choice is None:
        times = min(bootstrap, MAX_RESAMPLED // len(logits))
        with quiet():  # the page shows the warnings
            if path is None or blind:
                found = match_prior(logits, n, prior, rule=rule, norms=norms, names=names, kind=kind, bootstrap=times)
            else:
                found = tune_path(path, norms=norms, names=names, target=prior, chosen_on=samples, bootstrap=times)
        choice = found.to_dict()
    changes = compute_envelope(logits, made, reach, kind=kind) if path is None else path.envelope
    return Subject(
        title=title,
        counts=n,
        choice=choice,
        path=path,
        changes=changes,
        logits=logits,
        samples=samples,
        apart=apart,
        names=names,
        target=prior,
        held_out=held_out,
        head=head,
        log=log,
        facts=facts or {},
        model=model,
    )


def _choice(gamma: float | None, rule: RuleName, tuned: Tuned | ChoiceRecord | None) -> ChoiceRecord | None:
    given = None if gamma is None else {"gamma": gamma, "rule": rule, "chosen_on": "given"}
    choice = given or (tuned.to_dict() if isinstance(tuned, Tuned) else tuned)
    if choice is None:
        return None
    if not 0 <= choice["gamma"] <= LARGEST_GAMMA:
        raise LevelheadError(
            f"expected a gamma from 0 to {LARGEST_GAMMA:g}, got {choice['gamma']:g}",
            parameter="tuned" if gamma is None else "gamma",
        )
    return choice | {"gamma": float(choice["gamma"])}
