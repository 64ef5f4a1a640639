"""Figures of features: decision boundaries, the spread of each class, and a t-SNE map of two classes."""

import hashlib
from typing import Any

import numpy as np

from levelhead.core.head import Head, unit

from ..lab.snapshot import Snapshot
from ..methods.rs import rescale_head
from . import figure_style as style
from .cells import full_runs
from .figure_style import Drawn, MissingSource, Sources
from .tables import column_title

GAMMA = 0.25  # of RS in the drawing of boundaries
TEST_POINTS = 250  # per class in the t-SNE map


def draw_boundary(sources: Sources) -> Drawn:
    """Draw Figure 3 with networks of two features, whose whole feature space can be seen."""
    if sources.two_features is None:
        raise MissingSource(
            "no networks with two features (bench/paper/two_features.py trains them)"
        )
    networks = sources.two_features
    counts = np.asarray(sources.two_features["counts"])
    heads = {name: Head(np.array(networks[name]["weights"][0])) for name in ("baseline", "wvn")}
    rescaled = rescale_head(heads["wvn"], counts, GAMMA)
    figure, axes = style.panels(3, height=3.0)
    colors = style.shades(len(counts))
    drawn = [("Baseline", "baseline", heads["baseline"]), ("WVN", "wvn", heads["wvn"])]
    drawn.append((f"WVN+RS, gamma = {GAMMA:g}", "wvn", rescaled))
    for panel, (name, method, head) in zip(axes[0], drawn, strict=True):
        x = np.array(networks[method]["features"])
        y = np.array(networks[method]["labels"])
        _sectors(panel, head, x, y, colors)
        right = head.logits(x).argmax(axis=1) == y
        recall = right[y == counts.argmin()].mean()
        style.set_title(
            panel, f"{name}\nerror {100 * (1 - right.mean()):.1f} %, rarest recall {recall:.0%}"
        )
    handles = [panel.plot([], [], "o", color=color, ms=5)[0] for color in colors]
    labels = [f"digit {k}, {n} samples" for k, n in enumerate(counts)]
    style.set_legend(
        figure, handles, labels, ncols=len(counts), at="lower", handletextpad=0.1, columnspacing=1.2
    )
    return Drawn(
        figure,
        "Decision regions, weight vectors and test samples of networks with two features, trained on "
        f"{len(counts)} of scikit-learn's digits with a long tail of {counts.max()} to {counts.min()} (seed 0 of "
        f"{networks['seeds']}).",
    )


def _sectors(panel: Any, head: Head, x: np.ndarray, y: np.ndarray, colors: list[Any]) -> None:
    """Draw the region of each class, samples x [N, 2] of labels y [N], and the weight vectors [K, 2] as arrows."""
    reach = 1.08 * float(np.abs(x).max())
    # Without a bias only the direction of a feature decides, so that regions are sectors: one from each change of the
    # owner on a fine circle to the next. The last one ends, once around, where the first begins.
    angles = np.linspace(0, 2 * np.pi, 7201)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    owner = head.logits(circle).argmax(axis=1)
    edges = np.flatnonzero(np.diff(owner))
    for a, b in zip(edges, [*edges[1:], edges[0] + len(angles) - 1], strict=True):
        arc = circle[np.linspace(a + 0.5, b + 0.5, 40).astype(int) % (len(angles) - 1)]
        sector = 2 * reach * np.vstack([[0, 0], arc])
        panel.fill(*sector.T, color=colors[owner[a + 1]], alpha=0.2, lw=0)
        panel.plot(*(2 * reach * np.stack([[0, 0], circle[a]])).T, color="white", lw=1.5)
    panel.scatter(*x.T, s=7, c=[colors[k] for k in y], lw=0)
    longest = np.linalg.norm(head.weight, axis=1).max()
    for k, vector in enumerate(np.asarray(head.weight) / longest * 0.85 * reach):
        panel.annotate(
            "",
            vector,
            (0, 0),
            arrowprops={"arrowstyle": "-|>", "color": "white", "lw": 4, "shrinkA": 0},
        )
        panel.annotate(
            "",
            vector,
            (0, 0),
            arrowprops={"arrowstyle": "-|>", "color": colors[k], "lw": 2, "shrinkA": 0},
        )
    panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])


def draw_clusters(sources: Sources, column: str = "cifar10:100") -> Drawn:
    """Draw Figure 4: three angles of each class, a dot for each network and a line through their means."""
    runs = [run for run in sources.runs(column) if "sigma_train" in run["geometry"]]
    if not runs:
        raise MissingSource(
            f"no record of {column}:baseline with the geometry of training features"
        )
    data, ratio = column.split(":")
    balanced = []
    for run in full_runs(sources.records, f"{data}:1", "baseline"):
        if "sigma_train" in run["geometry"]:
            balanced.append(run)
    figure, axes = style.panels(3, height=2.9, sharey=True)
    counts = runs[0]["counts"]
    at = np.arange(len(counts))
    names = {
        "sigma_train": "sigma, train",
        "sigma_test": "sigma, test",
        "center_gap": "angle between centers",
    }
    for panel, (key, name) in zip(axes[0], names.items(), strict=True):
        values = np.array([run["geometry"][key] for run in runs], float)
        if balanced:  # the same classes without imbalance: what a class is like by itself
            of_balanced = np.mean([run["geometry"][key] for run in balanced], axis=0)
            look = {"color": style.GRAY, "lw": 1, "marker": "o", "ms": 2.5, "zorder": 1}
            panel.plot(at, of_balanced, label="balanced data", **look)
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


def tsne_points(snapshot: Snapshot, *, seed: int = 0) -> dict[str, Any]:
    """Return a t-SNE map of the most and the least frequent class's unit-length features, train and test, for JSON.

    Of both classes equally many samples are mapped: in training as many as the rarer one has.
    """
    from sklearn.manifold import TSNE

    pair = int(snapshot.counts.argmax()), int(snapshot.counts.argmin())
    most = {"train": int(snapshot.counts.min()), "test": TEST_POINTS}
    parts = [(split, k) for split in most for k in pair]
    features = []
    for split, k in parts:
        of_class = snapshot.features[split][snapshot.labels[split] == k]
        features.append(of_class[: most[split]])
    x = unit(np.concatenate(features).astype(np.float64))
    # Not typed; to infer its results takes long.
    tsne: Any = TSNE(random_state=seed, init="pca", perplexity=30)
    places = tsne.fit_transform(x)
    # Back to splits and classes: the parts lie one behind the other.
    edges = np.cumsum([0, *map(len, features)])
    points: dict[str, list[list[list[float]]]] = {split: [] for split in most}
    for i, (split, _) in enumerate(parts):
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
    """Return what tells a network from others: a hash of its weight vectors."""
    weight = np.asarray(snapshot.head.numpy().weight, np.float64)
    return hashlib.sha256(weight.tobytes()).hexdigest()[:12]


def draw_tsne(sources: Sources) -> Drawn:
    """Draw Figure 5: one map of two classes, training samples on the left, test samples on the right."""
    if sources.tsne is None:
        raise MissingSource(
            "no t-SNE of the shipped snapshot (tsne_points makes it, with scikit-learn)"
        )
    points = sources.tsne["points"]
    counts = sources.tsne["counts"]
    classes = list(zip(sources.tsne["names"], counts, (style.BASELINE, style.WVN), strict=True))
    figure, axes = style.panels(2, height=3.4, sharex=True, sharey=True)
    for panel, split in zip(axes[0], ("train", "test"), strict=True):
        for places, (name, n, color) in zip(points[split], classes, strict=True):
            label = f"{name}, {n:,} training samples"
            panel.scatter(*np.array(places).T, s=14, color=color, alpha=0.65, lw=0, label=label)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(True)
        marked = "; + those of training" if split == "test" else ""
        style.set_title(panel, f"{split}, {len(points[split][0])} of each{marked}")
    for places in points["train"]:
        axes[0, 1].scatter(*np.array(places).T, s=9, color="#111827", marker="+", lw=0.6)
    style.set_legend(figure, *axes[0, 0].get_legend_handles_labels(), ncols=2, at="lower")
    return Drawn(
        figure,
        "One t-SNE map of train and test features of the most and the least frequent class, baseline on CIFAR-10, "
        f"ratio {int(counts[0] / counts[1])}, the shipped snapshot.",
    )
