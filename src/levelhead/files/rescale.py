"""Adjust the head of a model's file: the table of formats, and what is done to each row of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from .._version import __version__
from ..core.adjust import RULES, BiasPolicy, RuleName, can_flip, factors, rescale, shift_logits, tau_normalize
from ..core.array import Array, to_numpy
from ..core.counts import Counts, Missing, resolve
from ..core.errors import LevelheadError, check_choice
from ..core.head import Head
from ..core.precision import rounding_flips
from ..core.measure import check_logits
from ..gamma.tuned import reason_to_keep_zero
from ..show.progress import ByteProgress
from . import onnx, safetensors, state_dict
from .find import NoHead
from .format import Format
from .spans import Found, Place, decode, encode, load

FORMATS: tuple[Format, ...] = (safetensors.FORMAT, onnx.FORMAT, state_dict.FORMAT)

RUNS_CODE = "opening it would run whatever code it holds"
REFUSED = {  # suffix: why it is never opened, and the way out
    ".pt2": f"a torch.export archive: {RUNS_CODE}; save model.state_dict(), or rescale before exporting",
    ".pkl": f"a pickle: {RUNS_CODE}; save model.state_dict(), or use lh.rescale_(model, ...) in Python",
    ".pickle": f"a pickle: {RUNS_CODE}; save model.state_dict(), or use lh.rescale_(model, ...) in Python",
    ".joblib": f"a joblib pickle: {RUNS_CODE}; use levelhead.hosts.sklearn.RescaledClassifier in Python",
    ".bin.index.json": "an index of pickled shards; save the model as safetensors (save_pretrained does)",
}
HALVES = {"F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, eq=False)
class Done:
    """What `rescale_file` did.

    Args:
        path, out, original: the files read and written; original is None if it was not kept.
        head: the layers that were scaled.
        rule, gamma, bias: what was done; bias is None if the head has none.
        counts, factors: [K]; for the rule `shift`, factors are what was added to the bias.
        before, after: [K], lengths of the weight vectors of the first layer.
        sha256: of each changed file as it was, by its new name.
        flips: how many predictions rounding could flip, if logits were given and the head has half precision.
        notes: what to know about the result.
    """

    path: str
    out: str
    original: str | None
    head: tuple[str, ...]
    rule: RuleName
    gamma: float
    bias: BiasPolicy | None
    counts: np.ndarray
    factors: np.ndarray
    before: np.ndarray
    after: np.ndarray
    sha256: Mapping[str, str]
    names: tuple[str, ...] | None = None
    flips: int | None = None
    notes: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in asdict(self).items()}


class Strength(TypedDict):
    """How much of which rule."""

    gamma: float
    rule: str
    chosen: Mapping[str, Any] | None


def format_of(path: str | Path) -> Format:
    """The format of a model's file, by its name; a ValueError says why a file is not taken, and it is not opened."""
    path = Path(path)
    for suffix, reason in REFUSED.items():
        if path.name.lower().endswith(suffix):
            raise LevelheadError(f"{path}: {reason}")
    if not path.exists():
        raise LevelheadError(f"{path}: no such file")
    if path.is_dir():
        return safetensors.FORMAT
    for one in FORMATS:
        if path.name.lower().endswith(one.suffixes):
            return one
    known = ", ".join(suffix for one in FORMATS for suffix in one.suffixes)
    raise LevelheadError(f"{path}: expected a model as {known}, got {path.suffix or 'no suffix'}")


def find(path: str | Path, *, head: str | None = None, counts: Counts | None = None) -> Found:
    """Where the head of a model's file is. Counts help to tell it from other layers, and so does an earlier rescale."""
    path, sized = Path(path), hasattr(counts, "__len__") and getattr(counts, "shape", None) != ()
    size = len(counts) if sized else None  # type: ignore[arg-type]
    one = format_of(path)
    try:
        return one.find(path, named=head, classes=size)
    except ValueError as error:
        noted = (one.note(path) or {}).get("head") if head is None else None
        if noted:
            return one.find(path, named=",".join(noted))
        if size is None or not isinstance(error, NoHead):
            raise
    return one.find(path, named=head)  # the counts are wrong in number, or are labels: to be told when K is known


def rescale_file(
    path: str | Path,
    out: str | Path,
    counts: Counts,
    *,
    gamma: float,
    rule: RuleName = "rescale",
    head: str | None = None,
    bias: BiasPolicy = "scale",
    missing: Missing = "error",
    original: bool = True,
    force: bool = False,
    again: bool = False,
    logits: Array | None = None,
    chosen: Mapping[str, Any] | None = None,
    progress: ByteProgress | None = None,
) -> Done:
    """Write a model's file with its head adjusted; every other byte is copied.

    ``w_i <- (n_1 / n_i)^gamma w_i``, or another `rule`: `tau` for ``w_i / ||w_i||^gamma``, `shift` for
    ``b_i + gamma log(n_1 / n_i)``.

    Args:
        path: a `.safetensors` file (its index or folder if sharded), an `.onnx`, a state dict as `.pt`, `.pth`, `.bin`.
        out: where to write; a folder for a sharded model.
        counts: training samples of each class.
        head: the layer, such as `classifier`, where it cannot be found by itself.
        bias: `scale` it with its weight vector, or `keep` it.
        missing: what a class with no samples is: an `error`, or `neutral`.
        original: keep the head's old bytes in `out.original`, from which `undo_file` gives the very input back.
        force: replace files that exist.
        again: adjust a file that was adjusted before.
        logits: [N, K] of the model as it is, to tell how many predictions rounding to half precision could flip.
        chosen: what `levelhead tune -o` wrote, where gamma comes from it: it says nothing of a head of other classes,
            nor with other counts, and its doubts stand in the notes.
    """
    path, out = Path(path), Path(out)
    check_choice("rule", rule, RULES)
    found = find(path, head=head, counts=counts)
    if found.note and not again:
        was = f"{found.note['rule']}, gamma {found.note['gamma']:g}"
        raise LevelheadError(
            f"{path} was adjusted before ({was}), and scaling twice is rarely meant; take the original, "
            "`levelhead undo` this one, or pass --again"
        )
    _check_rule(found, rule)
    place, heads = found.places[0], [load(place, found.names) for place in found.places]
    n = resolve(counts, place.classes, names=found.names, missing=missing)
    if chosen is not None:
        _check_chosen(path, chosen, place.classes, n)
    adjusted = [_adjust(one, n, gamma, rule, bias) for one in heads]
    for where, before, after in zip(found.places, heads, adjusted, strict=True):
        _check_kept(where, before, after)
    by = _amounts(heads[0], n, gamma, rule)
    scores = None if logits is None else check_logits(logits)
    if scores is not None and scores.shape[1] != place.classes:
        raise LevelheadError(f"expected logits [N, {place.classes}], one column per class, got {list(scores.shape)}")
    flips = (
        rounding_flips(scores, by, HALVES[place.weight.dtype])
        if (scores is not None and rule != "shift" and place.weight.dtype in HALVES)
        else None
    )
    out = target_of(path, out, found.folder)
    note = {
        "version": __version__,
        "rule": rule,
        "gamma": float(gamma),
        "bias": bias,
        "counts": n.tolist(),
        "head": [one.key for one in found.places],
        "factors": by.tolist(),
    }
    note |= {"before": found.note} if found.note else {}
    kept = format_of(path).save(found, adjusted, out, note=note, keep=original, force=force, progress=progress)
    return Done(
        str(path),
        str(out),
        f"{out}.original" if original else None,
        tuple(one.key for one in found.places),
        rule,
        float(gamma),
        bias if heads[0].bias is not None else None,
        n,
        by,
        _norms(heads[0]),
        _norms(adjusted[0]),
        {name: o.sha256 for name, o in kept.items()},
        found.names,
        flips,
        tuple(_notes(heads[0], rule, flips, found.folder, chosen)),
    )


def strength(gamma: float | None, rule: str | None, tuned: str | Path | None) -> Strength:
    """Gamma and rule as given, or as `tune` chose them: one of the two must say."""
    if (gamma is None) == (tuned is None):
        raise LevelheadError(
            f"expected --gamma or --tuned, what `levelhead tune -o` wrote{'' if gamma is None else ', not both'}"
        )
    if gamma is not None:
        return {"gamma": gamma, "rule": rule or "rescale", "chosen": None}
    from ..io.tuned_json import read_choice

    chosen = read_choice(tuned, rule=rule)  # type: ignore[arg-type]
    return {"gamma": float(chosen["gamma"]), "rule": chosen["rule"], "chosen": chosen}


def target_of(path: Path, out: Path, folder: bool) -> Path:
    """The output's path: a folder for a folder (its index may be named instead), a file of the same kind for a file."""
    if folder:
        return named(out.parent if out.name.endswith(safetensors.INDEX) else out)
    if not out.name.lower().endswith(format_of(path).suffixes):
        raise LevelheadError(f"{out}: expected an output that ends in {path.suffix}, as the input does")
    return out


def named(folder: Path) -> Path:
    """The same folder by its name, which `.` and `..` do not say: a file beside it is called after it."""
    return folder.resolve() if folder.name in ("", "..") else folder


def _check_rule(found: Found, rule: RuleName) -> None:
    first, titles = found.places[0], ", ".join(place.key for place in found.places)
    reasons = {
        "gives a single logit, whose sign no scaling moves; add gamma log(n_negative / n_positive) to its bias, "
        "the additive shift": first.classes < 2,
        "differ in classes; name one with --head": len({place.classes for place in found.places}) > 1,
        "feed one output, which only rule='rescale' fits": rule != "rescale" and len(found.places) > 1,
        "is scaled by a constant, in it or after it, which only rule='rescale' fits": rule != "rescale"
        and not first.plain,
        "has no bias to shift, and the model expects none; use rule='rescale'": rule == "shift" and first.bias is None,
    }
    for reason, applies in reasons.items():
        if applies:
            raise LevelheadError(f"{found.path}: {titles} {reason}")


def _check_kept(place: Place, before: Head, after: Head) -> None:
    """Raise if a weight vector would be lost: too small for the file's numbers, all of it becomes 0."""
    kept = decode(encode(to_numpy(after.weight), place.weight.dtype), place.weight.dtype).reshape(place.shape)
    lost = to_numpy(before.weight).any(axis=1) & ~kept.any(axis=1)
    if lost.any():
        raise LevelheadError(
            f"{place.weight.file}: {place.key}, in {place.weight.dtype}, would become 0 in "
            f"{before.name(int(np.argmax(lost)))}: use a gamma nearer to 0, or save the model in float32 first"
        )


def _adjust(head: Head, counts: np.ndarray, gamma: float, rule: RuleName, bias: BiasPolicy) -> Head:
    if rule == "tau":
        return tau_normalize(head, gamma, bias=bias)
    if rule == "shift":
        return shift_logits(head, counts, gamma)
    return rescale(head, counts, gamma=gamma, bias=bias)


def _amounts(head: Head, counts: np.ndarray, gamma: float, rule: RuleName) -> np.ndarray:
    """What each class is multiplied by or, for `shift`, what its bias is moved by, [K]."""
    if rule == "tau":
        return _norms(head) ** -gamma
    return gamma * np.log(counts.max() / counts) if rule == "shift" else factors(counts, gamma)


def _norms(head: Head) -> np.ndarray:
    return to_numpy(head.norms).astype(np.float64)


def _check_chosen(path: Path, chosen: Mapping[str, Any], classes: int, n: np.ndarray) -> None:
    from ..io.tuned_json import same_counts

    if chosen.get("classes") not in (None, classes):
        raise LevelheadError(f"{path}: gamma was chosen on logits of {chosen['classes']} classes, this head has {classes}; "
                         "tune on the logits of this model")
    if not same_counts(chosen, n):
        raise LevelheadError(f"{path}: gamma was chosen with other counts than these; give those, tune again with these, "
                         "or say --gamma instead of --tuned")


def _notes(
    head: Head, rule: RuleName, flips: int | None, folder: bool, chosen: Mapping[str, Any] | None
) -> list[str]:
    doubt = None if chosen is None else reason_to_keep_zero(chosen["gamma"], chosen.get("gain"), chosen.get("gain_interval"))
    notes = [] if doubt is None else [f"where gamma was chosen, {doubt}"]
    if rule != "shift" and not can_flip(head):
        notes.append("the two rows of this head are opposite: scaling never changes its predictions; use --rule shift")
    if flips:
        notes.append(f"rounding to half precision could flip {flips} of the predictions given")
    if folder:
        notes.append(
            "only the model's own files were copied: its config and tokenizer, if it has any, are yours to copy"
        )
    if rule != "shift":
        notes.append("probabilities are no longer calibrated: fit a temperature if you use them")
    return notes
