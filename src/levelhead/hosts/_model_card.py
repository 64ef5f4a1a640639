"""A section about leveling in a model card, and the facts that a model's config notes."""

import re
from pathlib import Path
from typing import Any

from .._version import __version__
from ..choice.tuned import Tuned
from ..core import atomic
from ..heads.adjusted import Adjusted
from ..path.metrics import gain_text
from ..rules.rule import RULES

_BEGIN, _END = "<!-- levelhead: begin -->", "<!-- levelhead: end -->"


def facts_of(tuned: Any) -> dict[str, Any]:
    """Return how a choice was made, as a config can hold it; nothing where only its file is known.

    Args:
        tuned: a `Tuned`, or the path of a tuned.json.

    >>> facts_of("tuned.json")
    {}
    """
    if not isinstance(tuned, Tuned):
        return {}
    interval = None if tuned.gain_interval is None else list(tuned.gain_interval)
    return {
        "chosen_on": tuned.chosen_on,
        "samples": tuned.n,
        "metric": tuned.metric,
        "gain": tuned.gain,
        "gain_interval": interval,
    }


def write_card(path: Path, adjusted: Adjusted, tuned: Any) -> None:
    """Write a section about leveling into a model card, in place of one that is there; without a card, a new one.

    Args:
        path: of the README.md.
        adjusted: what was done.
        tuned: the choice.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    rest = re.sub(rf"\n*{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", "\n", text, flags=re.DOTALL)
    section = f"{_BEGIN}\n{_section(adjusted, tuned)}\n{_END}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, f"{rest.rstrip()}\n\n{section}" if rest.strip() else section)


def _section(adjusted: Adjusted, tuned: Any) -> str:
    layers = ", ".join(f"`{layer}`" for layer in adjusted.layers if layer) or "the head"
    lines = [
        "## Leveling",
        "",
        f"After training, {layers} was adjusted for imbalanced classes by levelhead {__version__}: "
        f"{RULES[adjusted.rule].title}, gamma {adjusted.gamma:.4g}, for {len(adjusted.counts)} classes of "
        f"{adjusted.counts.max():g} to {adjusted.counts.min():g} training samples.",
    ]
    if isinstance(tuned, Tuned) and tuned.gain is not None:
        lines += [
            "",
            f"It was chosen on {tuned.n} {tuned.chosen_on} samples; the gain in {tuned.metric.replace('_', ' ')} to "
            f"expect on new samples is {gain_text(tuned.metric, tuned.gain, tuned.gain_interval)}. Results in the log "
            "of the training are those of the head before. Probabilities are no longer calibrated"
            + ("." if tuned.temperature is None else f": divide the logits by {tuned.temperature:.3g} for those."),
        ]
    return "\n".join(lines)
