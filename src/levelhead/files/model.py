"""`adjust_file`: adjust the head of a model's file, by what was tuned or by a rule.

The road: `ModelFile` tells the format and finds the head; `InFile` is that head as a `Place`;
`apply` (heads/apply.py) checks that the choice fits and computes the new head; `InFile.write` hands
it to `Format.save`, which copies the file with the head's bytes and a note changed. The result is
an `AdjustedFile`, which `adjusted_text` puts into words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

import numpy as np

from ..core.class_names import listed
from ..core.counts import Counts
from ..core.head import Head
from ..core.rules import RULES, Rule
from ..core.tuned import Tuned
from ..heads.along import Along
from ..heads.apply import apply
from ..heads.choice import read_choice
from ..heads.notes import done_text
from ..heads.place import Change, Facts, Place
from ..show.style import row_title, table
from ..support.arrays import Array, to_numpy
from ..support.errors import Advice, LevelheadError, check_choice, visible
from ..support.progress import ByteProgress
from ..support.types import BiasPolicy, LabelTask
from .formats import left_out_suffixes
from .large import is_large, scale_large, thin_head
from .locate import ModelFile, earlier_note
from .located import LocatedHead
from .numbers import check_rows, load
from .output import Output, companion_files

HALVES = {
    "F16": "float16",
    "BF16": "bfloat16",
}  # dtypes of half precision, as numpy and torch say them


@dataclass(frozen=True, eq=False)
class AdjustedFile:
    """What `adjust_file` did: where, by which rule, and what it changed in each class.

    Print `adjusted_text` of it for a table. Nothing of it is needed to undo the adjustment: the
    file itself has a note of it.

    Example:
        ``adjust_file("model.onnx", "adjusted.onnx", tuned).offset`` is what was added to biases.
    """

    path: str  #: the model's file, as it was given
    out: str  #: the file or folder that was written
    original: str | None  #: where the old bytes are; None if they were not kept
    head: tuple[str, ...]  #: the layers that were adjusted
    rule: str  #: its name, such as `offsets`
    strength: float | None  #: None for rules with numbers for each class
    scale: np.ndarray  #: [K], what weight vectors and biases were multiplied by
    offset: np.ndarray  #: [K], what was added to biases then
    bias: BiasPolicy | None  #: None if the head had none
    counts: np.ndarray | None  #: [K], where known; two for a head with one logit
    before: np.ndarray  #: [K], lengths of the weight vectors of the first layer, as they were
    after: np.ndarray  #: [K], and as they are
    sha256: Mapping[str, str]  #: of each changed file as it was, by its new name
    names: tuple[str, ...] | None = None  #: of the classes, where known
    background: int | None = None  #: the class that was left alone, which no count is shown of
    #: how many predictions rounding could flip; None if not asked, or not in half precision
    flips: int | None = None
    notes: tuple[str, ...] = ()  #: what to know about the result
    #: where offsets went into the weights of a head without a bias, how far they reach its logits
    along: Along | None = None


@dataclass(frozen=True, eq=False)
class InFile(Place[AdjustedFile]):
    """The head of a model's file, and where the adjusted file goes: a `Place`.

    `apply` asks a place for facts and heads, computes a `Change`, and has the place write it. It
    does the same for models in memory, so that a choice fits or is refused by the same checks.

    Args:
        file: the model's file, with its format.
        to: where the adjusted model is written.
        located: the head in it.
        tuned: what was tuned, where it was.
        whole: whether a large head is read as a whole, as its rows are not only scaled.
    """

    file: ModelFile
    to: Output
    located: LocatedHead
    tuned: Tuned | None = None
    whole: bool = False

    def find_facts(self) -> Facts:
        """Look up what is known of the head, reading none of its weights.

        What does not fit, such as a number of classes, is refused before gigabytes are read.
        """
        located = self.located
        first = located.layers[0]
        return Facts(
            keys=located.keys,
            where=f"{located.path}: {', '.join(located.keys)}",
            sizes=tuple(layer.classes for layer in located.layers),
            names=located.names,
            task=located.task,
            half=HALVES.get(first.weight.dtype),
            plain=first.plain,
            file=self.file.path,
            pair=first.pair,
            sigmoids=first.sigmoids,
        )

    def earlier(self) -> str | None:
        """Return what was done to the head before, in words, or None.

        The note is in the file or, of a model that was adjusted in memory, in a config next to it.
        A second adjustment would add to the first, and what was tuned was hardly tuned for that.
        """
        note = earlier_note(self.located)
        if note is None:
            return None
        done = done_text(note["rule"], note.get("strength"))
        return f"{self.located.path} was adjusted before ({done}); undo that first"

    def check_output(self, *, adds: bool) -> None:
        """Accept every head: it was found by what the file says, and nothing can be run.

        Places in memory check here, on an example or by the graph, that a change arrives in the
        logits.
        """

    def check_takes_bias(self, key: str) -> None:
        """Raise if the head has no bias and the file cannot hold one.

        In safetensors, state dicts and weights of Keras or MLX, the code of the model decides what
        a layer has: a tensor more would be refused or ignored when the file is loaded. An ONNX file
        is its own code, and gets a bias.

        Args:
            key: the layer, which `Place` names; here the whole head takes a bias or none does.
        """
        if self.located.add_bias is None:
            kind = self.file.format.name
            cannot = f"a {kind} file cannot hold one that the model does not expect"
            reason = f"{self.facts.where} has no bias to add to, and {cannot}"
            effect = "(what the head takes, of held-out samples) to put it into the weights"
            raise LevelheadError(
                f"{reason}; use the rule scales or rescale", advice=Advice("features", None, effect)
            )

    def heads(self, rule: Rule) -> tuple[Head, ...]:
        """Return the head, one `Head` for each layer.

        Of a large one, whose rows are read when they are written, only the bias is real
        (`thin_head`).
        """
        read = thin_head if self._in_blocks(rule) else load
        return tuple(read(layer, self.located.names) for layer in self.located.layers)

    def _in_blocks(self, rule: Rule) -> bool:
        """Return whether the rows are too large to be held, and are scaled block by block.

        Not for a rule that goes by the norms of the rows, nor where offsets go into the weights:
        both need real rows.
        """
        return is_large(self.located) and not rule.needs_norms and not self.whole

    def write(self, change: Change) -> AdjustedFile:
        """Write the file with the new head and a note in it.

        Args:
            change: the heads before and after, and what was done to each row.

        Returns:
            What was done, with the lengths of the weight vectors as the file had them and will have
            them.
        """
        adjustment = change.adjustment
        located = self.located
        # Rows are checked before anything is written; the lengths of the first layer's are
        # reported.
        rows = None
        if self._in_blocks(change.rule):
            rows, before, after = scale_large(located.layers[0], adjustment.scale, located.names)
        else:
            lengths = [
                check_rows(layer, to_numpy(old.weight), to_numpy(new.weight), located.names)
                for layer, old, new in zip(located.layers, change.before, change.after, strict=True)
            ]
            before, after = lengths[0]
        to = replace(self.to, path=self.file.output_path(self.to.path))
        # The note says what was done, and keeps that of an earlier adjustment (`again`), which is
        # the note again once this one is undone.
        note = {**change.note(located.keys), "bias": adjustment.bias}
        if located.note:
            note["before"] = located.note
        originals = self.file.format.save(located, change.after, to, note, rows)
        return AdjustedFile(
            path=str(self.file.path),
            out=str(to.path),
            original=f"{to.path}.original" if to.original else None,
            head=located.keys,
            rule=change.rule.name,
            strength=change.strength,
            scale=adjustment.scale,
            offset=adjustment.offset,
            bias=None if change.before[0].bias is None else adjustment.bias,
            counts=change.counts,
            before=before,
            after=after,
            sha256={name: original.sha256 for name, original in originals.items()},
            names=located.names,
            background=change.background,
            flips=change.flips,
            notes=tuple(self._notes(change, before)),
            along=change.along,
        )

    def _notes(self, change: Change, norms: np.ndarray) -> Iterator[str]:
        """Yield what to know about the result, a sentence each.

        Args:
            change: what was done.
            norms: [K], lengths of the weight vectors as they were, which tell whether they follow
                the counts.
        """
        if change.before[0].bias is None and change.after[0].bias is not None:
            yield "the head had no bias and has one now"
        if change.halved:
            yield "it gives (-z, z): z takes half of what is added to their difference"
        if change.along is not None:
            yield change.along.text
            if self.tuned is not None and self.tuned.evidence and self.tuned.reach is None:
                yield "its gain was judged for a bias; `levelhead tune --features` judges this"
        if self.tuned is not None and self.tuned.worthwhile is False:
            yield "no gain was to be expected where it was chosen"
        if change.stuck:
            never = "the two rows of this head are opposite: scaling never changes its predictions"
            yield f"{never}; use the rule offsets or shift"
        for doubt in change.doubts(norms):
            yield f"{type(doubt).__name__}: {doubt}"
        if change.flips:
            yield f"rounding to half precision could flip {change.flips} of the predictions given"
        if self.located.folder:
            folder = self.located.path.parent
            left_out = companion_files(folder, self.located.files, self.to.left_out).left_out
            if left_out:
                copied = "copied with its config, tokenizer and the like"
                yield f"{copied}; left out: {listed(left_out)}"
        if change.adjustment.multiplies:
            yield "probabilities are no longer calibrated; fit a temperature if you use them"


def adjust_file(
    path: str | Path,
    out: str | Path,
    tuned: Tuned | Rule | str | Path,
    counts: Counts | None = None,
    *,
    head: str | None = None,
    bias: BiasPolicy = "scale",
    background: int | str | None = None,
    original: bool = True,
    force: bool = False,
    again: bool = False,
    logits: Array | None = None,
    features: Array | None = None,
    names: Sequence[str] | None = None,
    task: LabelTask | None = None,
    progress: ByteProgress | None = None,
) -> AdjustedFile:
    """Write a model's file with its head adjusted; every other byte is copied.

    ``w_k, b_k <- scale_k (w_k, b_k) + (0, offset_k)``, by what was tuned or by a rule at a strength
    of one's own. It does so also where no gain is expected; `tuned.worthwhile` tells. No code of
    the file is run, and the input is never overwritten.

    Args:
        path: a `.safetensors` file (its index or folder if sharded), an `.onnx`, a state dict as
            `.pt`, `.pth`, `.bin`, a `.keras` or `.weights.h5` of Keras 3, an `.npz` of MLX.
        out: where to write; a folder for a sharded model.
        tuned: what `tune` or its kin returned, the path of a file that `levelhead tune` wrote, or a
            rule with a strength, such as ``lh.rules.Rescale(0.5)``. To add something needs a head
            with a bias, or `features`; an ONNX file gets a bias.
        counts: training samples of each class, for such a rule; [negative, positive] for a head
            with one logit; `lh.rules.Tau` needs none.
        head: the layer, such as `classifier`, where it cannot be found without; `a,b` where two
            feed one output.
        bias: whether such a rule scales the bias with its weight vector, or keeps it.
        background: a class that must stay as it is, by index or name, such as "no object" in
            detection. What was tuned leaves it alone if it was tuned with it.
        original: keep the head's old bytes in `out.original`, from which `undo_file` restores the
            input exactly.
        force, again: replace files that exist; adjust a file that was adjusted before.
        logits: [N, K] of the model as it is, to count the predictions that rounding to half
            precision could flip.
        features: [N, d], what the head takes, of held-out samples: a head without a bias then takes
            offsets into its weights, as in `adjust_`.
        names: of the classes, in order; otherwise `id2label` in a config.json next to the model.
        task: `multiclass` where the file has a sigmoid for each class and the largest of them is
            taken: the classes compete, which the file does not tell.
        progress: called with the number of bytes copied since the last call.

    Returns:
        What was done, class by class; `adjusted_text` puts it into words.

    Raises:
        LevelheadError: the head cannot be found without `head`, the choice does not fit it, the
            numbers do not fit the file's dtype, the output exists, or the file is damaged or of a
            format that is not read. Nothing is written then.
        FileNotFoundError: there is no such file, or no folder to write into.

    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.numpy import save_file
    >>> from levelhead import rules
    >>> with TemporaryDirectory() as folder:
    ...     model, out = Path(folder, "model.safetensors"), Path(folder, "adjusted.safetensors")
    ...     save_file({"fc.weight": np.eye(2, dtype=np.float32)}, model)
    ...     adjust_file(model, out, rules.Rescale(0.5), [100, 25]).after
    array([1., 2.])
    """
    chosen = read_choice(tuned)
    if chosen.tuned is not None and bias != "scale":
        reason = "what was tuned scales the bias with its weight vector; expected 'scale'"
        raise LevelheadError(f"{reason}, got {bias!r}", parameter="bias")
    file = ModelFile.at(path)
    # The number of classes that was tuned, or that the counts have, tells the head from other
    # layers of its shape.
    located = file.locate_head(head=head, classes=chosen.classes(counts), names=names)
    # What was tuned may know the names of the classes where the file does not.
    tuned_names = None
    if chosen.tuned is not None:
        tuned_names = chosen.tuned.names
    if tuned_names is not None and located.names is None and located.classes == len(tuned_names):
        located = replace(located, given_names=tuned_names)
    if task is not None:
        check_choice("task", task, ("multiclass", "multilabel"))
        located = replace(located, given_task=task)
    to = Output(Path(out), original, force, progress, left_out_suffixes())
    # Offsets that go into the weights change all of their numbers, not only the lengths of rows.
    without_bias = all(layer.bias is None for layer in located.layers)
    whole = features is not None and chosen.adds and without_bias
    place = InFile(file, to, located, chosen.tuned, whole)
    return apply(
        place,
        chosen,
        counts,
        bias=bias,
        background=background,
        logits=logits,
        features=features,
        again=again,
    )


def adjusted_text(done: AdjustedFile) -> str:
    """Return what changed, class by class, and how to undo it, as text of several lines.

    Names come from the file, so that what a terminal would obey is made visible.
    """
    title = done.rule
    if done.rule in RULES:
        title = RULES[done.rule].title
    policy = ""
    if (done.scale != 1).any() and done.bias is not None:
        policy = ", bias scaled" if done.bias == "scale" else ", bias kept"
    layers = visible(", ".join(done.head))
    lines = [
        f"{done.path} -> {done.out}",
        f"  {layers}: {done_text(title, done.strength)}{policy}",
        "",
        *_class_table(done),
        "",
    ]
    if done.original:
        undo = f"`levelhead undo {quote(done.out)} -o BACK`"
        lines.append(f"kept {done.original}: {undo} gives the input back, byte for byte")
    if done.flips is not None:
        lines.append(f"predictions that rounding to half precision could flip: {done.flips}")
    return "\n".join([*lines, *(f"note: {visible(text)}" for text in done.notes)])


def _class_table(done: AdjustedFile) -> list[str]:
    """Return a line for each class, largest count first, with its norms, scale and offset.

    What is the same for all (a scale of 1, an offset of 0) has no column. A head with one logit has
    one row for both of its classes, and shows both counts in it.
    """
    multiplies = bool((done.scale != 1).any())
    adds = bool(done.offset.any())
    one_logit = len(done.scale) == 1  # of two classes, with a count each
    order = np.arange(len(done.scale))
    if done.counts is not None and not one_logit:
        # No count of a class that is left alone is gone by; it comes last.
        counts = done.counts.astype(float)
        if done.background is not None:
            counts[done.background] = -1
        order = np.argsort(-counts, kind="stable")
    # A column without a title is empty, and is left out.
    titles = ["class", "count", "norm before", "after", "scale", "offset"]
    if done.counts is None:
        titles[1] = ""
    if not multiplies:
        titles[4] = ""
    if not adds:
        titles[5] = ""
    rows = []
    for i in order.tolist():
        name = "the logit"
        if not one_logit:
            name = row_title(i, done.names)
        count = ""
        if done.counts is not None and one_logit:
            count = "/".join(f"{n:.15g}" for n in done.counts)
        elif i == done.background:
            count = "left alone"
        elif done.counts is not None:
            count = f"{done.counts[i]:.15g}"
        scale = f"{done.scale[i]:.4g}" if multiplies else ""
        offset = f"{done.offset[i]:.4g}" if adds else ""
        norms = [f"{done.before[i]:.4g}", f"{done.after[i]:.4g}"]
        rows.append([name, count, *norms, scale, offset])
    return table(titles, rows)
