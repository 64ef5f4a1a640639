"""Adjust the head of a model's file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.array import Array
from ..core.choices import BiasPolicy, Missing
from ..core.counts import Counts, resolve
from ..core.errors import Advice, LevelheadError, check_choice
from ..core.per_class import listed
from ..heads.apply import apply, check_fits
from ..heads.place import Change
from ..rules.adjust import check_strength
from ..rules.rule import RULES, Rescale, Strengths, find_path_rule
from ..show.progress import ByteProgress
from .format import companion_files
from .locate import locate_head
from .place import InFile, WrittenFile


@dataclass(frozen=True, eq=False)
class RescaleResult:
    """What `rescale_file` or `adjust_file` did.

    Args:
        path, out, original: the files read and written; original is None if it was not kept.
        head: the layers that were scaled.
        rule, gamma, bias: what was done; bias is None if the head has none.
        counts, factors: [K]; for the rule `shift`, factors are what was added to the bias. A head with one logit has
            two counts.
        offset: [K], what was added to each bias after it was multiplied; None for rules of one strength.
        before, after: [K], lengths of the weight vectors of the first layer.
        sha256: of each changed file as it was, by its new name.
        names: class names, where known.
        flips: how many predictions rounding could flip, if logits were given and the head has half precision.
        notes: what to know about the result.
    """

    path: str
    out: str
    original: str | None
    head: tuple[str, ...]
    rule: str
    gamma: float
    bias: BiasPolicy | None
    counts: np.ndarray
    factors: np.ndarray
    before: np.ndarray
    after: np.ndarray
    sha256: Mapping[str, str]
    names: tuple[str, ...] | None = None
    offset: np.ndarray | None = None
    flips: int | None = None
    notes: tuple[str, ...] = ()


def rescale_file(
    path: str | Path,
    out: str | Path,
    counts: Counts,
    *,
    gamma: float,
    rule: str = "rescale",
    head: str | None = None,
    bias: BiasPolicy = "scale",
    missing: Missing = "error",
    background: int | str | None = None,
    original: bool = True,
    force: bool = False,
    again: bool = False,
    logits: Array | None = None,
    names: Sequence[str] | None = None,
    chosen: Mapping[str, Any] | None = None,
    progress: ByteProgress | None = None,
) -> RescaleResult:
    """Write a model's file with its head adjusted; every other byte is copied.

    ``w_i <- (n_1 / n_i)^gamma w_i``, or another `rule`: `tau` for ``w_i / ||w_i||^gamma``, `shift` for
    ``b_i + gamma log(n_1 / n_i)``.

    Args:
        path: a `.safetensors` file (its index or folder if sharded), an `.onnx`, a state dict as `.pt`, `.pth`, `.bin`,
            a `.keras` or `.weights.h5` of Keras 3.
        out: where to write; a folder for a sharded model.
        counts: training samples of each class; [negative, positive] for a head with one logit.
        gamma: strength; 0 changes nothing.
        rule: what to do with the head.
        head: the layer, such as `classifier`, where it cannot be found without; `a,b` where two feed one output.
        bias: `scale` it with its weight vector, or `keep` it.
        missing: how to treat a class without samples: as an `error`, or as `neutral`.
        background: a class that is left alone, by index or name, such as "no object" in detection; its count is no n_1.
        original: keep the head's old bytes in `out.original`, from which `undo_file` restores the input exactly.
        force: replace files that exist.
        again: adjust a file that was adjusted before.
        logits: [N, K] of the model as it is, to count the predictions that rounding to half precision could flip.
        names: of the classes, in order; otherwise `id2label` in a config.json next to the model.
        chosen: the content of a file that `levelhead tune` wrote, where gamma comes from it. It must be of a head with
            as many classes and of the same counts; its doubts become notes of the result.
        progress: called with the number of bytes copied since the last call.

    Returns:
        What was done: the files, the factors, and the norms before and after.

    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.numpy import save_file
    >>> with TemporaryDirectory() as folder:
    ...     model, out = Path(folder, "model.safetensors"), Path(folder, "leveled.safetensors")
    ...     save_file({"fc.weight": np.eye(2, dtype=np.float32)}, model)
    ...     rescale_file(model, out, [100, 25], gamma=0.5).after
    array([1., 2.])

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    made = find_path_rule(rule)
    check_choice("bias", bias, ("scale", "keep"))
    if background is not None:
        from ..choice.goal import check_background  # loads as much as all else here, and few need it

        check_background(background, rule, summary=False)
    found = locate_head(path, head=head, counts=counts, names=names)
    place = InFile(found, Path(path), Path(out), original, force, progress)
    check_fits(place, made)
    classes, names = (2, None) if found.classes == 1 else (found.classes, found.names)
    n = resolve(counts, classes, names=names, missing=missing, background=background)
    strength = Strengths(check_strength(gamma, rule, n, instead="adjust_file(path, out, tuned)"))
    if chosen is not None:
        _check_chosen(Path(path), chosen, classes, n)
    return result(place, *apply(place, made, strength, n, bias=bias, logits=logits, again=again), chosen)


def result(place: InFile, change: Change, written: WrittenFile, chosen: Mapping[str, Any] | None) -> RescaleResult:
    """Return what was done to a file; `chosen` is what was tuned, where it was."""
    return RescaleResult(
        path=str(place.path),
        out=str(written.out),
        original=f"{written.out}.original" if place.original else None,
        head=place.keys,
        rule=change.rule.name,
        gamma=change.gamma,
        bias=None if change.before[0].bias is None else change.by.bias,
        counts=change.counts,
        factors=change.by.first,
        offset=change.offset,
        before=written.before,
        after=written.after,
        sha256={name: o.sha256 for name, o in written.originals.items()},
        names=place.names,
        flips=change.flips,
        notes=tuple(_notes(place, change, chosen)),
    )


def given_or_tuned_gamma(gamma: float | None, rule: str | None, tuned: str | Path | None) -> dict[str, Any]:
    """Return `gamma`, `rule` and `chosen` for `rescale_file`: as given, or from a file that `levelhead tune` wrote."""
    if gamma is None and tuned is None:
        advice = Advice("tuned", None, "to take it from a file that `levelhead tune` wrote")
        raise LevelheadError("expected a number, got none", parameter="gamma", advice=advice)
    if gamma is not None and tuned is not None:
        raise LevelheadError("expected gamma or a file that `levelhead tune` wrote, not both")
    if tuned is None:
        return {"gamma": gamma, "rule": rule or Rescale.name, "chosen": None}
    from ..choice.tuned_json import read_choice

    chosen = read_choice(tuned, rule=rule)
    if chosen.get("task") == "multilabel":
        raise LevelheadError(f"{tuned}: chosen for several labels per sample; use `levelhead adjust`")
    return {"gamma": float(chosen["gamma"]), "rule": chosen["rule"], "chosen": chosen}


def _check_chosen(path: Path, chosen: Mapping[str, Any], classes: int, n: np.ndarray) -> None:
    from ..choice.tuned_json import same_counts

    if chosen.get("classes") not in (None, classes):
        raise LevelheadError(f"{path}: gamma was tuned on {chosen['classes']} classes, but this head has {classes}")
    if (reason := RULES[chosen["rule"]].refuses_kind(chosen.get("kind"))) is not None:
        raise LevelheadError(f"{path}: {reason}")
    if not same_counts(chosen, n):
        raise LevelheadError(f"{path}: gamma was tuned with other counts; give those, tune again, or give gamma itself")


def _notes(place: InFile, change: Change, chosen: Mapping[str, Any] | None) -> list[str]:
    notes, found = [], place.found
    if change.before[0].bias is None and change.after[0].bias is not None:
        notes.append("the head had no bias and has one now")
    if chosen:
        from ..choice.tuned import reason_to_keep_zero

        met = chosen.get("floors_met_at_zero")
        doubt = reason_to_keep_zero(chosen["gamma"], chosen.get("gain"), chosen.get("gain_interval"), floors_met=met)
        notes += [f"where gamma was chosen, {doubt}"] if doubt else []
    if change.stuck:
        notes.append(
            "the two rows of this head are opposite: scaling never changes its predictions; use the rule shift"
        )
    if change.flips:
        notes.append(f"rounding to half precision could flip {change.flips} of the predictions given")
    if left_out := companion_files(found.path.parent, found.files)[1] if found.folder else []:
        notes.append(f"copied with its config, tokenizer and the like; left out: {listed(left_out)}")
    if change.rule.multiplies:
        notes.append("probabilities are no longer calibrated; fit a temperature if you use them")
    return notes
