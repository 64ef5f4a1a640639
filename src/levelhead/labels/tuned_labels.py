"""What was chosen for a model with several labels per sample: an offset for each label."""

from dataclasses import dataclass
from statistics import fmean

from ..choice.tuned import Tuned
from ..core.per_class import listed
from ..core.per_class import title as class_title
from ..path.metrics import TITLES, value_form


@dataclass(frozen=True, eq=False, repr=False)
class TunedLabels(Tuned):
    """A chosen offset for each label: what `tune_labels` returns.

    It is a `Tuned` of the rule `shift` whose `offset` [K] says all; gamma is 1, and `curve` is the metric over the
    share of the offsets that is applied, from 0 to 1. Values, errors and gains are means over the labels that have
    positive and negative samples; `missing` are the others. `counts` are the training samples that have each label,
    and `labels` [K] what was chosen for each. `gain` is cross-fitted, and 0 if it is not above that with a probability
    of 95 %, so that scores that say nothing are rarely called `worthwhile`.
    """

    @property
    def title(self) -> str:
        """The title of `curve`."""
        return TITLES[self.metric] if self.metric == "macro_f1" else f"mean {TITLES[self.metric]}"

    def facts(self) -> dict[str, str]:
        """Return the result in words, part by part, with a `verdict` if the model may be better as it is."""
        parts = super().facts()
        if "floors" in parts:
            parts["floors"] = parts["floors"].replace("at gamma = 0 too", "by the model as it is too")
            parts["floors"] = parts["floors"].replace("gamma = 0", "the model as it is")
        source = parts.pop("gamma").partition("chosen on ")[2]
        moved = [label.offset for label in self.labels if label.moved]
        by = f", by {min(moved):+.3g} to {max(moved):+.3g}" if moved else ""
        parts |= self._means()
        verdict = parts.pop("verdict", "") if moved else "every label is best as it is"
        offsets = f"{len(moved)} of {self.classes} labels moved{by}, chosen on {source}"
        return {"offsets": offsets, **parts, **({"verdict": verdict} if verdict else {})}

    def report(self) -> str:
        """Return the result as text: the numbers, and a line for each label."""
        form = value_form(self.metric)
        width = max(len(class_title(i, self.names)) for i in range(self.classes)) + 2
        heads = ("positives", "offset", "recall", "", "precision", "", TITLES[self.metric], "")
        lines = [f"{'':{width}}" + "".join(f"{head:>12}" for head in heads)]
        for i, label in enumerate(self.labels):
            cells = [str(label.positives), f"{label.offset:+.3f}" if label.moved else "-"]
            if label.value is not None and label.value_at_zero is not None:
                for before, after in ((label.recall_at_zero, label.recall), (label.precision_at_zero, label.precision)):
                    cells += [_percent(before), f"-> {_percent(after)}" if label.moved else ""]
                cells += [f"{label.value_at_zero:{form}}", f"-> {label.value:{form}}" if label.moved else ""]
            lines.append(f"{class_title(i, self.names):{width}}" + "".join(f"{cell:>12}" for cell in cells))
        return "\n".join([*(line.rstrip() for line in lines), "", *self._lines()])

    def _means(self) -> dict[str, str]:
        """Return recall and precision in words: means over the labels that are predicted before and after."""
        both = [label for label in self.labels if None not in (label.precision_at_zero, label.precision)]
        if not both:
            return {}
        means = {
            name: [fmean(getattr(label, f"{name}{end}") for label in both) for end in ("_at_zero", "")]
            for name in ("recall", "precision")
        }
        return {f"mean {name}": f"{before:.1%} -> {after:.1%}" for name, (before, after) in means.items()}

    def _lines(self) -> list[str]:
        titles = {"offsets": "", "verdict": ""}
        return [f"{titles.get(name, f'{name} ')}{words}" for name, words in self.facts().items()]

    def _floors_text(self) -> str:
        rest = {floor for i, floor in enumerate(self.floors) if i not in self.missing}
        if len(rest) == 1:
            return f"recall of at least {rest.pop():.1%} for every label"
        return "recall of at least " + listed(
            [f"{floor:.1%} for {class_title(i, self.names)}" for i, floor in enumerate(self.floors) if floor > 0]
        )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
