"""Adjust the head of a model's file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..core.array import Array, to_numpy
from ..core.choices import BiasPolicy, LabelTask, Missing
from ..core.counts import Counts, check_left_alone, resolve
from ..core.errors import Advice, LevelheadError, check_choice, in_file
from ..core.head import Head, rounding_flips
from ..core.logits import check_logits
from ..core.per_class import listed
from ..rules.adjust import can_flip
from ..rules.adjustment import Adjustment
from ..rules.label_task import check_label_task
from ..rules.rule import RULES, Rescale, Rule, Strengths, find_path_rule
from ..rules.strength import check_strength
from ..show.progress import ByteProgress
from .companions import companion_files
from .large_heads import LargeHead, adjust_large, is_large, thin_head
from .locate import format_of, locate_head, output_path
from .spans import LayerSpans, LocatedHead, decode, encode, load

HALVES = {"F16": "float16", "BF16": "bfloat16"}


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
        from ..choice.options import check_background  # loads as much as all else here, and few need it

        check_background(background, rule, summary=False)
    found = locate_head(path, head=head, counts=counts, names=names)
    check_rule_fits(found, made, again=again)
    classes, names = (2, None) if found.classes == 1 else (found.classes, found.names)
    n = resolve(counts, classes, names=names, missing=missing, background=background)
    strength = check_strength(gamma, rule, n, instead="adjust_file(path, out, tuned)")
    if chosen is not None:
        _check_chosen(Path(path), chosen, classes, n)
    return write_adjusted(
        found,
        Path(path),
        Path(out),
        n,
        gamma=strength,
        rule=rule,
        bias=bias,
        original=original,
        force=force,
        logits=logits,
        chosen=chosen,
        progress=progress,
    )


def write_adjusted(
    found: LocatedHead,
    path: Path,
    out: Path,
    n: np.ndarray,
    *,
    gamma: float,
    rule: str,
    bias: BiasPolicy,
    original: bool,
    force: bool,
    logits: Array | None,
    chosen: Mapping[str, Any] | None,
    progress: ByteProgress | None,
    scale: Sequence[float] = (),
    offset: Sequence[float] = (),
    background: int | str | None = None,
) -> RescaleResult:
    """Do what `rescale_file` and `adjust_file` share, once the head is found and the counts [K] are checked."""
    large = is_large(found) and not RULES[rule].needs_norms and logits is None
    heads = [thin_head(layer, found.names) if large else load(layer, found.names) for layer in found.layers]
    chosen_numbers = Strengths(gamma, scale=scale, offset=offset)
    by = replace(RULES[rule].amounts(heads[0], n, chosen_numbers), bias=bias)
    check_left_alone(by.scale, by.offset, background, found.names)
    with in_file(path):
        adjusted = [by.head(one) if by.changes else one for one in heads]  # 0 needs no new bias
    offset_after = None if by.scale is None else by.offset
    written: list[Head | LargeHead] = [*adjusted]
    if large:
        written = [adjust_large(found.layers[0], by.scale, adjusted[0].bias, found.names)]
    else:
        for layer, before, after in zip(found.layers, heads, adjusted, strict=True):
            _check_not_lost(layer, before, after)
    flips = None if logits is None else _count_flips(found.layers[0], check_logits(logits), by)
    out = output_path(path, out, found.folder)
    note = {
        "version": __version__,
        "rule": rule,
        "gamma": gamma,
        "bias": bias,
        "counts": n.tolist(),
        "head": list(found.keys),
        "factors": by.first.tolist(),
    }
    note |= {} if offset_after is None else {"offset": offset_after.tolist()}
    note |= {"before": found.note} if found.note else {}
    left_out = companion_files(found.path.parent, found.files)[1] if found.folder else []
    kept = format_of(path).save(found, written, out, note=note, keep=original, force=force, progress=progress)
    return RescaleResult(
        path=str(path),
        out=str(out),
        original=f"{out}.original" if original else None,
        head=found.keys,
        rule=rule,
        gamma=gamma,
        bias=None if heads[0].bias is None else bias,
        counts=n,
        factors=by.first,
        offset=offset_after,
        before=written[0].before if isinstance(written[0], LargeHead) else _norms(heads[0]),
        after=written[0].after if isinstance(written[0], LargeHead) else _norms(adjusted[0]),
        sha256={name: o.sha256 for name, o in kept.items()},
        names=found.names,
        flips=flips,
        notes=tuple(_notes(heads[0], adjusted[0], RULES[rule], flips, left_out, chosen)),
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


def check_rule_fits(found: LocatedHead, rule: Rule, *, again: bool, task: LabelTask = "multiclass") -> None:
    """Check that the head in a file can be adjusted by a rule, and that it was not adjusted before unless `again`."""
    first, where, form = found.layers[0], f"{found.path}: {', '.join(found.keys)}", format_of(found.path)
    if (note := found.earlier) and not again:
        was = f"{found.path} was adjusted before ({note['rule']}, gamma {note['gamma']:g})"
        raise LevelheadError(f"{was}; undo that first", advice=Advice("again", None, "to adjust it a second time"))
    check_label_task(where, found.known_task, task)
    if first.classes < 2 and rule.multiplies:
        raise LevelheadError(
            f"{where} gives a single logit, and scaling never moves its sign; use the rule shift, "
            "which adds gamma log(n_negative / n_positive) to its bias"
        )
    if len({layer.classes for layer in found.layers}) > 1:
        raise LevelheadError(f"{where} differ in classes", advice=Advice("head", None, "to name one of them"))
    reasons = {"feed one output": len(found.layers) > 1, "is scaled by a constant or bent by a Relu": not first.plain}
    for reason, applies in reasons.items():
        if applies and not rule.fits_sums:
            raise LevelheadError(
                f"{where} {reason}, and the rule {rule.name} does not fit that; tune with the rule rescale"
            )
    if rule.adds and first.bias is None and form.add_bias is None:
        raise LevelheadError(
            f"{where} has no bias to shift, and a {form.name} file cannot hold one that the model "
            "does not expect; use the rule rescale, an ONNX file, or lh.adjust_ in memory"
        )


def _check_chosen(path: Path, chosen: Mapping[str, Any], classes: int, n: np.ndarray) -> None:
    from ..choice.tuned_json import same_counts

    if chosen.get("classes") not in (None, classes):
        raise LevelheadError(f"{path}: gamma was tuned on {chosen['classes']} classes, but this head has {classes}")
    if (reason := RULES[chosen["rule"]].refuses_kind(chosen.get("kind"))) is not None:
        raise LevelheadError(f"{path}: {reason}")
    if not same_counts(chosen, n):
        raise LevelheadError(f"{path}: gamma was tuned with other counts; give those, tune again, or give gamma itself")


def _check_not_lost(layer: LayerSpans, before: Head, after: Head) -> None:
    """Check that no weight vector becomes 0 because it is too small for the file's numbers."""
    kept = decode(encode(to_numpy(after.weight), layer.weight.dtype), layer.weight.dtype).reshape(layer.shape)
    lost = to_numpy(before.weight).any(axis=1) & ~kept.any(axis=1)
    if lost.any():
        name, where = before.name(int(np.argmax(lost))), f"{layer.weight.file}: {layer.key}, in {layer.weight.dtype},"
        raise LevelheadError(f"{where} would become 0 in {name}: use a gamma nearer to 0, or save it in float32 first")


def _count_flips(layer: LayerSpans, logits: np.ndarray, by: Adjustment) -> int | None:
    if layer.classes > 1 and logits.shape[1] != layer.classes:
        raise LevelheadError(f"expected [N, {layer.classes}], got {list(logits.shape)}", parameter="logits")
    dtype = layer.weight.dtype
    return rounding_flips(logits, by.first, HALVES[dtype]) if by.offset is None and dtype in HALVES else None


def _norms(head: Head) -> np.ndarray:
    return to_numpy(head.norms).astype(np.float64)


def _notes(
    head: Head, adjusted: Head, rule: Rule, flips: int | None, left_out: Sequence[str], chosen: Mapping[str, Any] | None
) -> list[str]:
    notes = []
    if head.bias is None and adjusted.bias is not None:
        notes.append("the head had no bias and has one now")
    if chosen:
        from ..choice.tuned import reason_to_keep_zero

        met = chosen.get("floors_met_at_zero")
        doubt = reason_to_keep_zero(chosen["gamma"], chosen.get("gain"), chosen.get("gain_interval"), floors_met=met)
        notes += [f"where gamma was chosen, {doubt}"] if doubt else []
    if rule.multiplies and not rule.adds and not can_flip(head):
        notes.append(
            "the two rows of this head are opposite: scaling never changes its predictions; use the rule shift"
        )
    if flips:
        notes.append(f"rounding to half precision could flip {flips} of the predictions given")
    if left_out:
        notes.append(f"copied with its config, tokenizer and the like; left out: {listed(left_out)}")
    if rule.multiplies:
        notes.append("probabilities are no longer calibrated; fit a temperature if you use them")
    return notes
