"""What `levelhead tune --task multilabel` does: choose an offset for each label on samples from files."""

from pathlib import Path
from typing import Any

from ..choice.tuned import Tuned
from ..core.errors import LevelheadError
from ..core.warnings import quiet
from ..io import arrays
from ..io.samples_file import Samples
from ..labels.label_inputs import check_multilabel_options
from ..labels.tune_labels import tune_labels
from ..show.progress import stage_progress
from .tune_files import TuneRequest


def tune_label_files(samples: Samples, request: TuneRequest, **not_for_labels: Any) -> Tuned:
    """Choose an offset for each label. The result holds the warnings. Options that are not for labels are refused."""
    for name, value in not_for_labels.items():
        if value is not None:
            raise LevelheadError("not for several labels per sample; leave it out", parameter=name)

    apart = {"unlabelled": request.unlabelled, "target": request.target, "norms": request.norms}
    check_multilabel_options(request.rule, request.criterion, **apart)

    def read(source: Path | None, wanted: str) -> Any:
        return None if source is None else arrays.read(source, wanted=wanted)

    with quiet(), stage_progress(samples.logits.size) as progress:
        return tune_labels(
            samples.logits,
            samples.labels,
            samples.counts,
            metric=request.metric,
            cost=read(request.cost, "cost"),
            floors=request.class_floors(),
            chosen_on=request.chosen_on,
            bootstrap=request.bootstrap,
            rng=request.seed,
            training=read(request.training, "logits"),
            names=samples.names,
            kind=request.kind,
            progress=progress,
        )
