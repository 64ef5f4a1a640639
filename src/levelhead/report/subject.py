"""A subject: one model on one set of samples, with the gamma chosen for it, and all that a page shows of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..choice.choose import kind_of_scores
from ..choice.snapshot import Snapshot
from ..choice.tune import match_prior, tune
from ..choice.tuned import Tuned
from ..core.array import Array, as_array
from ..core.choices import Kind
from ..core.counts import Counts, check_labels, resolve
from ..core.curve import Curve
from ..core.errors import LevelheadError
from ..core.head import Head
from ..core.labels import resolve_labels
from ..core.per_class import names_of_columns
from ..core.warnings import quiet
from ..path.envelope import Envelope
from ..path.path import GammaPath
from ..rules.rule import AUTO, RULES, Rescale, rule_with
from .rule_view import ChoiceRecord, RuleView, chosen_strength, make_views

LARGEST_GAMMA = 50.0  # at this gamma, a class with half the samples is scaled by 10^15
MAX_RESAMPLED = 2_000_000  # samples times replicates: with more than 2,000 samples, fewer replicates are enough


@dataclass(frozen=True, eq=False)
class Subject:
    """One model on one set of samples.

    Args:
        title, names: what to call it and its classes.
        counts: [K], training samples of each class.
        choice: gamma and how it was chosen: Tuned.to_dict(), or at least `gamma`, `rule` and `chosen_on`.
        views: the chosen rule and others, each with all that it predicts; () if there are no logits, only a choice.
        logits, samples: [N, K], of the samples shown, and what these are, in words: `test`, `held-out`.
        apart: whether the samples shown had no part in the choice.
        target: [K], what each class weighs; equal if None.
        held_out: other logits and labels than those shown, to fit a temperature on.
        head, log: the head, where it is known; a dict per epoch of its training, with at least `epoch` and `norms`.
        facts: where the subject comes from, by title.
        model, tuned_file, files: in the commands to copy: the model's file, the tuned.json that holds the choice, and
            the files of logits, labels and counts; "" and {} if they are not known.
        fitted: the estimator that does what was chosen already, in words; "" if it is still to be applied.
        drawn: {rule: curve} to draw of rules that have no view.

    >>> subject = of_logits(np.eye(3) + 1, [0, 1, 2], [90, 30, 10], gamma=0.5)
    >>> subject.gamma, subject.classes, subject.name(2)
    (0.5, 3, '2')
    """

    title: str
    counts: np.ndarray
    choice: ChoiceRecord
    views: tuple[RuleView, ...] = ()
    logits: Array | None = None
    samples: str = "held-out"
    apart: bool = False
    names: Sequence[str] | None = None
    target: np.ndarray | None = None
    held_out: tuple[Array, np.ndarray] | None = None
    head: Head | None = None
    log: Sequence[dict[str, Any]] = ()
    facts: dict[str, str] = field(default_factory=dict)
    model: str = ""
    tuned_file: str = ""
    files: dict[str, str] = field(default_factory=dict)
    fitted: str = ""
    drawn: dict[str, Curve] = field(default_factory=dict)
    kind: Kind = "logits"

    @property
    def gamma(self) -> float:
        """The strength that was chosen, where the slider of its rule shows it."""
        return chosen_strength(self.choice)

    @property
    def path(self) -> GammaPath | None:
        """Where the samples shown are right over the chosen rule's strength; None if their labels are not known."""
        return self.views[0].path if self.views else None

    @property
    def changes(self) -> Envelope | None:
        """Every change of a prediction over the chosen rule's strength."""
        return self.views[0].changes if self.views else None

    @property
    def worthwhile(self) -> bool | None:
        """Whether the choice has a certain gain, by its own metric; None if it was not made on labels, or is old."""
        choice = self.choice
        if choice["chosen_on"] in ("given", "unlabelled") or "gain_interval" not in choice:
            return None
        between = choice["gain_interval"]
        return choice.get("floors_met_at_zero") is False or (between is not None and between[0] > 0)

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

    @property
    def curve(self) -> Curve | None:
        """The balanced error over the chosen rule's strength or, without labels, the mismatch of predicted shares."""
        return self.views[0].curve if self.views else None

    @property
    def end(self) -> float:
        """The end of the chosen rule's slider."""
        return self.views[0].end

    @cached_property
    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """The rarer and the more frequent half, by training counts, of the classes with samples."""
        order = self.present[np.argsort(self.counts[self.present], kind="stable")]
        size = max(1, len(order) // 2)
        return np.sort(order[:size]), np.sort(order[len(order) - size :])

    @property
    def groups(self) -> dict[str, list[int]]:
        """The one grouping of the page: the rarer and the more frequent half."""
        return {name: members.tolist() for name, members in zip(("rare", "common"), self.halves, strict=True)}


def of_snapshot(
    snapshot: Snapshot,
    *,
    title: str = "snapshot",
    gamma: float | None = None,
    rule: str = AUTO,
    tuned: Tuned | ChoiceRecord | None = None,
    log: Sequence[dict[str, Any]] = (),
    facts: dict[str, str] | None = None,
    bootstrap: int = 1000,
    model: str = "",
) -> Subject:
    """Return the subject of a training's snapshot, shown on its test split or, without one, on its held-out split.

    Args:
        snapshot: head, counts, features and labels.
        title, log, facts, model: as in `Subject`.
        gamma: a gamma of your own; or else that of `tuned`; or else one chosen on the held-out split or, without one,
            by making the predicted shares of the samples shown equal, which needs no labels.
        rule: what gamma does, where `tuned` does not say; `auto` chooses one on the held-out split, and is `rescale`
            without labels or with a gamma of your own.
        tuned: what `tune` returned, or its `to_dict()`.
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
            found = tune(
                *held_out, snapshot.counts, rule=rule_with(rule, norms=head.norms), names=names, bootstrap=bootstrap
            )
        choice = found.to_dict()
    return of_logits(
        snapshot.logits(shown),
        snapshot.labels[shown],
        snapshot.counts,
        title=title,
        rule=rule,
        tuned=choice,
        names=names,
        norms=head.norms,
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
    rule: str = AUTO,
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
    model: str = "",
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
    names = names_of_columns(logits, counts) if names is None else names
    logits = as_array(logits)
    n = resolve(counts, logits.shape[1] if logits.ndim == 2 else None, names=names)
    choice = _choice(gamma, rule, tuned)
    if choice is not None and choice.get("classes") not in (None, len(n)):
        raise LevelheadError(f"gamma was chosen on logits of {choice['classes']} classes, but these have {len(n)}")
    _check_kind(choice, logits, kind)
    prior = None if target is None else np.asarray(target, np.float64) / np.sum(target)
    known = None
    if labels is not None:
        found, names = resolve_labels(logits, labels, counts, names)
        known = check_labels(found, len(n))
    if choice is None:
        times = min(bootstrap, MAX_RESAMPLED // len(logits))
        given: dict[str, Any] = {"names": names, "kind": kind, "bootstrap": times}
        with quiet():  # the page shows the warnings
            if known is None or blind:
                one = Rescale.name if rule == AUTO else rule
                tuned = match_prior(logits, n, prior, rule=rule_with(one, norms=norms), **given)
            else:
                tuned = tune(
                    logits, known, n, rule=rule_with(rule, norms=norms), target=prior, chosen_on=samples, **given
                )
        choice = tuned.to_dict()
    views = make_views(logits, known, n, choice, norms=norms, kind=kind, target=prior)
    tried = tuned.candidates if isinstance(tuned, Tuned) and tuned.metric == "balanced_error" and not apart else ()
    shown = {view.rule for view in views}
    return Subject(
        title=title,
        counts=n,
        choice=choice,
        views=views,
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
        drawn={one.rule: one.curve for one in tried if one.curve is not None and one.rule not in shown},
        kind=kind,
    )


def _check_kind(choice: ChoiceRecord | None, logits: Array, kind: Kind) -> None:
    """Check that what was chosen multiplies the kind of scores that are shown; an older choice may not say its kind."""
    shown = kind_of_scores(logits, kind)
    if choice is not None and RULES[choice["rule"]].multiplies and (chosen := choice.get("kind")) not in (None, shown):
        raise LevelheadError(
            f"the rule {choice['rule']} was chosen on {chosen}, but these are {shown}; show those", parameter="tuned"
        )


def _choice(gamma: float | None, rule: str, tuned: Tuned | ChoiceRecord | None) -> ChoiceRecord | None:
    named = Rescale.name if rule == AUTO else rule
    given = None if gamma is None else {"gamma": gamma, "rule": named, "chosen_on": "given"}
    choice = given or (tuned.to_dict() if isinstance(tuned, Tuned) else tuned)
    if choice is None:
        return None
    most = np.inf if RULES[choice["rule"]].grows and choice["chosen_on"] != "given" else LARGEST_GAMMA
    if not 0 <= choice["gamma"] <= most or not np.isfinite(choice["gamma"]):
        raise LevelheadError(
            f"expected a gamma from 0 to {LARGEST_GAMMA:g}, got {choice['gamma']:g}",
            parameter="tuned" if gamma is None else "gamma",
        )
    return choice | {"gamma": float(choice["gamma"])}
