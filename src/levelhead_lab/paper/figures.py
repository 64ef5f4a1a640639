"""Every figure of the paper, drawn from what we measured; a figure whose sources are missing is named instead.

`collect_sources` gathers what figures are drawn from, `write` draws all of `FIGURES` and returns the text that shows
them. Each is a function of `Sources` that returns `Drawn`, in the module of its subject: `figure_norms`,
`figure_features`, `figure_errors`. It raises `MissingSource` where a record or a network that it needs is not there.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

from levelhead.support import atomic

from ..lab.snapshot import Snapshot
from . import figure_errors, figure_features, figure_norms
from .cells import Record
from .figure_features import head_digest, tsne_points
from .figure_style import Drawn, MissingSource, Sources, save_figure
from .measured_fields import TsneMap, TwoFeatures

# name of the file: title, function that draws it
FIGURES: dict[str, tuple[str, Callable[[Sources], Drawn]]] = {
    "norms-over-epochs": ("Norms over epochs (Figure 1)", figure_norms.draw_norms_over_epochs),
    "relative-norms": ("Relative norms by ratio (Figure 2)", figure_norms.draw_relative_norms),
    "boundary": ("The boundary between weight vectors (Figure 3)", figure_features.draw_boundary),
    "clusters": ("Spread of features by class (Figure 4)", figure_features.draw_clusters),
    "tsne": ("Train and test features of two classes (Figure 5)", figure_features.draw_tsne),
    "confusion": ("Confusion matrices (Figure 6)", figure_errors.draw_confusion),
    "gamma": ("Error over gamma (Figure 7)", figure_errors.draw_error_over_gamma),
    "step-norms": (
        "Relative norms under step imbalance (supplement)",
        figure_norms.draw_step_norms,
    ),
    "over-sampling": (
        "Relative norms under over-sampling (supplement)",
        figure_norms.draw_over_sampling,
    ),
}


def write(
    sources: Sources,
    out: Path,
    *,
    docs: Path | None = None,
    say: Callable[[str], None] = print,
) -> tuple[list[Path], str]:
    """Draw every figure of the paper.

    Args:
        sources: what they are drawn from.
        out: the folder of the pictures.
        docs: the folder of the page, from which the text points to the pictures; None for `out` as it is.
        say: told of each figure that cannot be drawn.

    Returns:
        The files, and the text that shows them on the page.
    """
    written = []
    parts = []
    for name, (title, draw) in FIGURES.items():
        pictures, text = write_figure(name, title, partial(draw, sources), out, docs=docs, say=say)
        written += pictures
        parts.append(f"### {title}\n\n{text}")
    return written, "\n\n".join(parts)


def write_figure(
    name: str,
    title: str,
    draw: Callable[[], Drawn],
    out: Path,
    *,
    docs: Path | None = None,
    say: Callable[[str], None] = print,
) -> tuple[list[Path], str]:
    """Draw a figure as `out/NAME.svg` and `.png`; return these files, and the text that shows the figure on a page.

    Where a source is missing, no file is written and the text says so: other figures need not wait for it. Other
    arguments are as of `write`.
    """
    try:
        drawn = draw()
    except MissingSource as missing:
        say(f"{name} is not drawn: {missing}")
        return [], f"Not drawn: {missing}."
    # A page points to pictures by a path from where it lies itself.
    folder = out
    if docs is not None:
        folder = Path(os.path.relpath(out, docs))
    picture = (folder / name).as_posix()
    text = f"![{title}]({picture}.png)\n\n*{drawn.caption}* ([SVG]({picture}.svg))"
    return save_figure(drawn.figure, out, name), text


def collect_sources(
    results: Path, snapshots: Mapping[str, Snapshot], records: Sequence[Record]
) -> Sources:
    """Return the records and what is kept next to them; a t-SNE map of another snapshot is made anew.

    Args:
        results: the folder that holds `figures/`, where the map and the networks of two features are kept.
        snapshots: whole networks by method, as of `record.whole_snapshots`.
        records: all there are.
    """
    # A map needs the features of a whole network.
    baseline = snapshots.get("baseline")
    kept = results / "figures"
    tsne = None
    if baseline is not None:
        make = partial(tsne_points, baseline)
        tsne = _load_or_make(kept / "tsne.json", make, head_digest(baseline))
    boundary = kept / "boundary.json"
    networks = None
    if boundary.is_file():
        networks = cast(TwoFeatures, json.loads(boundary.read_text(encoding="utf-8")))
    return Sources(records, snapshots, networks, tsne)


def _load_or_make(path: Path, make: Callable[[], TsneMap], digest: str) -> TsneMap:
    """Return what a file holds if it was made of the network with this digest; else make it, and write the file.

    A map takes seconds and needs scikit-learn; kept, it is made once for a network.
    """
    kept = None
    with suppress(ValueError):  # where it is damaged, it is made again
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(kept, dict) and kept.get("of") == digest:
        return cast(TsneMap, kept)
    fresh = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, json.dumps(fresh, separators=(",", ":")) + "\n")
    return fresh
