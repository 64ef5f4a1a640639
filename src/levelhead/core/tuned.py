"""`Tuned`: what was chosen, what that is worth, and where it comes from.

What `tune` and the functions like it return: a rule, its `Adjustment` of each class, the `Evidence` of
what it is worth. It does four things: says what it is worth (properties), adjusts scores (`apply`), tells
people (`str`, `summary`, `plot`; the sentences are in evidence_words.py) and goes to a file and back (`save`
and `load`; the format is in tuned_json.py). What `apply` takes is read in tuned_scores.py; whether a choice fits
another model is asked in tuned_checks.py.

Whoever made it, there is one kind: of classes or of labels (`task`), with labels or without (`evidence` is then
None, and so is whatever follows from it). The command line, the page, the hosts and the files all hold this and
ask it; none of them computes a gain or adjusts a score by itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..show.plot import draw_changes
from ..show.style import html, strength_text
from ..support import atomic, text
from ..support.arrays import Array, as_array, is_torch, move_axis
from ..support.errors import LevelheadError
from ..support.regular_file import check_regular_file
from ..support.types import Kind, LabelTask
from . import evidence_words
from .adjustment import Adjustment
from .evidence import Evidence
from .floors import Floor, floors_text
from .metrics import Tables
from .priors import PriorEstimate
from .probabilities import log_of_probabilities, logit_of_probabilities
from .rules import RULES, Rule
from .tuned_json import from_dict, to_dict
from .tuned_scores import check_scores, classes_are_second

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Tuned:
    """What was chosen: what `tune` and the functions like it return. Errors, gains and shares are not in percent.

    Args:
        rule: its name: `offsets`, `shift`, `rescale`, `tau`, `scales` or `vector`.
        adjustment: what it does to each class, ``score_k = scale_k logit_k + offset_k``.
        evidence: what that is worth on samples it was not fitted on; None without labels.
        strength: of a rule that has one; None for rules with numbers for each class.
        counts: [K], training samples of each class; () where they are not known.
        counted: whether these counts are those of the held-out labels, as no others were given.
        names: of the classes, where they are known.
        kind: what it was tuned on: `logits`, `probabilities` or `log-probabilities`.
        chosen_on: `held-out`, `out-of-fold`, `unlabelled`, or `test`, which test data are not for.
        n: how many samples there were.
        temperature: divide adjusted scores by it for calibrated probabilities; None without labels,
            and for several labels per sample.
        target: [K], the shares of the classes in deployment, or None.
        floors: recalls that were asked for.
        prior: what the target was estimated from, or None.
        warnings: one line each.
        task: `multiclass`, or `multilabel`, where samples may have several labels.
        background: the class that is left alone, or None.
        sources: {`files`: {what: path}, `sha256`: {what: digest}} of the files it was chosen on,
            where they are known.
        reach: mean and spread of how much of each offset arrives in the logits of a head without a
            bias, where it was judged by that; else None.

    >>> from levelhead import tune
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [200, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(300, 3)) + np.log([1000, 200, 40])
    >>> tuned = tune(logits, labels, [1000, 200, 40])
    >>> tuned.rule, tuned.verdict, tuned.worthwhile
    ('offsets', 'better', True)
    >>> tuned.apply(logits).shape, tuned.apply(logits[0]).shape
    ((300, 3), (3,))
    >>> print(tuned.change_text())
    balanced error 40.4% -> 10.6%, gain 29.8 points (23.9 to 35.8)
    """

    rule: str
    adjustment: Adjustment
    evidence: Evidence | None
    strength: float | None = None
    counts: tuple[float, ...] = ()
    counted: bool = False
    names: tuple[str, ...] | None = None
    kind: Kind = "logits"
    chosen_on: str = "held-out"
    n: int = 0
    temperature: float | None = None
    target: tuple[float, ...] | None = None
    floors: tuple[Floor, ...] = ()
    prior: PriorEstimate | None = None
    warnings: tuple[str, ...] = ()
    task: LabelTask = "multiclass"
    background: int | None = None
    sources: dict[str, dict[str, str]] | None = None
    reach: tuple[float, float] | None = None

    # ---- What it is worth ----------------------------------------------------------------------

    @property
    def classes(self) -> int:
        """K."""
        return self.adjustment.classes

    @property
    def multilabel(self) -> bool:
        """Whether samples may have several labels, each with an offset."""
        return self.task == "multilabel"

    @property
    def metric(self) -> str | None:
        """The name of what the gain is measured in; None without labels."""
        if self.evidence is None:
            return None
        return self.evidence.metric.name

    @property
    def gain(self) -> float | None:
        """How much better the metric is on samples that no fit has seen; None without labels."""
        if self.evidence is None:
            return None
        return self.evidence.gain

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """Where the gain on new samples lies, from and to, with the probability `level`; None without labels."""
        if self.evidence is None:
            return None
        return self.evidence.interval

    @property
    def verdict(self) -> str | None:
        """Whether it is better than the model as it is, in words; None without labels.

        *better*, *likely better*, *no difference seen*, *worse* or *changes nothing*.
        """
        if self.evidence is None:
            return None
        return self.evidence.verdict

    @property
    def worthwhile(self) -> bool | None:
        """Whether to apply it: the gain is above 0, or floors are met only so; None if not known.

        It asks for no certainty: `verdict` says how sure the gain is, and docs/decisions.md what comes
        of acting by this on real data.
        """
        if self.evidence is None:
            return None
        now_held = any(not floor.held_before and floor.probability >= 0.5 for floor in self.floors)
        return self.evidence.gain > 0 or now_held

    @property
    def tables(self) -> tuple[Tables, Tables]:
        """What is counted of each class, or of the samples that have each label; before and after.

        Two `Tables` [K]: right, predicted and all samples, so recall, precision and share of each class.

        Raises:
            LevelheadError: without labels, nothing was counted.
        """
        if self.evidence is None:
            raise LevelheadError("there are no labels, so nothing is known of the classes")
        return self.evidence.class_tables

    # ---- What it does --------------------------------------------------------------------------

    def apply(self, scores: Array) -> Array:
        """Return adjusted scores, ``scale_k score_k + offset_k``: the largest of a row is the class to predict.

        Of several labels per sample, each whose score is above 0 is to be predicted.

        Args:
            scores: [..., K], logits, probabilities or log-probabilities, as it was tuned; a single
                row, too; or [N, K, H, W] of pixels, as torch has them. Of probabilities, their
                logarithms are adjusted; of several labels per sample, ``log p / (1 - p)``.

        Returns:
            An array or, of a tensor, a tensor of the same shape, in float32 or better.

        Raises:
            LevelheadError: another number of classes, or scores that are not of this kind.

        Example:
            ``tuned.apply(model.predict_proba(x)).argmax(axis=1)`` are the classes, if it was tuned on
            probabilities. For calibrated probabilities take the softmax of
            ``tuned.apply(scores) / tuned.temperature``.

        >>> tuned = Tuned("shift", Adjustment.adding([0.0, 1.5]), evidence=None, strength=1.0)
        >>> tuned.apply(np.array([3.0, 2.0]))
        array([3. , 3.5])
        """
        if not hasattr(scores, "shape"):  # lists, also of tensors or of rows that differ in length
            scores = as_array(scores)
        if classes_are_second(tuple(scores.shape), self.classes):
            return move_axis(self.apply(move_axis(as_array(scores), 1, -1)), -1, 1)
        values = check_scores(
            scores, self.classes, self.names, kind=self.kind, multilabel=self.multilabel
        )
        # To what is added to: probabilities become logarithms, or log odds where labels do not compete.
        if self.kind == "probabilities" and self.multilabel:
            values = logit_of_probabilities(values)
        elif self.kind == "probabilities":
            values = log_of_probabilities(values)
        if is_torch(values):
            return self.adjustment.narrow_scores(values)
        return self.adjustment.narrow_scores(values).reshape(np.shape(values))

    # ---- How it is told ------------------------------------------------------------------------

    def __str__(self) -> str:
        return "; ".join(self.facts().values())

    def __repr__(self) -> str:
        return f"Tuned({self})"

    def facts(self) -> dict[str, str]:
        """Return the result in words, part by part: {what it is about: sentence}.

        The keys, in this order and each only where there is something to say: `rule`, `gain`,
        `price`, `never right`, `few samples`, `no bias`, `floors`, `target`, `counts`. `print(tuned)` joins
        them into one line, `summary` puts each on a line of its own.
        """
        # What it is, and what it was chosen on: test data are named in capitals, wherever this is printed.
        strength = ""
        if self.strength is not None:
            strength = f" at strength {strength_text(self.strength)}"
        source = self.chosen_on
        if self.chosen_on == "test":
            source = "TEST DATA, so no test result of it is honest"
        title = rule_of(self).title
        facts = {"rule": f"{title}{strength}, chosen on {source} ({self.n} samples)"}
        # What it is worth, then under which conditions.
        if self.evidence is not None:
            facts |= evidence_words.facts_of(self.evidence, self.names)
        if self.reach is not None:
            mean, spread = self.reach
            arrives = f"logits get {mean:.2f} ± {spread:.2f} of each offset"
            facts["no bias"] = f"judged for a head without a bias, whose {arrives}"
        if self.floors:
            facts["floors"] = floors_text(self.floors, self.names)
        target = []
        if self.target is not None and self.evidence is not None:
            target.append(evidence_words.target_text(self.target, self.names))
        elif self.target is not None:
            target.append(f"target {evidence_words.mix_text(self.target, self.names)}")
        if self.prior is not None:
            target.append(self.prior.decided_text())
        if target:
            facts["target"] = "; ".join(target)
        if self.counted:
            facts["counts"] = "counts are those of the held-out labels"
        return facts

    def change_text(self) -> str:
        """Return the metric before and after, and the gain with its interval, in words."""
        if self.evidence is None:
            return ""
        return self.evidence.change_text()

    def verdict_text(self) -> str:
        """Return the verdict, with the probability of a gain where there may be one."""
        if self.evidence is None:
            return "not judged: there are no labels"
        return self.evidence.verdict_text()

    def price_text(self) -> str:
        """Return what accuracy the gain costs, where that is more than it brings; "" if not."""
        if self.evidence is None:
            return ""
        return evidence_words.price_text(self.evidence)

    def summary(self) -> str:
        """Return the result as text: what it gains, what it costs, and every class.

        First the facts, a line each, the gain and its price on top; then accuracy, balanced accuracy
        and macro-F1 before and after; then recall, precision and predicted share of each class (of many,
        the 30 whose recall changes most); warnings at the end.
        """
        facts = self.facts()
        lines = []
        # What it is worth comes first, with its price in the same line.
        worth = [facts.pop(name) for name in ("gain", "price") if name in facts]
        if worth:
            lines.append("; ".join(worth))
        lines += facts.values()
        if self.evidence is not None:
            lines += ["", *evidence_words.overall_lines(self.evidence)]
            lines += ["", *evidence_words.class_lines(self.evidence, self.names)]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw recall and precision of each class before and after (extra `plot`); return the Axes.

        An arrow leads from each value of the model as it is to that of the adjusted one.

        Args:
            ax: matplotlib's Axes to draw on; a new figure if None.

        Raises:
            LevelheadError: without labels there is nothing to draw.
            ImportError: matplotlib is not installed.
        """
        before, after = self.tables
        where = self.chosen_on
        if self.chosen_on == "test":
            where = "TEST DATA"
        counted = "training samples"
        if self.counted:
            counted = "samples here"
        return draw_changes(
            (before.recall, after.recall),
            (before.precision, after.precision),
            np.array(self.counts),
            ax,
            names=self.names,
            counted=counted,
            title=f"{self.n} samples, {where}",
        )

    def _repr_html_(self) -> str:
        notes = [f"warning: {line}" for line in self.warnings]
        return html("Tuned", self.facts(), notes=notes)

    # ---- Where it is kept ----------------------------------------------------------------------

    def to_dict(self) -> dict[str, object]:
        """Return all of it as JSON can hold it: what `save` writes, and `--json` prints."""
        return to_dict(self)

    def save(self, path: str | Path) -> None:
        """Write it to a JSON file, in one step: the file is whole, or as it was before.

        Args:
            path: where to, such as `tuned.json`. A file that is there is replaced.

        >>> tuned = Tuned("shift", Adjustment.adding([0.0, 1.5]), evidence=None, strength=1.0)
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     tuned.save(f"{folder}/tuned.json")
        ...     Tuned.load(f"{folder}/tuned.json").adjustment.offset
        array([0. , 1.5])
        """
        write_tuned(self, path)

    @staticmethod
    def load(path: str | Path) -> Tuned:
        """Return what `save` or `levelhead tune` wrote.

        Args:
            path: of the file.

        Raises:
            LevelheadError: no such file, or one that is not of this kind; it names the entry that is
                wrong. No code in a file is run.
        """
        return read_tuned(path)


def write_tuned(tuned: Tuned, path: str | Path, *, new: bool = False) -> None:
    """Write what was tuned, in one step.

    Args:
        tuned: what to write.
        path: where to.
        new: whether to refuse a path where a file is already, instead of replacing it.
    """
    atomic.write(path, json.dumps(tuned.to_dict(), indent=2) + "\n", new=new)


def read_tuned(path: str | Path) -> Tuned:
    """Return what `write_tuned` wrote, checked entry by entry.

    Whatever is wrong, of the JSON itself or of an entry in it, is one LevelheadError that begins with the
    path.
    """
    check_regular_file(path, "one that `levelhead tune` wrote")
    try:
        return Tuned(**from_dict(text.parse_json(text.read(path))))
    except ValueError as flaw:
        reason = str(flaw).removeprefix(f"{path}: ")
        raise LevelheadError(f"{path}: not a file that `levelhead tune` wrote ({reason})") from None


def rule_of(tuned: Tuned) -> Rule:
    """Return the rule of a choice: what it is called, and what it does.

    Of a rule of somebody's own that is not in `RULES`, only the name is known, and what was done by it.
    """
    if tuned.rule in RULES:
        return RULES[tuned.rule]

    class Unlisted(Rule):
        name = tuned.rule
        title = tuned.rule
        multiplies = tuned.adjustment.multiplies
        adds = tuned.adjustment.adds

    return Unlisted()


def tuned_of(tuned: Tuned | str | Path) -> Tuned:
    """Return what was tuned, or what is in the file that `levelhead tune` wrote.

    For callbacks and hosts, whose users may hold either.
    """
    if isinstance(tuned, Tuned):
        return tuned
    if isinstance(tuned, str | Path):
        if tuned in RULES and not Path(tuned).exists():
            instead = f"call `tune` with rule={tuned!r}, and give what it returns or its file"
            raise FileNotFoundError(f"{tuned}: no file, but the name of a rule; {instead}")
        return read_tuned(tuned)
    expected = "expected what `tune` returned, or the path of a file that `levelhead tune` wrote"
    raise LevelheadError(f"{expected}, got {type(tuned).__name__}", parameter="tuned")
