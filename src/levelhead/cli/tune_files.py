"""What `levelhead tune` does: choose gamma on samples from files, and write the choice, its curve and its page."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..choice.compare import Comparison, compare
from ..choice.goal import Goal
from ..choice.options import ESTIMATE, TuneOptions, check_background
from ..choice.tune import tune_with
from ..choice.tuned import Tuned
from ..choice.tuned_json import describe_sources, write_tuned
from ..core.choices import Criterion, Kind, Metric, RuleRequest
from ..core.errors import LevelheadError, named
from ..core.per_class import without_repeats
from ..core.warnings import quiet
from ..io import arrays
from ..io.per_class_file import target_shares
from ..io.samples_file import Samples
from ..rules.rule import Auto
from ..show.plot import save_plot
from ..show.progress import stage_progress


@dataclass(frozen=True)
class TuneRequest:
    """What was asked of `levelhead tune` about its samples; see the help of its options."""

    rule: RuleRequest
    metric: Metric
    cost: Path | None
    floors: tuple[str, ...]
    criterion: Criterion
    kind: Kind
    target: str | None
    most: float | None
    unlabelled: Path | None
    norms: Path | None
    training: Path | None
    background: str | None
    chosen_on: str
    bootstrap: int
    seed: int

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise LevelheadError(f"expected 0 or more, got {self.seed}", parameter="seed")
        _range_up_to(self.most)

    def check_unlabelled(self) -> None:
        """Check that nothing was asked that needs labels."""
        for name in ("unlabelled", "training"):
            if getattr(self, name) is not None:
                raise LevelheadError("--logits are the unlabelled ones if --labels is left out", parameter=name)
        if self.criterion != "guided":
            raise LevelheadError(f"{self.criterion!r} needs --labels", parameter="criterion")
        for name, asked in (("metric", self.metric != "balanced_error"), ("cost", self.cost), ("floors", self.floors)):
            if asked:
                raise LevelheadError("this needs --labels", parameter=name)

    def class_floors(self) -> float | dict[str, float] | None:
        """Return the floors as `tune` takes them: a number for all classes, or {class: recall}."""
        if not self.floors:
            return None
        pairs = [(name, _number(value)) for name, _, value in (given.rpartition("=") for given in self.floors)]
        if all(name for name, _ in pairs):
            with named("floors"):
                return without_repeats(pairs)
        if len(pairs) > 1:
            raise LevelheadError(
                f"expected one recall for all classes, or CLASS=RECALL each time, got {', '.join(self.floors)}",
                parameter="floors",
            )
        return pairs[0][1]


def tune_files(samples: Samples, request: TuneRequest) -> Tuned:
    """Choose gamma with `tune`, or with `match_prior` if there are no labels. The result holds the warnings."""
    if samples.labels is None:
        request.check_unlabelled()
    check_background(request.background, request.rule, summary=False)
    given = request.target not in (None, ESTIMATE)
    target = target_shares(str(request.target), samples.names, len(samples.counts)) if given else request.target
    with quiet(), stage_progress(samples.logits.size) as progress:
        options = TuneOptions(
            target=target,
            goal=Goal(request.metric, _read(request.cost, "cost"), request.class_floors(), request.criterion),
            rule=request.rule,
            range=_range_up_to(request.most),
            kind=request.kind,
            names=samples.names,
            norms=_read(request.norms, "norms"),
            bootstrap=request.bootstrap,
            rng=request.seed,
            progress=progress,
            unlabelled=_read(request.unlabelled),
            training=_read(request.training),
            background=request.background,
            chosen_on=request.chosen_on,
        )
        return tune_with(options, samples.logits, samples.labels, samples.counts)


def compare_files(
    samples: Samples,
    *,
    metric: Metric,
    cost: Path | None,
    target: str | None,
    most: float | None,
    norms: Path | None,
    kind: Kind,
    repeats: int,
    seed: int,
) -> Comparison:
    """Compare the rules with `compare`. The result holds the warnings."""
    if samples.labels is None:
        raise LevelheadError("expected labels: only they can tell which rule is right", parameter="labels")
    if seed < 0:
        raise LevelheadError(f"expected 0 or more, got {seed}", parameter="seed")
    with quiet():
        return compare(
            samples.logits,
            samples.labels,
            samples.counts,
            metric=Goal(metric, _read(cost, "cost")),
            rule=Auto(_range_up_to(most), _read(norms, "norms")),
            target=None if target is None else target_shares(target, samples.names, len(samples.counts)),
            kind=kind,
            repeats=repeats,
            rng=seed,
            names=samples.names,
        )


def write_choice(
    tuned: Tuned,
    samples: Samples,
    request: TuneRequest,
    *,
    out: Path | None,
    plot: Path | None,
    page: Path | None,
    command: str,
) -> None:
    """Write the choice for `levelhead adjust --tuned`, draw its curve and write its page, each if it has a path."""
    files: dict[str, Any] = {**samples.files, "norms": request.norms}
    target = request.target if tuned.prior is None else ",".join(map(str, tuned.prior.shares.tolist()))
    samples.check_unchanged()
    if out is not None:
        sources = describe_sources(
            files, samples.counts, kind=request.kind, target=target, background=request.background
        )
        write_tuned(tuned.to_dict(), out, sources)
    if plot is not None:
        save_plot(tuned.plot, plot)
    if page is not None:
        from ..report import of_choice, write

        files.setdefault("counts", samples.counts.tolist())
        subject = of_choice(tuned, **files, target=target, kind=request.kind, background=request.background)
        write(page, [replace(subject, tuned_file="" if out is None else str(out))], command=command)


def _read(source: Path | None, wanted: str = "logits") -> np.ndarray | None:
    return None if source is None else arrays.read(source, wanted=wanted)


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise LevelheadError(
            f"expected a recall such as 0.6, or CLASS=0.6, got {value!r}", parameter="floors"
        ) from None


def _range_up_to(most: float | None) -> tuple[float, float] | None:
    if most is None:
        return None
    if not 0 < most < np.inf:
        raise LevelheadError(f"expected a finite gamma above 0, got {most:g}", parameter="most")
    return 0.0, most
