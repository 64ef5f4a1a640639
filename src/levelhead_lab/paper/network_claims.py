"""The paper's claims that whole networks decide: Equations 3 and 4, section 3.2, Figures 3, 5 and 6.

The networks are snapshots with the features of training and test images: Baseline and WVN on CIFAR-10 at ratio 100, one
seed each. A claim about one network is weaker than one about three seeds of ten columns: read these so.

Each function takes its networks and returns a `Finding`. `all_claims` knows which networks each needs, and calls it if
they are there, so that nothing here has to ask.
"""

from statistics import mean

import numpy as np

from levelhead.core.head import Head
from levelhead.core.measure import confusion, recall

from ..lab.snapshot import Snapshot
from ..methods.rs import rescale_head
from .claims import STRONG, WEAK, Finding, outcome_for, outcome_if
from .geometry import angular_sigma, boundary_angles, center_gap, rank_correlation
from .measured_fields import TwoFeatures


def losses_follow_frequency(snapshot: Snapshot) -> Finding:
    """Judge Equation 3 by the mean cross entropy of each class's samples, ranked by rarity.

    The test loss stands beside it and decides nothing, as the claim is about training.
    """
    ranks = {}
    for split in ("train", "test"):
        labels = snapshot.labels[split]
        logits = np.asarray(snapshot.logits(split), np.float64)
        own_logit = logits[np.arange(len(labels)), labels]
        # Cross entropy is log sum_k exp(l_k) - l_y; the largest logit is taken out, so that no exponential overflows.
        largest = logits.max(axis=1)
        log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
        by_class = np.bincount(labels, log_sum - own_logit) / np.bincount(labels)
        ranks[split] = rank_correlation(by_class, -snapshot.counts)
    return Finding(
        "The training loss of a class is the higher, the rarer the class.",
        ranks["train"],
        f"rank correlation {ranks['train']:.2f}; of the test loss {ranks['test']:.2f}",
        outcome_for(ranks["train"], STRONG, WEAK),
        f"{STRONG:g}; partly: {WEAK:g}",
    )


def own_norms_are_pulled_up(snapshot: Snapshot) -> Finding:
    """Judge Equation 4: what a sample's loss does to the norm of its own class's weight vector.

    With ``l_y = |w_y| |f| cos(theta)`` the derivative of the loss is ``(p_y - 1) |f| cos(theta)``: below 0, so that a
    step makes the norm grow, exactly where the cosine is above 0.
    """
    labels = snapshot.labels["train"]
    rows = np.arange(len(labels))
    logits = np.asarray(snapshot.logits("train"), np.float64)
    # p_y, the softmax at the label.
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability = exponentials[rows, labels] / exponentials.sum(axis=1)
    own_logit = logits[rows, labels]
    # |f| cos(theta) is the logit over the norm. The norm is positive and the same for a whole class, so that the sign
    # of the sum over a class is right without it.
    slope = np.bincount(labels, (probability - 1) * own_logit)
    lean = float((own_logit > 0).mean())
    falling = int((slope < 0).sum())
    return Finding(
        "Training samples lean toward their own class's weight vector, and make its norm grow.",
        lean,
        f"{lean:.1%} of the cosines are positive, the loss's derivative by the norm negative for {falling} of "
        f"{len(slope)} classes",
        outcome_if(lean >= 0.99 and falling == len(slope), lean >= 0.9),
        "99% and every class; partly: 90%",
    )


def boundary_leans(two_features: TwoFeatures) -> Finding:
    """Judge Figure 3 by networks with two features, whose boundary can be drawn.

    The boundary between the most and the least frequent class is looked at in every network, one for each seed. It
    leans if it is nearer to the rare class's weight vector; with WVN both vectors have the same length, and the two
    angles have to be equal but for rounding.
    """
    counts = np.asarray(two_features["counts"])
    most = int(counts.argmax())
    least = int(counts.argmin())
    angles = {}  # by method: of each network, the boundary's angle to the frequent and to the rare class
    for method in ("baseline", "wvn"):
        angles[method] = []
        for weights in two_features[method]["weights"]:
            angles[method].append(boundary_angles(Head(np.array(weights)), most, least))
    leaning = [to_rare < to_frequent for to_frequent, to_rare in angles["baseline"]]
    frequent = mean(to_frequent for to_frequent, _ in angles["baseline"])
    rare = mean(to_rare for _, to_rare in angles["baseline"])
    off_middle = max(abs(to_frequent - to_rare) for to_frequent, to_rare in angles["wvn"])
    share = sum(leaning) / len(leaning)
    return Finding(
        "The boundary leans toward the rarer class; at equal norms it lies in the middle.",
        share,
        f"in {sum(leaning)} of {len(leaning)} networks ({rare:.0f} degrees from its weight vector, {frequent:.0f} from "
        f"the most frequent class's); with WVN these differ by {off_middle:.1f} degrees",
        outcome_for(share, 0.8, 0.5),
        "4 of 5 networks; partly: half",
    )


def volumes_follow_frequency(baseline: Snapshot, wvn: Snapshot) -> Finding:
    """Judge section 3.2 by random directions, and by non-negative ones, which features are.

    A class's volume is the share of feature space that the head gives to it. A head without a bias looks at directions
    alone, so that the share is counted over directions drawn from a normal distribution, which has no preferred one.
    Features come out of a ReLU: that is why the same is counted where no entry is negative.

    Volumes are "alike" if none is twice another's.
    """
    # With 100,000 directions a share of 10 % has a standard error of 0.1 points.
    rng = np.random.default_rng(0)  # the same directions for both networks, and every time
    directions = rng.normal(size=(100_000, baseline.head.weight.shape[1]))
    shares = {}
    for method, snapshot in (("Baseline", baseline), ("WVN", wvn)):
        for kind, points in (("all", directions), ("non-negative", np.abs(directions))):
            predicted = snapshot.head.logits(points).argmax(axis=1)
            counted = np.bincount(predicted, minlength=len(snapshot.counts))
            shares[method, kind] = counted / len(points)
    # That volumes follow the counts is judged on all directions, that WVN levels them on both kinds.
    follows = rank_correlation(shares["Baseline", "all"], baseline.counts)
    of_wvn = [share for (method, _), share in shares.items() if method == "WVN"]
    level = all(share.max() <= 2 * share.min() for share in of_wvn)
    spans = []
    for (method, kind), share in shares.items():
        spans.append(f"{method}, {kind} directions {share.max():.0%} to {share.min():.0%}")
    return Finding(
        "More frequent classes have a larger volume of feature space; at equal norms volumes are alike.",
        follows,
        f"rank correlation {follows:.2f}; {'; '.join(spans)}",
        outcome_if(follows >= STRONG and level, follows >= STRONG),
        f"{STRONG:g}, and with WVN none twice another's; partly: the former",
    )


def rare_class_is_scattered(snapshot: Snapshot) -> Finding:
    """Judge Figure 5 by angles between features, which t-SNE does not keep: the most and the least frequent class.

    The paper shows a map of both classes, on which the test points of the rare one are scattered. A map by t-SNE keeps
    who is near whom and nothing else, hence the angle between the centers at training and at test time.
    """
    most = int(snapshot.counts.argmax())
    least = int(snapshot.counts.argmin())
    classes = snapshot.head.classes
    train = (snapshot.features["train"], snapshot.labels["train"])
    test = (snapshot.features["test"], snapshot.labels["test"])
    gap = center_gap(train, test, classes)
    wider = angular_sigma(*test, classes) / angular_sigma(*train, classes)
    # How much farther apart the rare class's centers are; how much wider its test cluster is stands beside it.
    number = float(gap[least] / gap[most])
    return Finding(
        "The most frequent class lies alike at training and test time, the rarest far apart.",
        number,
        f"centers {gap[most]:.1f} and {gap[least]:.1f} degrees apart; test clusters {wider[most]:.1f} and "
        f"{wider[least]:.1f} times as wide",
        outcome_for(number, 2.0, 1.0),
        "centers twice as far apart; partly: farther",
    )


def frequent_classes_have_low_precision(snapshot: Snapshot) -> Finding:
    """Judge the lower left corner of Figure 6 (a): rare classes are taken for frequent ones.

    Who is taken for a frequent class without being one lowers that class's precision. Beside the rank correlation
    stands the mean precision of the most frequent and of the rarest third.
    """
    counted = confusion(snapshot.logits("test"), snapshot.labels["test"])
    # A class that is never predicted has precision 0.
    predicted = np.maximum(counted.sum(axis=0), 1)
    precision = np.diag(counted) / predicted
    # Classes from rare to frequent; of ten, a third is three.
    order = np.argsort(snapshot.counts, kind="stable")
    third = max(1, len(order) // 3)
    rare = precision[order[:third]].mean()
    frequent = precision[order[-third:]].mean()
    rank = rank_correlation(precision, -snapshot.counts)
    return Finding(
        "Without an adjustment, frequent classes have a low precision.",
        rank,
        f"rank correlation of precision with rarity {rank:.2f}; precision of the {third} most frequent classes "
        f"{frequent:.0%}, of the {third} rarest {rare:.0%}",
        outcome_for(rank, STRONG, WEAK),
        f"{STRONG:g}; partly: {WEAK:g}",
    )


def rare_classes_gain(baseline: Snapshot, wvn: Snapshot, gamma: float) -> Finding:
    """Judge Figure 6 (b) beside (a): recall of each class with WVN+RS minus that of the plain network, in points.

    Args:
        baseline: the plain network, as trained.
        wvn: that of WVN, of the same data.
        gamma: of RS on it.
    """
    third = max(1, baseline.head.classes // 3)
    order = np.argsort(baseline.counts, kind="stable")
    # Two networks are compared, not one before and after: WVN changes the training too.
    before = recall(baseline.logits("test"), baseline.labels["test"])
    rescaled = rescale_head(wvn.head, wvn.counts, gamma)
    after = recall(wvn.logits("test", rescaled), wvn.labels["test"])
    change = 100 * (after - before)
    rare = float(change[order[:third]].mean())
    frequent = float(change[order[-third:]].mean())
    return Finding(
        "WVN+RS improves the infrequent classes and preserves the frequent ones.",
        rare,
        f"recall of the {third} rarest classes {rare:+.1f} points, of the {third} most frequent {frequent:+.1f}",
        outcome_if(rare > 0 and frequent >= -2, rare > 0),
        "the rare gain, the frequent lose at most 2; partly: the former",
    )
