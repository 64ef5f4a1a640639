"""The pictures of the guide and the numbers next to them.

They show the ResNet-32 that comes with the package, and small networks trained here on long-tailed digits.
`python docs/pictures.py` takes two minutes on one core, writes docs/images/guide-*.svg and fills in the pages' numbers.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch

import levelhead as lh
from levelhead.core.head import normalize
from levelhead.show.plot import headless, save
from levelhead.show.style import ACCENT, INK, SOFT
from levelhead_lab.lab.data import Data, hold_out, imbalance
from levelhead_lab.lab.load import digits
from levelhead_lab.lab.nets import build
from levelhead_lab.lab.preprocess import Preprocess, snapshot
from levelhead_lab.lab.recipe import find_recipe
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.lab.train import fit
from levelhead_lab.methods import METHODS
from levelhead_lab.paper import geometry
from levelhead_lab.paper.markdown import fill, markdown_table
from levelhead_lab.paper.record import whole_snapshots

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
COOL = "#0f766e"
TITLES = {"rescale": "RS", "offsets": "offsets"}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", lh.warnings.LevelheadWarning)
    real = whole_snapshots(HERE.parent / "results" / "networks")["baseline"]
    data = hold_out(imbalance(digits(), "long-tail", ratio=50), 0.2)
    plain = [train(data, "baseline", seed) for seed in SEEDS]
    kept = [train(data, "wvn", seed) for seed in SEEDS]
    adam = [train_with_adam(data, seed) for seed in SEEDS]
    draw_boundary()
    draw_norms({"SGD with momentum": plain, "Adam": adam, "SGD with WVN": kept})
    draw_trade(real)
    draw_calibration(real)
    fill(HERE / "method.md", "features", features_in_words(real))
    fill(HERE / "method.md", "norms", norms_in_words(real, plain, adam))
    fill(HERE / "calibration.md", "calibration", calibration_in_words(real))


def train(data: Data, method: str, seed: int) -> Snapshot:
    net, schedule = (
        build("digits", data.classes, shape=data.shape, seed=seed),
        find_recipe("digits"),
    )
    fit(net, data, schedule, METHODS[method], seed=seed)
    return snapshot(net, data, Preprocess(schedule, data))


def train_with_adam(data: Data, seed: int, *, lr: float = 1e-3) -> Snapshot:
    """Train the same network with Adam in a plain loop, with the same batch size and number of epochs."""
    net, schedule = (
        build("digits", data.classes, shape=data.shape, seed=seed),
        find_recipe("digits"),
    )
    preprocess, generator = Preprocess(schedule, data), torch.Generator().manual_seed(seed)
    images, labels = (
        preprocess.standardized(torch.from_numpy(data.train.images)),
        torch.from_numpy(data.train.labels),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    net.train()
    for _ in range(schedule.epochs):
        for batch in torch.randperm(len(labels), generator=generator).split(schedule.batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimizer.step()
    return snapshot(net, data, preprocess)


def draw_boundary() -> None:
    """Draw two weight vectors in their plane, as trained and at equal length: the boundary leans toward the shorter."""
    pyplot = headless()
    figure, both = pyplot.subplots(1, 2, figsize=(7.6, 2.92), layout="constrained")
    trained = lh.Head(np.array([[2.0, 0.35], [0.25, 1.0]]))
    for axes, head, title in (
        (both[0], trained, "as trained"),
        (both[1], normalize(trained), "equal lengths"),
    ):
        x, y = np.meshgrid([-0.6, 2.6], [-0.6, 1.6])
        lead = (head.weight[1] - head.weight[0]) @ np.stack(
            [x.ravel(), y.ravel()]
        )  # of the rare class
        axes.contourf(x, y, lead.reshape(x.shape), levels=[-9, 0, 9], colors=["#e2e8f0", "#fed7aa"])
        for row, color, name in zip(head.weight, (INK, ACCENT), ("frequent", "rare"), strict=True):
            axes.annotate(
                "", row, (0, 0), arrowprops={"arrowstyle": "-|>", "color": color, "lw": 2}
            )
            axes.text(
                *(row + 0.08 * row / np.linalg.norm(row)),
                name,
                color=color,
                va="bottom",
                ha="center",
            )
        angles = geometry.boundary_angles(head, 0, 1)
        axes.set(
            title=f"{title}: {angles[0]:.0f}° and {angles[1]:.0f}° to the boundary",
            xlim=(-0.6, 2.6),
            ylim=(-0.6, 1.6),
            aspect="equal",
            anchor="S",  # centered, equal units would leave a blank band below
            xticks=[],
            yticks=[],
        )
        axes.spines[["left", "bottom"]].set_visible(False)
    save(figure, HERE / "images" / "guide-boundary.svg")


def draw_norms(trained: dict[str, list[Snapshot]]) -> None:
    """Draw the length of each class's weight vector against its count, relative to the longest."""
    pyplot = headless()
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    marks = zip(
        trained.items(), ((INK, "o", "-"), (ACCENT, "s", "--"), (COOL, "^", ":")), strict=True
    )
    for (name, snapshots), (color, marker, line) in marks:
        lengths = np.array([geometry.relative_norms(one.head) for one in snapshots])
        axes.errorbar(
            snapshots[0].counts,
            lengths.mean(axis=0),
            lengths.std(axis=0, ddof=1),
            color=color,
            marker=marker,
            linestyle=line,
            capsize=2,
            label=name,
        )
    axes.set(
        xscale="log",
        xlabel="training samples of the class",
        ylabel="length of its weight vector\n(longest = 1)",
        ylim=(0, 1.08),
    )
    axes.legend(frameon=False, loc="lower right")
    save(figure, HERE / "images" / "guide-norms.svg")


def draw_trade(one: Snapshot) -> None:
    """Draw the recall that gamma gives to the rare classes and takes from the frequent ones, on the test set."""
    pyplot = headless()
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    gammas, counts = np.linspace(0, 1.5, 301), one.counts
    path = lh.gamma_path(one.logits("test"), one.labels["test"], counts)
    accuracy = np.array([path.class_accuracy(gamma) for gamma in gammas])
    for rows, color, line, name in (
        (slice(0, 3), INK, "--", f"3 most frequent classes (n = {counts[2]} to {counts[0]})"),
        (slice(-3, None), ACCENT, "-.", f"3 rarest classes (n = {counts[-1]} to {counts[-3]})"),
        (slice(None), SOFT, "-", "mean of all classes"),
    ):
        axes.plot(
            gammas,
            100 * accuracy[:, rows].mean(axis=1),
            color=color,
            linestyle=line,
            label=name,
            lw=2.4 if color == SOFT else 1.4,
        )
    axes.set(xlabel="gamma", ylabel="recall, %", xlim=(0, 1.5), ylim=(0, 103))
    axes.legend(frameon=False)
    save(figure, HERE / "images" / "guide-trade.svg")


def draw_calibration(one: Snapshot) -> None:
    """Draw confidence against accuracy as trained, after RS, and with a temperature fitted on other samples."""
    pyplot = headless()
    figure, axes = pyplot.subplots(figsize=(4.6, 4.2), layout="constrained")
    axes.plot([0, 1], [0, 1], color=SOFT, lw=1)
    styles = ((INK, "o", "-"), (ACCENT, "s", "--"), (COOL, "^", ":"))
    labels = one.labels["test"][1::2]
    for (name, logits), (color, marker, line) in zip(
        adjusted(one, "rescale").items(), styles, strict=True
    ):
        probability = np.exp(lh.measure.log_softmax(logits))
        confidence, right = probability.max(axis=1), probability.argmax(axis=1) == labels
        bins = np.array_split(np.argsort(confidence), 12)  # of equal size
        axes.plot(
            [confidence[some].mean() for some in bins],
            [right[some].mean() for some in bins],
            color=color,
            marker=marker,
            linestyle=line,
            label=name,
        )
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")
    axes.legend(frameon=False, loc="upper left")
    save(figure, HERE / "images" / "guide-calibration.svg")


def adjusted(one: Snapshot, rule: str) -> dict[str, np.ndarray]:
    """Return logits of every other test sample, before and after a rule that was tuned on the others."""
    logits, labels = np.asarray(one.logits("test")), one.labels["test"]
    tuned = lh.tune(logits[::2], labels[::2], one.counts, rule=rule)
    after, title = tuned.apply(logits[1::2]), TITLES[rule]
    return {
        "as trained": logits[1::2],
        f"after {title}": after,
        f"after {title}, with temperature": after / tuned.temperature,
    }


def features_in_words(one: Snapshot) -> str:
    """Return the errors of the trained head, of a new one and of RS on half of the test set, in words."""
    features, labels = one.features["test"].astype(np.float64), one.labels["test"]
    found = adjusted(one, "rescale") | {
        "new": new_head(features[::2], labels[::2], one.head.classes).logits(features[1::2])
    }
    error = {
        name: f"{100 * lh.measure.error(logits, labels[1::2]):.1f} %"
        for name, logits in found.items()
    }
    return (
        f"The ResNet-32 that comes with this package was trained on {one.counts[0]:,} to {one.counts[-1]} images "
        f"per class of CIFAR-10. On half of the test images its error is {error['as trained']}. With a new head, "
        f"fitted to the features of the other half, it is {error['new']}. With the old head, its "
        f"{one.head.classes} lengths scaled by one number that was chosen on that other half, it is "
        f"{error['after RS']}."
    )


def new_head(features: np.ndarray, labels: np.ndarray, classes: int) -> lh.Head:
    """Fit a linear head to features, with the weight decay that is best on half of them when fitted on the others."""

    def trial(decay: float) -> float:
        head = geometry.oracle_head(features[::2], labels[::2], classes, decay=decay).head
        return lh.measure.error(head.logits(features[1::2]), labels[1::2])

    return geometry.oracle_head(
        features, labels, classes, decay=min((1e-4, 1e-3, 1e-2), key=trial)
    ).head


def norms_in_words(real: Snapshot, plain: list[Snapshot], adam: list[Snapshot]) -> str:
    follow = {
        name: [geometry.norm_follows_count(one.head, one.counts) for one in some]
        for name, some in (("SGD", plain), ("Adam", adam))
    }
    return (
        f"In the ResNet-32 above, the weight vector of the most frequent class is {_ratio(real):.2f} times as long "
        f"as that of the rarest, and the rank correlation of length with count is "
        f"{geometry.norm_follows_count(real.head, real.counts):.2f}. The picture is of small networks on "
        f"digits, {plain[0].counts[0]} to {plain[0].counts[-1]} training images per class, {len(plain)} seeds: "
        f"under SGD with momentum the ratio is {_span([_ratio(one) for one in plain])} and the correlation "
        f"{_span(follow['SGD'])}; under Adam {_span([_ratio(one) for one in adam])} and {_span(follow['Adam'])}."
    )


def calibration_in_words(one: Snapshot) -> str:
    labels = one.labels["test"][1::2]
    rows = [
        (
            name,
            [
                f"{100 * measured(logits, labels):.1f}"
                for measured in (lh.measure.error, lh.measure.calibration_error)
            ],
        )
        for name, logits in (adjusted(one, "rescale") | adjusted(one, "offsets")).items()
    ]
    source = (
        f"The ResNet-32 that comes with the package, on {len(labels):,} test images of CIFAR-10, tuned on "
        "as many others:"
    )
    return f"{source}\n\n{markdown_table(['', 'error, %', 'expected calibration error, points'], rows)}"


def _ratio(one: Snapshot) -> float:
    return float(one.head.norms[0] / one.head.norms[-1])


def _span(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


if __name__ == "__main__":
    main()
