"""The claims about figures and equations, judged by records and networks; and the verdicts on all claims."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from levelhead.core.head import Head
from levelhead.core.measure import recall

from ..lab.snapshot import Snapshot
from ..methods import METHODS
from ..methods.rs import rescale_head
from . import claims
from .cells import Record, companion_gamma, full_runs
from .claims import STRONG, WEAK, Finding, count_correlation, judged, outcome_for, rank_finding
from .geometry import angular_sigma, boundary_angles, center_gap, rank_correlation
from .tables import column_title, table1_columns

STEP_COLUMNS = ("tiny-imagenet:step:100", "tiny-imagenet:step:10")


def norms_align_late(records: Sequence[Record], column: str = "cifar10:100") -> Finding | None:
    logs = [
        r
        for r in full_runs(records, column, "baseline")
        if len(r["norms_over_epochs"]["epochs"]) > 1
    ]
    if not logs:
        return None
    first, last = (
        mean(count_correlation(r, r["norms_over_epochs"]["norms"][at]) for r in logs)
        for at in (0, -1)
    )
    aligned = last >= STRONG
    return Finding(
        "Early in training norms do not follow the sample frequency; later they do.",
        last,
        f"rank correlation {first:.2f} after epoch {logs[0]['norms_over_epochs']['epochs'][0]}, {last:.2f} at the end",
        "reproduced" if aligned and first < STRONG else "partly" if aligned else "not reproduced",
        f"below {STRONG:g} at first, {STRONG:g} at the end; partly: the latter",
    )


def norms_part_with_ratio(records: Sequence[Record]) -> Finding | None:
    columns = [c for c in table1_columns() if full_runs(records, c, "baseline")]
    sets = [[c for c in columns if c.startswith(f"{data}:")] for data in ("cifar10", "cifar100")]
    sets = [found for found in sets if len(found) > 2]
    if not sets:
        return None
    parted = {
        c: mean(max(r["norms"]) / min(r["norms"]) for r in full_runs(records, c, "baseline"))
        for c in columns
    }
    ranks = [
        rank_correlation(
            np.array([parted[c] for c in found]), np.array([int(c.split(":")[1]) for c in found])
        )
        for found in sets
    ]
    ends = {
        column_title(found[0]).split(",")[0]: [
            _ends_are_extreme(r)
            for c in found
            if not c.endswith(":1")
            for r in full_runs(records, c, "baseline")
        ]
        for found in sets
    }
    number = min(ranks)
    strong = number >= STRONG
    return Finding(
        "The most frequent class has the largest norm, the rarest the smallest, the more so the larger the ratio.",
        number,
        f"rank correlation with the ratio {number:.2f}; both ends right in "
        f"{', '.join(f'{sum(each)} of {len(each)} networks of {of}' for of, each in ends.items())}",
        "reproduced"
        if strong and all(map(all, ends.values()))
        else "partly"
        if strong
        else "not reproduced",
        f"{STRONG:g}, and both ends in every network; partly: the former",
    )


def train_clusters_grow(records: Sequence[Record]) -> Finding | None:
    says = "At training time, clusters of more frequent classes are wider."
    return rank_finding(records, says, lambda r: r["geometry"].get("sigma_train"), sign=1)


def boundary_leans(two_features: dict[str, Any]) -> Finding:
    n = np.asarray(two_features["counts"])
    most, least = int(n.argmax()), int(n.argmin())
    angles = {
        m: [boundary_angles(Head(np.array(w)), most, least) for w in two_features[m]["weights"]]
        for m in ("baseline", "wvn")
    }
    leaning = [rare < frequent for frequent, rare in angles["baseline"]]
    middle, share = (
        max(abs(frequent - rare) for frequent, rare in angles["wvn"]),
        float(np.mean(leaning)),
    )
    frequent, rare = (mean(pair[i] for pair in angles["baseline"]) for i in (0, 1))
    return Finding(
        "The boundary leans toward the rarer class; at equal norms it lies in the middle.",
        share,
        f"in {sum(leaning)} of {len(leaning)} networks ({rare:.0f} degrees from its weight vector, {frequent:.0f} from "
        f"the most frequent class's); with WVN these differ by {middle:.1f} degrees",
        outcome_for(share, 0.8, 0.5),
        "4 of 5 networks; partly: half",
    )


def rare_class_is_scattered(snapshot: Snapshot) -> Finding:
    """Judge Figure 5 by angles between features, which t-SNE does not keep: the most and the least frequent class."""
    pair = int(snapshot.counts.argmax()), int(snapshot.counts.argmin())
    train, test = ((snapshot.features[s], snapshot.labels[s]) for s in ("train", "test"))
    gap = center_gap(train, test, snapshot.head.classes)
    sigma = angular_sigma(*test, snapshot.head.classes) / angular_sigma(
        *train, snapshot.head.classes
    )
    frequent, rare = (float(gap[k]) for k in pair)
    return Finding(
        "The most frequent class lies alike at training and test time, the rarest far apart.",
        rare / frequent,
        f"centers {frequent:.1f} and {rare:.1f} degrees apart; test clusters {sigma[pair[0]]:.1f} and "
        f"{sigma[pair[1]]:.1f} times as wide",
        outcome_for(rare / frequent, 2.0, 1.0),
        "centers twice as far apart; partly: farther",
    )


def rare_classes_gain(baseline: Snapshot, wvn: Snapshot, gamma: float) -> Finding:
    third = max(1, baseline.head.classes // 3)
    order = np.argsort(baseline.counts, kind="stable")
    before = recall(baseline.logits("test"), baseline.labels["test"])
    after = recall(
        wvn.logits("test", rescale_head(wvn.head, wvn.counts, gamma)), wvn.labels["test"]
    )
    change = 100 * (after - before)
    rare, frequent = float(change[order[:third]].mean()), float(change[order[-third:]].mean())
    return Finding(
        "WVN+RS improves the infrequent classes and preserves the frequent ones.",
        rare,
        f"recall of the {third} rarest classes {rare:+.1f} points, of the {third} most frequent {frequent:+.1f}",
        "not reproduced" if rare <= 0 else "reproduced" if frequent >= -2 else "partly",
        "the rare gain, the frequent lose at most 2; partly: the former",
    )


def step_norms_part(records: Sequence[Record]) -> Finding | None:
    found = {
        column: [_group_gap(r) for r in full_runs(records, column, "baseline")]
        for column in STEP_COLUMNS
    }
    if not all(found.values()):
        return None
    gaps = {column: mean(each) for column, each in found.items()}
    shown = ", ".join(
        f"{gap:.1f} at ratio {column.rsplit(':', 1)[1]}" for column, gap in gaps.items()
    )
    return Finding(
        "Under step imbalance norms vary less within the two groups than between them.",
        min(gaps.values()),
        f"mean norms lie {shown} standard deviations apart",
        outcome_for(min(gaps.values()), 2.0, 1.0),
        "2 at both ratios; partly: 1",
    )


def over_sampling_levels(records: Sequence[Record], column: str = "cifar10:100") -> Finding | None:
    """Judge the supplement's second figure; of two readings, over-sampling to the largest decides."""
    plain = full_runs(records, column, "baseline")
    readings = {
        m: found
        for m in ("over-sample-largest", "over-sample")
        if (found := full_runs(records, column, m))
    }
    if not plain or not readings:
        return None
    before, seen, outcomes, number = _norm_excess(plain), [], [], []
    for method, repeated in readings.items():
        after, still = (
            _norm_excess(repeated),
            mean(count_correlation(r, r["norms"]) for r in repeated),
        )
        halved, follows = after <= before / 2, still >= STRONG
        outcomes.append(
            "reproduced"
            if halved and follows
            else "partly"
            if halved or follows
            else "not reproduced"
        )
        number.append(after / before)
        seen.append(f"{METHODS[method].title} {after:.0%}, rank correlation {still:.2f}")
    return Finding(
        "Over-sampling makes norms far more alike, yet they still follow the frequency.",
        number[0],
        f"largest norm over the smallest: Baseline +{before:.0%}; {'; '.join(seen)}",
        outcomes[0],
        f"half the discrepancy and a correlation of {STRONG:g}; partly: one of them",
    )


def volumes_follow_frequency(baseline: Snapshot, wvn: Snapshot) -> Finding:
    """Judge section 3.2 by random directions, and by non-negative ones, which features are."""
    x = np.random.default_rng(0).normal(size=(100_000, baseline.head.weight.shape[1]))
    shares = {
        (method, kind): np.bincount(
            snapshot.head.logits(sign(x)).argmax(axis=1), minlength=len(snapshot.counts)
        )
        / len(x)
        for method, snapshot in (("Baseline", baseline), ("WVN", wvn))
        for kind, sign in (("all", np.asarray), ("non-negative", np.abs))
    }
    follows = rank_correlation(shares["Baseline", "all"], baseline.counts)
    level = all(
        shares["WVN", kind].max() <= 2 * shares["WVN", kind].min()
        for kind in ("all", "non-negative")
    )
    each = "; ".join(
        f"{method}, {kind} directions {s.max():.0%} to {s.min():.0%}"
        for (method, kind), s in shares.items()
    )
    return Finding(
        "More frequent classes have a larger volume of feature space; at equal norms volumes are alike.",
        follows,
        f"rank correlation {follows:.2f}; {each}",
        "not reproduced" if follows < STRONG else "reproduced" if level else "partly",
        f"{STRONG:g}, and with WVN none twice another's; partly: the former",
    )


def losses_follow_frequency(snapshot: Snapshot) -> Finding:
    ranks = {}
    for split in ("train", "test"):
        logits, labels = np.asarray(snapshot.logits(split), np.float64), snapshot.labels[split]
        top = logits.max(axis=1)
        values = (
            top
            + np.log(np.exp(logits - top[:, None]).sum(axis=1))
            - logits[np.arange(len(labels)), labels]
        )
        by_class = np.bincount(labels, values) / np.bincount(labels)
        ranks[split] = rank_correlation(by_class, -snapshot.counts)
    return Finding(
        "The training loss of a class is the higher, the rarer the class.",
        ranks["train"],
        f"rank correlation {ranks['train']:.2f}; of the test loss {ranks['test']:.2f}",
        outcome_for(ranks["train"], STRONG, WEAK),
        f"{STRONG:g}; partly: {WEAK:g}",
    )


def own_norms_are_pulled_up(snapshot: Snapshot) -> Finding:
    labels = snapshot.labels["train"]
    logits = np.asarray(snapshot.logits("train"), np.float64)
    probability = np.exp(logits - logits.max(axis=1, keepdims=True))
    own = logits[np.arange(len(labels)), labels]
    p = probability[np.arange(len(labels)), labels] / probability.sum(axis=1)
    slope = np.bincount(
        labels, (p - 1) * own
    )  # |f| cos(theta) is the logit over the norm, which is positive
    lean, falling = float((own > 0).mean()), int((slope < 0).sum())
    return Finding(
        "Training samples lean toward their own class's weight vector, and make its norm grow.",
        lean,
        f"{lean:.1%} of the cosines are positive, the loss's derivative by the norm negative for {falling} of "
        f"{len(slope)} classes",
        "reproduced"
        if lean >= 0.99 and falling == len(slope)
        else "partly"
        if lean >= 0.9
        else "not reproduced",
        "99% and every class; partly: 90%",
    )


# Every claim that records decide, in the order of the paper, and where it stands there.
CLAIMS: dict[Callable[[Sequence[Record]], Finding | None], str] = {
    norms_align_late: "Figure 1",
    claims.norm_follows_frequency: "Figure 2",
    norms_part_with_ratio: "Figure 2",
    train_clusters_grow: "Figure 4",
    claims.rare_test_clusters_are_wider: "Figure 4",
    claims.centers_drift_apart: "Figure 4",
    claims.rare_centers_are_far_apart: "Figure 4",
    claims.balancing_the_data_does_not_help: "Table 1",
    claims.wvn_matters_little_on_balanced_data: "Table 1",
    claims.rs_beats_the_losses: "Table 1",
    claims.wvn_with_rs_is_the_best: "Tables 1, 2",
    claims.the_plain_oracle_is_better: "Table 3",
    claims.wvn_comes_nearer_to_its_oracle: "Table 3",
    claims.wvn_flattens_the_curve: "Figure 7",
    claims.cifar100_is_more_sensitive: "Figure 7",
    claims.every_gamma_helps: "Figure 7",
    step_norms_part: "supplement",
    over_sampling_levels: "supplement",
}


def every_finding(
    records: Sequence[Record],
    snapshots: Mapping[str, Snapshot],
    two_features: dict[str, Any] | None,
) -> dict[tuple[str, str], Finding | None]:
    """Return the verdict on every claim, by where it stands and the name of its function; None without its sources."""
    found: dict[Any, Finding | None] = {
        (at, claim.__name__): judged(claim, records) for claim, at in CLAIMS.items()
    }
    base, wvn = (snapshots.get(method) for method in ("baseline", "wvn"))
    gamma = companion_gamma(records, "cifar10:100", "wvn")
    others = {
        ("Equation 3", losses_follow_frequency): (base,),
        ("Equation 4", own_norms_are_pulled_up): (base,),
        ("Figure 3", boundary_leans): (two_features,),
        ("section 3.2", volumes_follow_frequency): (base, wvn),
        ("Figure 5", rare_class_is_scattered): (base,),
        ("Figure 6", rare_classes_gain): (base, wvn, gamma),
    }
    for (at, claim), sources in others.items():
        found[at, claim.__name__] = None if any(one is None for one in sources) else claim(*sources)
    return found


def _norm_excess(records: Sequence[Record]) -> float:
    return mean(max(r["norms"]) / min(r["norms"]) - 1 for r in records)


def _ends_are_extreme(record: Record) -> bool:
    norms, n = np.asarray(record["norms"]), np.asarray(record["counts"])
    return bool(n[norms.argmax()] == n.max() and n[norms.argmin()] == n.min())


def _group_gap(record: Record) -> float:
    norms, n = np.asarray(record["norms"]), np.asarray(record["counts"])
    frequent, rare = norms[n == n.max()], norms[n == n.min()]
    return float((frequent.mean() - rare.mean()) / np.sqrt((frequent.var() + rare.var()) / 2))
