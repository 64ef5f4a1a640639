"""What is in results/ beside the records, as types: a file for each question that a record cannot answer.

Each file was written by one program, in bench/paper unless it says otherwise, and is read by the page alone. Its class
has what the page reads; a file has more, such as the command that wrote it and digests of its data.

Errors are in percent in the files whose keys are words (`RS`, `new head`), and shares in the others, whose keys are
those of a record. The words are no names for fields of a class, hence the other way to write a `TypedDict`.
"""

from typing import Literal, NotRequired, TypedDict

from .record_fields import ErrorsAtGamma

Point = list[float]  # x and y
Part = Literal["alone", "RS", "shift"]  # a network as trained, after RS, after the shift

# authors.json: the authors' own code, run again.
AuthorsRun = TypedDict(
    "AuthorsRun",
    {
        "column": str,
        "method": str,
        "which": str,  # the epoch that the code keeps: `last`, or `model_best`, whose error is lowest on test
        "epoch": int,
        "alone": float,
        "RS at 0.1": NotRequired[float],
        "RS at 0.5": NotRequired[float],
        "RS": float,  # at the gamma that is best on test
        "shift": NotRequired[float],  # at the strength that is best on test
    },
)


class Authors(TypedDict):
    """What the authors' code gives, error in percent."""

    code: str  # its repository and commit
    hardware: str
    precision: str
    runs: list[AuthorsRun]  # one for each network and each epoch that the code keeps


# precision.json: one training in several precisions, by bench/paper/precision.py.
class PrecisionRun(TypedDict):
    """One network; RS and shift at the strengths that are best on test. Errors in percent."""

    method: str
    precision: str
    seed: int  # networks of one seed have the same batches in every precision
    alone: float
    RS: float
    shift: float


class PrecisionStudy(TypedDict):
    """All networks of the study of precision."""

    runs: list[PrecisionRun]


# epochs.json: RS and the shift after every epoch, by bench/paper/rule_epochs.py.
class BestStrength(TypedDict):
    """A rule after one epoch, at the strength that is best on test."""

    gamma: float  # that strength
    error: float
    curve: list[float]  # error at each of a grid of strengths; of RS `post_hoc.RESCALE_STRENGTHS`


class EpochErrors(TypedDict):
    """One epoch of one network."""

    epoch: int
    error: float  # as trained
    rescale: BestStrength
    shift: BestStrength


class EpochsRun(TypedDict):
    """One network whose head was adjusted after every epoch, of the baseline, WVN or WVN as in the released code."""

    data: str
    ratio: float
    method: str
    epochs: list[EpochErrors]  # from the first fall of the learning rate on


# past_frontier.json: what was tried past the recipe `frontier`, by bench/paper/past_frontier.py.
class VariantRule(TypedDict):
    """A rule on a variant of a network."""

    match_prior: ErrorsAtGamma  # its strength from the test images without labels
    best_on_test: ErrorsAtGamma


class Variant(TypedDict):
    """One network with other weights, other batch statistics or several looks at each test image."""

    weights: str  # `last`, or over which epochs they are averaged
    statistics: str  # what the batch norms hold: `as trained`, or measured again on balanced images
    views: int  # per test image: 1, or 2 with its mirror image
    error: float  # before a rule is applied
    rescale: VariantRule
    shift: VariantRule


class PastFrontierRun(TypedDict):
    """One training of 800 epochs, and its network with every combination of weights, statistics and views."""

    data: str
    method: str
    weight_decay: float
    tried: list[Variant]


# heads.json: heads fitted again on stored features, by bench/paper/refit_heads.py.
class UnlabelledErrors(TypedDict):
    """Test errors in percent with a strength from unlabelled test images: see `refit.halves_errors`."""

    whole: float  # chosen and judged on all
    halves: float  # chosen on one half, judged on the other


class RefittedNetwork(TypedDict):
    """One of the stored networks."""

    errors: dict[str, float]  # in percent, by the titles of `refit.refitted_errors`
    unlabelled: dict[str, UnlabelledErrors]  # by rule


class RefittedCompanion(TypedDict):
    """A network with a hold-out, of a column whose networks are not stored."""

    column: str
    method: str
    errors: dict[str, float]  # in percent, by the titles of `refit.companion_errors`


class Heads(TypedDict):
    """Heads fitted again, on the two stored networks and on companions of another column."""

    column: str  # of the stored networks
    networks: dict[str, RefittedNetwork]  # by method
    companions: NotRequired[list[RefittedCompanion]]


# rounding.json: one training in other company.
RoundingRun = TypedDict(
    "RoundingRun",
    {
        "stacked with, first time": int,  # networks that were trained at the same time
        "second time": int,
        "error, %": list[float],  # the first time, the second time
    },
)


class Rounding(TypedDict):
    """Networks that were trained twice, stacked with different numbers of others."""

    runs: list[RoundingRun]


# figures/boundary.json: networks with two features, by bench/paper/two_features.py.
class FlatNetworks(TypedDict):
    """Networks of one method whose features have two numbers, one network for each seed."""

    weights: list[list[Point]]  # [seeds, K, 2]
    features: list[Point]  # [N, 2], test samples by the first network
    labels: list[int]  # [N]


class TwoFeatures(TypedDict):
    """Networks whose whole feature space can be drawn, on a few of scikit-learn's digits."""

    seeds: int
    counts: list[int]  # [K], training samples
    baseline: FlatNetworks
    wvn: FlatNetworks


# figures/tsne.json: made by `figures.collect_sources`.
class TsneMap(TypedDict):
    """A t-SNE map of two classes, the most and the least frequent: see `figure_features.tsne_points`."""

    of: str  # digest of the network that it was made of
    seed: int
    names: list[str]  # of the two classes
    counts: list[int]
    points: dict[str, list[list[Point]]]  # by split, then by class
