"""Adjust the head of a model's file: by a strength (`rescale_file`), or by what was tuned (`adjust_file`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from .._version import __version__
from ..core.adjust import check_strength
from ..core.class_names import listed
from ..core.counts import Counts, WithBackground, resolve
from ..core.head import Head
from ..core.rules import RULES, OneStrength, Rule, Strengths, find_path_rule
from ..heads.apply import apply, apply_tuned, check_fits, read_choice
from ..heads.place import Change, Facts
from ..show.style import row_title, table
from ..support.arrays import Array, to_numpy
from ..support.errors import Advice, LevelheadError, check_choice, visible
from ..support.progress import ByteProgress
from ..support.types import BiasPolicy
from .format import Output, companion_files
from .locate import earlier_note, format_of, locate_head, output_path
from .spans import LocatedHead, check_rows, is_large, load, scale_large, thin_head

if TYPE_CHECKING:
    from ..choice.tuned import Tuned

HALVES = {"F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, eq=False)
class RescaleResult:
    """What `rescale_file` or `adjust_file` did."""

    path: str
    out: str
    original: str | None  #: None if it was not kept
    head: tuple[str, ...]  #: the layers that were adjusted
    rule: str
    gamma: float
    bias: BiasPolicy | None  #: None if the head has none
    counts: np.ndarray  #: [K]; two for a head with one logit
    factors: np.ndarray  #: [K]; of a rule that only adds, what was added to each bias
    before: np.ndarray  #: [K], lengths of the weight vectors of the first layer
    after: np.ndarray
    sha256: Mapping[str, str]  #: of each changed file as it was, by its new name
    names: tuple[str, ...] | None = None  #: of the classes, where known
    offset: np.ndarray | None = None  #: [K], what was added to each bias after it was multiplied
    flips: int | None = (
        None  #: how many predictions rounding could flip; None if not asked, or not in half precision
    )
    notes: tuple[str, ...] = ()  #: what to know about the result


@dataclass(frozen=True, eq=False)
class InFile:
    """The head of a model's file, and where the adjusted file goes: a `Place`."""

    path: Path  # of the model, as the caller named it
    to: Output
    found: LocatedHead
    chosen: Tuned | None = None  # what was tuned, where it was

    @property
    def facts(self) -> Facts:
        found, first = self.found, self.found.layers[0]
        where, sizes = (
            f"{found.path}: {', '.join(found.keys)}",
            tuple(layer.classes for layer in found.layers),
        )
        half = HALVES.get(first.weight.dtype)
        return Facts(
            found.keys, where, sizes, found.names, found.task, half, first.plain, self.path
        )

    def earlier(self) -> str | None:
        if (note := earlier_note(self.found)) is None:
            return None
        return f"{self.found.path} was adjusted before ({note['rule']}, gamma {note['gamma']:g}); undo that first"

    def check_adds(self) -> None:
        """Raise if the head has no bias and the file cannot hold one."""
        if self.found.layers[0].bias is None and self.found.add_bias is None:
            held = f"a {format_of(self.found.path).name} file cannot hold one that the model does not expect"
            instead = "use the rule rescale, an ONNX file, or lh.adjust_ in memory"
            raise LevelheadError(f"{self.facts.where} has no bias to shift, and {held}; {instead}")

    def check_takes_bias(self, key: str) -> None:
        pass  # `check_adds` has

    def heads(self, rule: Rule) -> tuple[Head, ...]:
        """Return the head, one for each layer; of a large one, whose rows are read when written, the bias."""
        read = thin_head if is_large(self.found) and not rule.needs_norms else load
        return tuple(read(layer, self.found.names) for layer in self.found.layers)

    def write(self, change: Change) -> RescaleResult:
        """Write the file with the new head and a note in it."""
        rows = None
        if is_large(self.found) and not change.rule.needs_norms:
            rows, *norms = scale_large(self.found.layers[0], change.by.scale, self.found.names)
        else:
            layers = zip(self.found.layers, change.before, change.after, strict=True)
            weights = [
                (layer, to_numpy(old.weight), to_numpy(new.weight)) for layer, old, new in layers
            ]
            norms, *_ = [check_rows(*each, self.found.names) for each in weights]
        to = replace(self.to, path=output_path(self.path, self.to.path, self.found.folder))
        note = {
            "version": __version__,
            "rule": change.rule.name,
            "gamma": change.gamma,
            "bias": change.by.bias,
        }
        note |= {
            "counts": change.counts.tolist(),
            "head": [*self.found.keys],
            "factors": change.by.first.tolist(),
        }
        note |= {} if change.offset is None else {"offset": change.offset.tolist()}
        note |= {"before": self.found.note} if self.found.note else {}
        kept = format_of(self.path).save(self.found, change.after, to, note, rows)
        return RescaleResult(
            path=str(self.path),
            out=str(to.path),
            original=f"{to.path}.original" if to.original else None,
            head=self.found.keys,
            bias=None if change.before[0].bias is None else change.by.bias,
            before=norms[0],
            after=norms[1],
            sha256={name: original.sha256 for name, original in kept.items()},
            names=self.found.names,
            notes=tuple(self._notes(change, norms[0])),
            **change.told,
        )

    def _notes(self, change: Change, norms: np.ndarray) -> Iterator[str]:
        if change.before[0].bias is None and change.after[0].bias is not None:
            yield "the head had no bias and has one now"
        if self.chosen is not None and self.chosen.worthwhile is False:
            yield "no gain was to be expected where it was chosen"
        if change.stuck:
            yield "the two rows of this head are opposite: scaling never changes its predictions; use the rule shift"
        for doubt in change.doubts(norms):
            yield f"{type(doubt).__name__}: {doubt}"
        if change.flips:
            yield f"rounding to half precision could flip {change.flips} of the predictions given"
        if (
            left_out := companion_files(self.found.path.parent, self.found.files)[1]
            if self.found.folder
            else []
        ):
            yield f"copied with its config, tokenizer and the like; left out: {listed(left_out)}"
        if change.rule.multiplies:
            yield "probabilities are no longer calibrated; fit a temperature if you use them"


def rescale_file(
    path: str | Path,
    out: str | Path,
    counts: Counts,
    *,
    gamma: float | Tuned,
    rule: str | OneStrength = "rescale",
    head: str | None = None,
    original: bool = True,
    force: bool = False,
    again: bool = False,
    progress: ByteProgress | None = None,
) -> RescaleResult:
    """Write a model's file with its head adjusted; every other byte is copied.

    ``w_i <- (n_1 / n_i)^gamma w_i``, or another `rule`: `tau` for ``w_i / ||w_i||^gamma``, `shift` for
    ``b_i + gamma log(n_1 / n_i)``.

    Args:
        path: a `.safetensors` file (its index or folder if sharded), an `.onnx`, a state dict as `.pt`, `.pth`, `.bin`,
            a `.keras` or `.weights.h5` of Keras 3.
        out: where to write; a folder for a sharded model.
        counts: training samples of each class; [negative, positive] for a head with one logit. With a class to leave
            alone, such as "no object" in detection, `lh.counts.with_background`.
        gamma: strength; 0 changes nothing.
        rule: what to do with the head. `lh.rules.Rescale(bias=b)` keeps the bias b of the head instead of scaling it.
        head: the layer, such as `classifier`, where it cannot be found without; `a,b` where two feed one output.
        original: keep the head's old bytes in `out.original`, from which `undo_file` restores the input exactly.
        force, again: replace files that exist; adjust a file that was adjusted before.
        progress: called with the number of bytes copied since the last call.

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    to = Output(Path(out), original, force, progress)
    place = InFile(Path(path), to, locate_head(path, head=head, counts=counts))
    bias = "scale" if (kept := find_path_rule(rule).bias) is None else "keep"
    held = thin_head(place.found.layers[0], None).bias if bias == "keep" else None
    if bias == "keep" and (held is None or not np.array_equal(held, to_numpy(kept))):
        raise LevelheadError("the bias that it keeps is not that of the head", parameter="rule")
    return rescale_place(place, counts, gamma=gamma, rule=rule, bias=bias, again=again)


def rescale_place(
    place: InFile, counts: Counts, *, gamma: float | Tuned, rule: str | OneStrength, **options: Any
) -> RescaleResult:
    """Adjust a head that was found by a rule of one strength, with the options of `apply`, and `missing` of counts."""
    made, missing = find_path_rule(rule), options.pop("missing", None)
    check_choice("bias", options.get("bias", "scale"), ("scale", "keep"))
    if isinstance(counts, WithBackground):
        from ..choice.samples import (
            check_background,
        )  # loads as much as all else here, and few need it

        check_background(counts.background, made.name)
    check_fits(place, made)
    classes, names = (
        (2, None) if place.found.classes == 1 else (place.found.classes, place.found.names)
    )
    n = resolve(counts, classes, names=names, missing=missing)
    strength = Strengths(
        check_strength(gamma, made.name, n, instead="adjust_file(path, out, tuned)")
    )
    by_hand = not hasattr(gamma, "rule")  # as a `Tuned` and its gamma have
    return apply(place, made, strength, n, by_hand=by_hand, **options)


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

    The rules are those of `levelhead.adjust`. It does so also where no gain is expected; `check_worthwhile` tells.

    Args:
        path, out, head, original, force, again, progress: as in `rescale_file`.
        tuned: what `tune`, `cross_fit` or `match_prior` returned, or the path of a file that `levelhead tune` wrote.
            A rule that adds needs a head with a bias, but in an ONNX file, which gets one.
        background: a class that must stay as it is, by index or name; it does if it was tuned with the same background.
        logits: [N, K] of the model as it is, to count the predictions that rounding to half precision could flip.
        names: of the classes, in order; otherwise `id2label` in a config.json next to the model.

    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.numpy import save_file
    >>> from levelhead import match_prior
    >>> tuned = match_prior([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]], [400, 100], bootstrap=0)
    >>> with TemporaryDirectory() as folder:
    ...     model, out = Path(folder, "model.safetensors"), Path(folder, "adjusted.safetensors")
    ...     save_file({"fc.weight": np.eye(2, dtype=np.float32)}, model)
    ...     adjust_file(model, out, tuned).after.round(3)
    array([1. , 2.309])
    """
    choice = read_choice(tuned)
    found = locate_head(path, head=head, counts=choice.counts, names=names)
    if found.names is None and found.classes == len(choice.names or ()):
        found = replace(found, given_names=choice.names)
    place = InFile(Path(path), Output(Path(out), original, force, progress), found, choice)
    return apply_tuned(place, choice, background=background, logits=logits, again=again)


def check_worthwhile(tuned: Tuned | str | Path, *, certain: bool = False) -> None:
    """Raise LevelheadError if no gain is to be expected or, if it must be certain, if its interval contains 0."""
    # Without an interval there is nothing to say, nor where the model as it is does not meet the floors.
    choice = read_choice(tuned)
    if choice.gain is None or choice.gain_interval is None or choice.floors_met_at_zero is False:
        return
    if choice.worthwhile and (choice.gain_interval[0] > 0 or not certain):
        return
    from ..choice.path_metrics import gain_text

    gain = gain_text(choice.metric, choice.gain, choice.gain_interval)
    source = f"{tuned}: " if isinstance(tuned, str | Path) else ""
    reason = f"{source}no {'certain ' if certain else ''}gain is to be expected ({gain})"
    advice = Advice("anyway", None, "to adjust it all the same")
    raise LevelheadError(
        f"{reason}, so the model is left as it is and nothing is written", advice=advice
    )


def rescale_text(done: RescaleResult) -> str:
    """Return what changed, class by class, and how to undo it."""
    rule = RULES[done.rule]
    shift, strength = not rule.multiplies, f", gamma {done.gamma:g}" if rule.strengths else ""
    policy = {"scale": ", bias scaled", "keep": ", bias kept", None: ""}[
        None if shift else done.bias
    ]
    then = "" if done.offset is None else "then shift"
    one_logit = len(done.factors) < len(done.counts)
    rows, titles = (
        [],
        ["class", "count", "norm before", "after", "shift" if shift else "factor", then],
    )
    for i in [0] if one_logit else np.argsort(-done.counts, kind="stable").tolist():
        name, count = row_title(i, done.names), f"{done.counts[i]:.15g}"
        name, count = (
            ("the logit", "/".join(f"{n:g}" for n in done.counts)) if one_logit else (name, count)
        )
        offset = "" if done.offset is None else f"{done.offset[i]:.4g}"
        rows.append(
            [name, count, *(f"{x[i]:.4g}" for x in (done.before, done.after, done.factors)), offset]
        )
    what = f"  {visible(', '.join(done.head))}: {rule.title}{strength}{policy}"
    lines = [f"{done.path} -> {done.out}", what, "", *table(titles, rows), ""]
    if done.original:
        undo = f"`levelhead undo {quote(done.out)} -o BACK`"
        lines.append(f"kept {done.original}: {undo} gives the input back, byte for byte")
    if done.flips is not None:
        lines.append(f"predictions that rounding to half precision could flip: {done.flips}")
    return "\n".join([*lines, *(f"note: {visible(text)}" for text in done.notes)])
