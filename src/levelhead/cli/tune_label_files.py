"""What `levelhead tune --task multilabel` does: choose an offset for each label on samples from files."""

from pathlib import Path
from typing import Any

from ..core.errors import LevelheadError
from ..core.warnings import quiet
from ..gamma.tune import tune
from ..gamma.tuned import Tuned
from ..io import arrays
from ..io.samples import Samples
from ..show.progress import stage_progress
from .tune_files import TuneRequest


def tune_label_files(samples: Samples, request: TuneRequest, **not_for_labels: Any) -> Tuned:
    """Choose an offset for each label. The result holds the warnings. Options that are not for labels are refused."""
    for name, value in not_for_labels.items():
        if value is not None:
            raise LevelheadError("not for several labels per sample; leave it out", parameter=name)

    def read(source: Path | None, wanted: str) -> Any:
        return None if source is None else arrays.read(source, wanted=wanted)

    with quiet(), stage_progress(samples.logits.size) as progress:
        return tune(
            samples.logits,
            samples.labels,
            samples.counts,
            task="multilabel",
            metric=request.metric,
            cost=read(request.cost, "cost"),
            floors=request.class_floors(),
            criterion=request.criterion,
            rule=request.rule,
            unlabelled=request.unlabelled,
            target=request.target,  # type: ignore[arg-type]
            norms=request.norms,
            chosen_on=request.chosen_on,
            bootstrap=request.bootstrap,
            rng=request.seed,
            training=read(request.training, "logits"),
            names=samples.names,
            kind=request.kind,
            progress=progress,
        )
