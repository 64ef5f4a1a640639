"""What `levelhead tune` does: choose gamma on samples from files, and write the choice, its curve and its page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.choices import Criterion, Kind, RuleName
from ..core.errors import LevelheadError
from ..core.warnings import quiet
from ..gamma.tune import TuneOptions, tune_with
from ..gamma.tuned import Tuned
from ..io import arrays
from ..io.counts_file import target_shares
from ..io.samples import Samples
from ..io.tuned_json import describe_sources, write_tuned
from ..show.plot import save_plot
from ..show.progress import stage_progress


@dataclass(frozen=True)
class TuneRequest:
    """What was asked of `levelhead tune` about its samples; see the help of its options."""

    rule: RuleName
    criterion: Criterion
    kind: Kind
    target: str | None
    most: float
    unlabelled: Path | None
    norms: Path | None
    training: Path | None
    chosen_on: str
    bootstrap: int
    seed: int

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise LevelheadError(f"expected 0 or more, got {self.seed}", parameter="seed")
        if not 0 < self.most < np.inf:
            raise LevelheadError(f"expected a finite gamma above 0, got {self.most:g}", parameter="most")

    def check_unlabelled(self) -> None:
        """Check that nothing was asked that needs labels."""
        for name in ("unlabelled", "training"):
            if getattr(self, name) is not None:
                raise LevelheadError("--logits are the unlabelled ones if --labels is left out", parameter=name)
        if self.criterion != "guided":
            raise LevelheadError(f"{self.criterion!r} needs --labels", parameter="criterion")


def tune_files(samples: Samples, request: TuneRequest) -> Tuned:
    """Choose gamma with `tune`, or with `match_prior` if there are no labels. The result holds the warnings."""
    if samples.labels is None:
        request.check_unlabelled()
    target = None if request.target is None else target_shares(request.target, samples.names, len(samples.counts))
    with quiet(), stage_progress(samples.logits.size) as progress:
        options = TuneOptions(
            target=target, rule=request.rule, range=(0.0, request.most), kind=request.kind, names=samples.names,
            norms=_read(request.norms, "norms"), bootstrap=request.bootstrap, rng=request.seed, progress=progress,
            criterion=request.criterion, unlabelled=_read(request.unlabelled), training=_read(request.training),
            chosen_on=request.chosen_on)
        return tune_with(options, samples.logits, samples.labels, samples.counts)


def write_choice(
    tuned: Tuned, samples: Samples, request: TuneRequest, *, out: Path | None, plot: Path | None, page: Path | None,
    command: str,
) -> None:
    """Write the choice for `levelhead adjust --tuned`, draw its curve and write its page, each if it has a path."""
    files: dict[str, Any] = {**samples.files, "norms": request.norms}
    if out is not None:
        sources = describe_sources(files, samples.counts, kind=request.kind, target=request.target)
        write_tuned(tuned.to_dict(), out, sources)
    if plot is not None:
        save_plot(tuned.plot, plot)
    if page is not None:
        from ..report import of_choice, write

        write(page, [of_choice(tuned, **files, target=request.target, kind=request.kind)], command=command)


def _read(source: Path | None, wanted: str = "logits") -> np.ndarray | None:
    return None if source is None else arrays.read(source, wanted=wanted)
