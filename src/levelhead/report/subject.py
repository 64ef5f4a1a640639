"""A subject: one model on one set of samples, with the gamma chosen for it. All that a page shows of it."""

from __future__ import annotations

import warnings
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
from ..core.warnings import LevelheadWarning
from ..gamma.criterion import middle
from ..gamma.envelope import Envelope, compute_envelope
from ..gamma.path import GammaPath, gamma_path
from ..gamma.rule import make_rule
from ..gamma.tune import match_prior, tune, tune_path
from ..gamma.tuned import Tuned
from ..io.snapshot import Snapshot

RANGE = (0.0, 2.0)
LARGEST = 50.0  # gamma that a page can stand on; a class of half as many samples is then scaled by 10^15
ENOUGH = 2_000_000  # samples resampled in all: of more than 2,000 samples fewer replicates tell as much
Choice = dict[str, Any]  # what Tuned.to_dict gives, or its first few entries


@dataclass(frozen=True, eq=False)
class Subject:
    """One model on one set of samples.

    Args:
        title: what to call it.
        counts: [K], training samples of each class.
        choice: gamma and how it was chosen: Tuned.to_dict(), or at least `gamma`, `rule`, `chosen_on`.
        path: of the samples shown, if their labels are known.
        changes: of every prediction; None where there are no logits to show, only a choice.
        logits: [N, K], of the samples shown.
        samples: what the samples shown are, in words: `test`, `held-out`.
        apart: whether the samples shown had no part in the choice.
        names: of the classes.
        target: [K], what each class weighs; equal if None.
        held_out: logits and labels that a temperature may be fitted on, if there are others than those shown.
        head: where it is known.
        log: per epoch, at least `epoch` and `norms`, where there was a training.
        facts: what else to say of where it comes from, by title.
        model: how the model's file is called in the command to copy.
    """

    title: str
    counts: np.ndarray
    choice: Choice
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

    @property
    def gamma(self) -> float:
        return float(self.choice["gamma"])

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """Of the gain in balanced error, as the choice has it; one of another metric is none."""
        found = self.choice.get("gain_interval") if self.choice.get("metric") in (None, "balanced_error") else None
        return None if found is None else (found[0], found[1])

    @property
    def level(self) -> float:
        """Of every interval that is shown."""
        return self.choice.get("level") or 0.95

    @property
    def classes(self) -> int:
        return len(self.counts)

    def name(self, i: int) -> str:
        return str(i) if self.names is None else str(self.names[i])

    @cached_property
    def present(self) -> np.ndarray:
        """Classes that have a sample among those shown; all, if labels are not known."""
        return np.arange(self.classes) if self.path is None else np.unique(self.path.labels)

    @cached_property
    def mass(self) -> np.ndarray:
        """What each class weighs in the balanced error, [K]: those without a sample nothing."""
        share = np.zeros(self.classes)
        share[self.present] = 1.0 if self.target is None else self.target[self.present]
        return share / share.sum()

    @cached_property
    def curve(self) -> Curve | None:
        """What the choice is about, over gamma: the balanced error, or without labels the mismatch of shares."""
        if self.path is not None:
            return self.path.balanced_error_curve
        return None if self.changes is None else self.changes.mismatch(self.target)

    @cached_property
    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """The rarer half of the classes that have samples, and the more frequent one: by training counts."""
        order = self.present[np.argsort(self.counts[self.present], kind="stable")]
        size = max(1, len(order) // 2)
        return np.sort(order[:size]), np.sort(order[len(order) - size:])

    @cached_property
    def groups(self) -> dict[str, list[int]]:
        """Many-, medium- and few-shot classes that have samples."""
        found = {name: np.intersect1d(members, self.present).tolist() for name, members in groups(self.counts).items()}
        return {name: members for name, members in found.items() if members}

    @cached_property
    def end(self) -> float:
        """Where the slider ends: past the choice, its interval and the best gamma, and past where the curve comes back
        to its value at gamma = 0; what lies beyond is worse than doing nothing."""
        curve = self.curve
        assert curve is not None
        level = float(curve.at(0.0))
        useful = curve.gammas[curve.values <= level]
        wanted = [0.4, self.gamma, (self.choice.get("interval") or (0, 0))[1], float(useful.max()),
                  middle(curve.plateau())]
        return min(curve.end, float(np.ceil(12.5 * max(wanted)) / 10))


def of_snapshot(
    snapshot: Snapshot, *, title: str = "snapshot", gamma: float | None = None, rule: RuleName = "rescale",
    tuned: Tuned | Choice | None = None, log: Sequence[dict[str, Any]] = (), facts: dict[str, str] | None = None,
    bootstrap: int = 1000, model: str = "model.safetensors",
) -> Subject:
    """What a training left, shown on its test split (or, if it has none, on the held-out one).

    Gamma is as given, or as tuned, or chosen on the held-out split; if there is none, by making the predicted shares of
    the samples shown equal, for which no label is looked at.
    """
    shown = next((split for split in ("test", "held-out") if split in snapshot.features), None)
    if shown is None:
        raise LevelheadError(f"{title}: expected a snapshot with a test or held-out split, got "
                         f"{', '.join(snapshot.features) or 'none'}; train with --hold-out 0.1")
    head, names = snapshot.head.numpy(), snapshot.head.names
    held_out = (snapshot.logits("held-out"), snapshot.labels["held-out"]) if "held-out" in snapshot.features else None
    choice = _choice(gamma, rule, tuned)
    if choice is None and held_out is not None:
        choice = _quiet(lambda: tune(*held_out, snapshot.counts, rule=rule, norms=head.norms, names=names,
                                     bootstrap=bootstrap)).to_dict()
    norms = head.norms if (rule if choice is None else choice["rule"]) == "tau" else None
    return of_logits(
        snapshot.logits(shown), snapshot.labels[shown], snapshot.counts, title=title, rule=rule, tuned=choice,
        names=names, norms=norms, samples=shown, apart=shown == "test" or gamma is not None, log=log, head=head,
        held_out=held_out if shown == "test" else None, facts=facts, bootstrap=bootstrap, model=model, blind=True,
    )


def of_logits(
    logits: Array, labels: Array | None, counts: Counts, *, title: str = "model", gamma: float | None = None,
    rule: RuleName = "rescale", tuned: Tuned | Choice | None = None, names: Sequence[str] | None = None,
    target: Array | None = None, norms: Array | None = None, kind: Kind = "logits", samples: str = "held-out",
    apart: bool = False, blind: bool = False, bootstrap: int = 1000, head: Head | None = None,
    log: Sequence[dict[str, Any]] = (), held_out: tuple[Array, np.ndarray] | None = None,
    facts: dict[str, str] | None = None, model: str = "model.safetensors",
) -> Subject:
    """Logits of samples the model was not trained on; without labels, only how often each class is predicted is shown.

    Args:
        logits: [N, K].
        labels: [N], or None.
        counts: training samples of each class.
        title, names, target, norms, kind, head, log, held_out, facts, model: as in Subject and `tune`.
        gamma: as given; else as `tuned` says; else chosen on these very samples.
        rule: what gamma does, where `tuned` does not say.
        samples: what they are: `held-out`, `test`; gamma chosen on `test` gets a warning that cannot be missed.
        apart: whether these samples had no part in a choice that is given.
        blind: choose without looking at the labels.
        bootstrap: replicates at most, where gamma is chosen here.
    """
    logits = as_array(logits)
    n = resolve(counts, logits.shape[1] if logits.ndim == 2 else None, names=names)
    choice = _choice(gamma, rule, tuned)
    if choice is not None and choice.get("classes") not in (None, len(n)):
        raise LevelheadError(f"gamma was chosen on logits of {choice['classes']} classes, these have {len(n)}")
    rule, reach = (rule, RANGE) if choice is None else (choice["rule"], (0.0, max(RANGE[1], 1.25 * choice["gamma"])))
    made = make_rule(rule, n, norms=norms if rule == "tau" else None)
    prior = None if target is None else np.asarray(target, np.float64) / np.sum(target)
    path = None if labels is None else gamma_path(logits, labels, n, range=reach, rule=rule, kind=kind, target=prior,
                                                  norms=norms if rule == "tau" else None)
    if choice is None:
        times = min(bootstrap, ENOUGH // len(logits))
        choice = _quiet(lambda: match_prior(logits, n, prior, rule=rule, norms=norms, names=names, kind=kind,
                                            bootstrap=times) if path is None or blind else
                        tune_path(path, norms=norms, names=names, target=prior, chosen_on=samples,
                                  bootstrap=times)).to_dict()
    changes = compute_envelope(logits, made, reach, kind=kind) if path is None else path.envelope
    return Subject(title=title, counts=n, choice=choice, path=path, changes=changes, logits=logits, samples=samples,
                   apart=apart, names=names, target=prior, held_out=held_out, head=head, log=log, facts=facts or {},
                   model=model)


def _choice(gamma: float | None, rule: RuleName, tuned: Tuned | Choice | None) -> Choice | None:
    if gamma is not None:
        return {"gamma": _check_gamma(gamma), "rule": rule, "chosen_on": "given"}
    choice = tuned.to_dict() if isinstance(tuned, Tuned) else tuned
    return choice if choice is None else {**choice, "gamma": _check_gamma(choice["gamma"])}


def _check_gamma(gamma: float) -> float:
    if not 0 <= gamma <= LARGEST:
        raise LevelheadError(f"expected a gamma from 0 to {LARGEST:g}, got {gamma:g}")
    return float(gamma)


def _quiet(choose: Any) -> Tuned:
    """A choice whose warnings are in the result, and will be on the page."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelheadWarning)
        return choose()
