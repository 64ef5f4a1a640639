"""Every claim of the paper in its order, and the verdicts on all of them.

Claims are of two kinds. Those of `CLAIMS` are judged by records, of which there are several seeds and columns
(`claims.judged`). The others need whole networks, of which there is one for each of two methods, and each of them takes
other sources. `page.claims_table` and `headline` show what `every_finding` returns.
"""

from collections.abc import Callable, Mapping, Sequence

from ..lab.snapshot import Snapshot
from . import feature_claims, gamma_claims, network_claims, norm_claims, table_claims
from .cells import Record, companion_gamma
from .claims import Finding, judged
from .measured_fields import TwoFeatures
from .record import SHIPPED_COLUMN

# Claims that records decide, and where each stands in the paper.
CLAIMS: dict[Callable[[Sequence[Record]], Finding | None], str] = {
    norm_claims.norms_align_late: "Figure 1",
    norm_claims.norm_follows_frequency: "Figure 2",
    norm_claims.balanced_norms_are_uniform: "Figure 2",
    norm_claims.norms_part_with_ratio: "Figure 2",
    feature_claims.train_clusters_grow: "Figure 4",
    feature_claims.train_clusters_saturate: "Figure 4",
    feature_claims.rare_test_clusters_are_wider: "Figure 4",
    feature_claims.centers_drift_apart: "Figure 4",
    feature_claims.rare_centers_are_far_apart: "Figure 4",
    table_claims.balancing_the_data_does_not_help: "Table 1",
    table_claims.wvn_matters_little_on_balanced_data: "Table 1",
    table_claims.rs_beats_the_losses: "Table 1",
    table_claims.wvn_with_rs_is_the_best: "Tables 1, 2",
    feature_claims.recall_follows_frequency: "Figure 6",
    table_claims.rs_is_remarkable_on_tiny_imagenet: "Table 2",
    table_claims.the_plain_oracle_is_better: "Table 3",
    table_claims.wvn_comes_nearer_to_its_oracle: "Table 3",
    gamma_claims.wvn_flattens_the_curve: "Figure 7",
    gamma_claims.cifar100_is_more_sensitive: "Figure 7",
    gamma_claims.every_gamma_helps: "Figure 7",
    norm_claims.step_norms_part: "supplement",
    norm_claims.over_sampling_levels: "supplement",
}


def every_finding(
    records: Sequence[Record],
    snapshots: Mapping[str, Snapshot],
    two_features: TwoFeatures | None,
) -> dict[tuple[str, str], Finding | None]:
    """Return the verdict on every claim, by where it stands and the name of its function; None without its sources.

    Args:
        records: every record in results/records.
        snapshots: the whole networks in results/networks, by method: `baseline` and `wvn`, CIFAR-10 at ratio 100.
        two_features: what bench/paper/two_features.py wrote, networks of two features; None if it has not run.
    """
    findings: dict[tuple[str, str], Finding | None] = {}
    for claim, where in CLAIMS.items():
        findings[where, claim.__name__] = judged(claim, records)
    baseline = snapshots.get("baseline")
    wvn = snapshots.get("wvn")
    gamma = companion_gamma(records, SHIPPED_COLUMN, "wvn")
    # Claims that whole networks decide, and what each of them takes.
    of_networks: list[tuple[str, Callable[..., Finding], tuple[object, ...]]] = [
        ("Equation 3", network_claims.losses_follow_frequency, (baseline,)),
        ("Equation 4", network_claims.own_norms_are_pulled_up, (baseline,)),
        ("Figure 3", network_claims.boundary_leans, (two_features,)),
        ("section 3.2", network_claims.volumes_follow_frequency, (baseline, wvn)),
        ("Figure 5", network_claims.rare_class_is_scattered, (baseline,)),
        ("Figure 6", network_claims.frequent_classes_have_low_precision, (baseline,)),
        ("Figure 6", network_claims.rare_classes_gain, (baseline, wvn, gamma)),
    ]
    for where, claim, sources in of_networks:
        finding = None
        if all(source is not None for source in sources):
            finding = claim(*sources)
        findings[where, claim.__name__] = finding
    return findings
