"""Adjust the head of a model's file by what was tuned."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ..choice.tuned import Tuned
from ..choice.tuned_json import choice_of
from ..core.array import Array
from ..core.errors import Advice, LevelheadError
from ..heads.apply import apply_tuned, check_tuned
from ..path.metrics import interval_text
from ..show.progress import ByteProgress
from .locate import locate_head
from .place import InFile
from .rescale import RescaleResult, result


def adjust_file(
    path: str | Path,
    out: str | Path,
    tuned: Tuned | str | Path,
    *,
    head: str | None = None,
    background: int | str | None = None,
    original: bool = True,
    force: bool = False,
    again: bool = False,
    logits: Array | None = None,
    names: Sequence[str] | None = None,
    progress: ByteProgress | None = None,
) -> RescaleResult:
    """Write a model's file with its head adjusted by what was tuned; every other byte is copied.

    The rules are those of `levelhead.adjust`. It does so also where the gain is uncertain; `check_worthwhile` tells.

    Args:
        path, out, head, original, force, again, logits, names, progress: as in `rescale_file`.
        tuned: what `tune`, `cross_fit` or `match_prior` returned, or the path of a file that `levelhead tune` wrote.
            A rule that adds needs a head with a bias, but in an ONNX file, which gets one.

        background: a class that must stay as it is, by index or name; it does if it was tuned with the same background.

    Returns:
        What was done: the files, the rule, what each class was multiplied by or moved by.

    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.numpy import save_file
    >>> from levelhead import match_prior
    >>> tuned = match_prior([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]], [400, 100], bootstrap=0)
    >>> with TemporaryDirectory() as folder:
    ...     model, out = Path(folder, "model.safetensors"), Path(folder, "leveled.safetensors")
    ...     save_file({"fc.weight": np.eye(2, dtype=np.float32)}, model)
    ...     adjust_file(model, out, tuned).after.round(3)
    array([1. , 2.309])
    """
    choice = choice_of(tuned)
    found = locate_head(path, head=head, counts=choice.counts, names=names)
    place = InFile(found, Path(path), Path(out), original, force, progress)
    counts = check_tuned(place, choice)
    if found.names is None and found.classes == len(choice.names or ()):
        place = replace(place, found=replace(found, given_names=choice.names))
    change, written = apply_tuned(place, choice, counts, background=background, logits=logits, again=again)
    return result(place, change, written, asdict(choice))


def check_worthwhile(tuned: Tuned | str | Path) -> None:
    """Raise LevelheadError if the interval of the gain holds 0: the model is then better left as it is.

    Without an interval there is nothing to say, nor where the model as it is does not meet the floors.
    """
    choice = choice_of(tuned)
    if choice.gain_interval is None or choice.gain_interval[0] > 0 or choice.floors_met_at_zero is False:
        return
    between = interval_text(choice.metric or "balanced_error", choice.gain_interval)
    source = f"{tuned}: " if isinstance(tuned, str | Path) else ""
    raise LevelheadError(
        f"{source}no certain gain ({between}), so the model is left as it is and nothing is written",
        advice=Advice("anyway", None, "to adjust it all the same"),
    )
