"""`tune` from files to a file: what the command does."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core import atomic
from ..core.adjust import RuleName
from ..core.errors import LevelheadError
from ..core.measure import Kind
from ..core.warnings import LevelheadWarning
from ..gamma.tune import Criterion, match_prior, tune
from ..gamma.tuned import Tuned
from ..io import arrays
from ..io.counts_file import target_shares
from ..io.samples import Samples
from ..show.plot import check_picture
from ..show.progress import stage_progress


def tune_files(
    samples: Samples, *, unlabelled: str | Path | None = None, rule: RuleName = "rescale",
    criterion: Criterion = "guided", target: str | None = None, reach: float = 2.0, norms: str | Path | None = None,
    training: str | Path | None = None, kind: Kind = "logits", chosen_on: str = "held-out", bootstrap: int = 1000,
    seed: int = 0,
) -> Tuned:
    """`tune` on files; without labels, `match_prior`. Warnings are in the result and are not raised.

    Args:
        samples: logits, counts and perhaps labels.
        unlabelled, norms, training: what `arrays.read` reads; FILE:KEY names one array of several.
        target: K shares with commas between them, or a file of them like one of counts.
        reach: the range of gamma ends there.
        rule, criterion, kind, chosen_on, bootstrap, seed: as in `tune`.
    """
    if seed < 0:
        raise LevelheadError(f"expected a seed of 0 or more, got {seed}")
    if not 0 < reach < np.inf:
        raise LevelheadError(f"expected --max, the largest gamma tried, above 0 and finite, got {reach:g}")
    scores, n, names = samples.logits, samples.counts, samples.names
    prior = None if target is None else target_shares(target, names, len(n))
    lengths = None if norms is None else arrays.read(norms, wanted="norms")
    with warnings.catch_warnings(), stage_progress(scores.size) as progress:
        warnings.simplefilter("ignore", LevelheadWarning)
        if samples.labels is None:
            if unlabelled is not None or training is not None:
                raise LevelheadError("without --labels the --logits are the unlabelled ones; leave the other file out")
            if criterion != "guided":
                raise LevelheadError(f"without --labels there are only shares to go by; leave out --criterion {criterion}, "
                                 "or give --labels")
            return match_prior(scores, n, prior, rule=rule, range=(0.0, reach), bootstrap=bootstrap, rng=seed,
                               norms=lengths, names=names, kind=kind, progress=progress)
        return tune(
            scores, samples.labels, n, criterion=criterion, rule=rule,
            unlabelled=None if unlabelled is None else arrays.read(unlabelled), target=prior, range=(0.0, reach),
            chosen_on=chosen_on, bootstrap=bootstrap, rng=seed, norms=lengths, names=names, kind=kind,
            training=None if training is None else arrays.read(training), progress=progress,
        )


def check_new(
    out: Path | None, plot: Path | None, page: Path | None = None, *, force: bool, inputs: Sequence[Path | None] = ()
) -> None:
    """Before any work: that what will be written can be, and takes the place of nothing that is read."""
    given = [path for path in (out, plot, page) if path is not None]
    read = [arrays.file_of(source) for source in inputs if source is not None]
    for path in given:
        atomic.check_plain(path)
        if path.exists() and any(file.exists() and path.samefile(file) for file in read):
            raise LevelheadError(f"{path} is an input, which is never overwritten; give another name")
        if os.path.lexists(path) and not force:
            raise FileExistsError(f"{path} exists; pass --force to replace it")
    for path in (out, plot):
        if path is not None and not path.parent.is_dir():
            raise LevelheadError(f"{path.parent}: no such folder to write {path.name} into")
    if len({path.resolve() for path in given}) < len(given):
        raise LevelheadError(f"{given[0]}: expected a file of its own for each of --out, --plot and --report")
    if page is not None and (page.suffix.lower() not in (".html", ".htm") or not page.parent.is_dir()):
        raise LevelheadError(f"{page}: expected a page as .html, in a folder that exists")
    if plot is not None:
        check_picture(plot)
