"""What `levelhead tune` does with a folder of files: each holds logits and labels, and one is in memory at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..choice.chunked import tune_chunks
from ..choice.goal import ESTIMATE, Goal
from ..choice.tuned import Tuned
from ..core.counts import find_background, with_background
from ..core.errors import LevelheadError
from ..core.warnings import quiet
from ..io import arrays
from ..io.per_class_file import target_shares
from ..io.samples_file import Samples, read
from ..rules.rule import rule_with
from .common import TuneRequest, read_floors


def tune_folder(
    folder: Path, counts: Path | None, request: TuneRequest, *, names: Sequence[str] | None, label_column: str | None
) -> tuple[Tuned, Samples]:
    """Choose gamma on all files of a folder, in the order of their names, as on one file that holds all their samples.

    Returns:
        The choice, and the samples of the first file, without what would name that as the source of the choice.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and arrays.has_known_suffix(path))
    if not files:
        raise LevelheadError(f"{folder}: expected files that hold logits and labels, found none", parameter="logits")
    if request.training is not None or request.target == ESTIMATE:
        parameter = "target" if request.training is None else "training"
        raise LevelheadError("this needs all logits in one file", parameter=parameter)
    first = _read(files[0], counts, names, label_column, request.background)

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for file in files:
            part = _read(file, first.counts, first.names, label_column)
            if part.labels is None:
                raise LevelheadError(f"{file}: expected labels next to the logits", parameter="logits")
            yield part.logits, part.labels
            part.check_unchanged()

    n: Any = first.counts
    if request.background is not None:
        n = with_background(n, find_background(request.background, len(n), first.names))
    known = {what: None if path is None else arrays.read(path, wanted=what) for what, path in _files(request).items()}
    target = None if request.target is None else target_shares(request.target, first.names, len(first.counts))
    with quiet():
        tuned = tune_chunks(
            chunks,
            n,
            metric=Goal(request.metric, known["cost"], read_floors(request.floors), request.criterion),
            rule=rule_with(
                request.rule, range=None if request.most is None else (0.0, request.most), norms=known["norms"]
            ),
            target=target,
            unlabelled=known["logits"],
            names=first.names,
            kind=request.kind,
            chosen_on=request.chosen_on,
            bootstrap=request.bootstrap,
            rng=request.seed,
        )
    return tuned, replace(first, files={}, stamps={})


def _files(request: TuneRequest) -> dict[str, Path | None]:
    """Return the files besides the samples, by the name of the array in each."""
    return {"cost": request.cost, "norms": request.norms, "logits": request.unlabelled}


def _read(file: Path, counts: Any, names: Any, label_column: str | None, background: str | None = None) -> Samples:
    return read(file, None, counts, names=names, label_column=label_column, background=background)
