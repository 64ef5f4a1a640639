"""Figures of features: decision boundaries, the spread of each class, and a t-SNE map of two classes.

`draw_boundary` (Figure 3) is drawn from networks with two features, `draw_clusters` (Figure 4) from records,
`draw_tsne` (Figure 5) from a map that `tsne_points` makes of a whole network. Each raises `MissingSource` where its
source is not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from levelhead.core.head import Head, unit

from ..lab.snapshot import Snapshot
from ..methods.rs import rescale_head
from . import figure_style as style
from .cells import Record, full_runs
from .figure_style import Drawn, MissingSource, Sources
from .measured_fields import Point, TsneMap
from .record_fields import PerClass
from .tables import column_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import ColorType

GAMMA = 0.25  # of RS in the drawing of boundaries
TEST_POINTS = 250  # per class in the t-SNE map
AngleKey = Literal["sigma_train", "sigma_test", "center_gap"]
# The panels of Figure 4.
ANGLES: dict[AngleKey, str] = {
    "sigma_train": "sigma, train",
    "sigma_test": "sigma, test",
    "center_gap": "angle between centers",
}


def draw_boundary(sources: Sources) -> Drawn:
    """Draw Figure 3 with networks of two features, whose whole feature space can be seen.

    Three panels: the plain network, WVN, and WVN after RS. Of each method the first network is drawn.
    """
    if sources.two_features is None:
        raise MissingSource(
            "no networks with two features (bench/paper/two_features.py trains them)"
        )
    networks = sources.two_features
    counts = np.asarray(networks["counts"])
    baseline = Head(np.array(networks["baseline"]["weights"][0]))
    wvn = Head(np.array(networks["wvn"]["weights"][0]))
    rescaled = rescale_head(wvn, counts, GAMMA)
    figure, axes = style.panels(3, height=3.0)
    colors = style.shades(len(counts))
    drawn = [
        ("Baseline", networks["baseline"], baseline),
        ("WVN", networks["wvn"], wvn),
        (f"WVN+RS, gamma = {GAMMA:g}", networks["wvn"], rescaled),
    ]
    for panel, (name, network, head) in zip(axes[0], drawn, strict=True):
        x = np.array(network["features"])
        y = np.array(network["labels"])
        _draw_sectors(panel, head, x, y, colors)
        right = head.logits(x).argmax(axis=1) == y
        error = 100 * (1 - right.mean())
        recall = right[y == counts.argmin()].mean()
        style.set_title(panel, f"{name}\nerror {error:.1f} %, rarest recall {recall:.0%}")
    handles = [axes[0, -1].plot([], [], "o", color=color, ms=5)[0] for color in colors]
    labels = [f"digit {k}, {n} samples" for k, n in enumerate(counts)]
    style.set_legend(
        figure,
        handles,
        labels,
        ncols=len(counts),
        loc="outside lower center",
        handletextpad=0.1,
        columnspacing=1.2,
    )
    return Drawn(
        figure,
        "Decision regions, weight vectors and test samples of networks with two features, trained on "
        f"{len(counts)} of scikit-learn's digits with a long tail of {counts.max()} to {counts.min()} (seed 0 of "
        f"{networks['seeds']}).",
    )


def _draw_sectors(
    panel: Axes, head: Head, x: np.ndarray, y: np.ndarray, colors: list[ColorType]
) -> None:
    """Draw the region of each class, test samples as dots, and the weight vectors as arrows.

    Args:
        panel: where to draw.
        head: of two features, without a bias: weight [K, 2].
        x, y: features [N, 2] of the samples and their labels [N].
        colors: of the classes.
    """
    reach = 1.08 * float(np.abs(x).max())
    # Without a bias only the direction of a feature decides, so that regions are sectors: one from each change of the
    # owner on a fine circle to the next. The last one ends, once around, where the first begins.
    angles = np.linspace(0, 2 * np.pi, 7201)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    owner = head.logits(circle).argmax(axis=1)
    edges = np.flatnonzero(np.diff(owner))
    once_around = len(angles) - 1
    ends = [*edges[1:], edges[0] + once_around]
    for start, end in zip(edges, ends, strict=True):
        # Twice the reach, so that every sector goes past the corners of the panel.
        arc = circle[np.linspace(start + 0.5, end + 0.5, 40).astype(int) % once_around]
        corners = 2 * reach * np.vstack([[0, 0], arc])
        panel.fill(corners[:, 0], corners[:, 1], color=colors[owner[start + 1]], alpha=0.2, lw=0)
        boundary = 2 * reach * np.stack([[0, 0], circle[start]])
        panel.plot(boundary[:, 0], boundary[:, 1], color="white", lw=1.5)
    panel.scatter(x[:, 0], x[:, 1], s=7, c=[colors[k] for k in y], lw=0)
    # The longest arrow ends inside of the panel; each has a white one under it, to stand out from the dots.
    weight = np.asarray(head.weight)
    arrows = weight / np.linalg.norm(weight, axis=1).max() * 0.85 * reach
    for vector, color in zip(arrows, colors, strict=True):
        for line_color, width in (("white", 4), (color, 2)):
            arrow = {"arrowstyle": "-|>", "color": line_color, "lw": width, "shrinkA": 0}
            panel.annotate("", vector, (0, 0), arrowprops=arrow)
    panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])


def draw_clusters(sources: Sources, column: str = "cifar10:100") -> Drawn:
    """Draw Figure 4: three angles of each class, a dot for each network and a line through their means.

    In gray the same classes on balanced data, where there are records: some classes are wider than others in any case.
    """
    runs = [run for run in sources.runs(column) if "sigma_train" in run["geometry"]]
    if not runs:
        raise MissingSource(
            f"no record of {column}:baseline with the geometry of training features"
        )
    data, ratio = column.split(":")
    # The same classes on as many images each.
    balanced = []
    for run in full_runs(sources.records, f"{data}:1", "baseline"):
        if "sigma_train" in run["geometry"]:
            balanced.append(run)
    figure, axes = style.panels(3, height=2.9, sharey=True)
    counts = runs[0]["counts"]
    at = np.arange(len(counts))
    for panel, (key, name) in zip(axes[0], ANGLES.items(), strict=True):
        values = _angles_of(runs, key)
        if balanced:
            panel.plot(
                at,
                _angles_of(balanced, key).mean(axis=0),
                color=style.GRAY,
                lw=1,
                marker="o",
                ms=2.5,
                zorder=1,
                label="balanced data",
            )
        panel.plot(
            at, values.mean(axis=0), color=style.BASELINE, lw=1.8, zorder=2, label=f"ratio {ratio}"
        )
        panel.plot(at, values.T, "o", color=style.BASELINE, ms=3, alpha=0.6, mew=0, zorder=3)
        panel.set_xticks(at, [f"{n:,}" for n in counts], rotation=90)
        panel.grid(axis="y", color=style.LIGHT, lw=0.5)
        style.set_title(panel, name)
    axes[0, 0].set(ylabel="degrees", ylim=(0, None))
    axes[0, 0].legend(frameon=False, fontsize=8.5, loc="upper left")
    axes[0, 1].set_xlabel("training samples of the class")
    beside = ""
    if balanced:
        beside = f", and of {style.network_count(balanced)} on balanced data"
    return Drawn(
        figure,
        "Angular spread of each class's features at training and test time, and the angle between their centers, "
        f"baseline on {column_title(column)}: {style.network_count(runs)}, their mean{beside}.",
    )


def _angles_of(runs: Sequence[Record], key: AngleKey) -> np.ndarray:
    """Return one of the angles of each network and class, [N, K] in degrees.

    Args:
        runs: whose records have all of the angles; `draw_clusters` leaves others out.
        key: which angle.

    >>> _angles_of([{"geometry": {"sigma_test": [20.0, 35.0]}}], "sigma_test").shape
    (1, 2)
    """
    rows: list[PerClass] = []
    for run in runs:
        angles = run["geometry"].get(key)
        assert angles is not None  # `draw_clusters` leaves other records out
        rows.append(angles)
    return np.array(rows, float)


def tsne_points(snapshot: Snapshot, *, seed: int = 0) -> TsneMap:
    """Return a t-SNE map of the most and the least frequent class's unit-length features, train and test, for JSON.

    Of both classes equally many samples are mapped: in training as many as the rarer one has. Training and test samples
    are on one map, since places on two maps could not be compared.

    Args:
        snapshot: a whole network, with the features of both splits.
        seed: of the map.
    """
    from sklearn.manifold import TSNE

    pair = (int(snapshot.counts.argmax()), int(snapshot.counts.argmin()))
    most = {"train": int(snapshot.counts.min()), "test": TEST_POINTS}
    # All features in one array, part behind part: both classes of the training split, then of the test split.
    parts = []
    features = []
    for split, size in most.items():
        for k in pair:
            of_class = snapshot.features[split][snapshot.labels[split] == k]
            parts.append(split)
            features.append(of_class[:size])
    x = unit(np.concatenate(features).astype(np.float64))
    # Not typed; to infer its results takes pyright long.
    tsne: Any = TSNE(random_state=seed, init="pca", perplexity=30)
    places = tsne.fit_transform(x)
    # Back to splits and classes.
    edges = np.cumsum([0, *map(len, features)])
    points: dict[str, list[list[Point]]] = {split: [] for split in most}
    for i, split in enumerate(parts):
        points[split].append(np.round(places[edges[i] : edges[i + 1]], 1).tolist())
    names = snapshot.head.names or range(snapshot.head.classes)
    return {
        "of": head_digest(snapshot),
        "seed": seed,
        "names": [str(names[k]) for k in pair],
        "counts": [int(snapshot.counts[k]) for k in pair],
        "points": points,
    }


def head_digest(snapshot: Snapshot) -> str:
    """Return what tells a network from others: a hash of its weight vectors, 12 hexadecimal digits.

    In float64, so that it does not depend on the precision in which a file holds them.
    """
    weight = np.asarray(snapshot.head.numpy().weight, np.float64)
    return hashlib.sha256(weight.tobytes()).hexdigest()[:12]


def draw_tsne(sources: Sources) -> Drawn:
    """Draw Figure 5: one map of two classes, training samples on the left, test samples on the right.

    On the right the places of the training samples are marked, so that one sees whether test samples lie elsewhere.
    """
    if sources.tsne is None:
        raise MissingSource(
            "no t-SNE of the shipped snapshot (tsne_points makes it, with scikit-learn)"
        )
    # The map has the frequent class first, in the color of the baseline everywhere else.
    points = sources.tsne["points"]
    counts = sources.tsne["counts"]
    classes = list(zip(sources.tsne["names"], counts, (style.BASELINE, style.WVN), strict=True))
    figure, axes = style.panels(2, height=3.4, sharex=True, sharey=True)
    for panel, split in zip(axes[0], ("train", "test"), strict=True):
        for places, (name, n, color) in zip(points[split], classes, strict=True):
            label = f"{name}, {n:,} training samples"
            x, y = np.array(places).T
            panel.scatter(x, y, s=14, color=color, alpha=0.65, lw=0, label=label)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(True)
        marked = ""
        if split == "test":
            marked = "; + those of training"
        style.set_title(panel, f"{split}, {len(points[split][0])} of each{marked}")
    for places in points["train"]:
        x, y = np.array(places).T
        axes[0, 1].scatter(x, y, s=9, color="#111827", marker="+", lw=0.6)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    style.set_legend(figure, handles, labels, ncols=2, loc="outside lower center")
    return Drawn(
        figure,
        "One t-SNE map of train and test features of the most and the least frequent class, baseline on CIFAR-10, "
        f"ratio {int(counts[0] / counts[1])}, the shipped snapshot.",
    )
