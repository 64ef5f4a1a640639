"""A record: what is kept of one trained network, as a JSON object in `results/records`.

`record.make_record` computes it from a run's snapshot and log, `cells.load_records` reads it back and checks it. All
tables, claims and figures of the reproduction read records alone, so that nobody needs the networks (two of them are
in the repository: `record.whole_snapshots`). Errors and recalls are shares, from 0 to 1. A list with one number for
each class is in class order.
"""

from typing import Any, NotRequired, TypedDict

PerClass = list[float | None]  # None for a class without a sample


class ErrorsAtGamma(TypedDict):
    """Test errors after RS at one strength."""

    gamma: float
    error: float
    balanced_error: float


class BestEpoch(TypedDict):
    """The epoch whose test error was the lowest; in half precision, as it was measured while training."""

    epoch: int
    error: float


class OracleErrors(TypedDict):
    """The last layer fitted again on the test images: no linear head on these features has a lower loss."""

    error: float
    loss: float
    gradient: float  # largest slope at the end of the fit, near 0 if it has converged
    steps: int


class NormsOverEpochs(TypedDict):
    """Norms of the weight vectors during training, at up to 25 epochs; of more than 20 classes, every fifth."""

    epochs: list[int]
    norms: list[list[float]]  # a row for each of these epochs


class Geometry(TypedDict, total=False):
    """Angles between features, in degrees, by class; those of training images only if the run kept their features."""

    sigma_train: PerClass  # spread around the center of the class
    sigma_test: PerClass
    center_gap: PerClass  # between the centers of training and test features


class TopErrors(TypedDict):
    """Top-k errors over gamma, of Tiny ImageNet alone."""

    k: int
    curve: list[float]  # at the first 101 gammas of `cells.GRID`: up to 1


class Record(TypedDict):
    """One trained network."""

    # Which network, and what made it.
    name: str  # of the record's file: `trainings.Training.name`
    command: NotRequired[str]  # what to type to train it again
    column: str  # of a table: `cifar10:100`, `strong/cifar10:100`
    method: str
    seed: int
    hold_out: float  # share of the training images held out, to choose gamma on
    identity: dict[str, Any]  # `Spec.identity`: everything that decides its numbers
    seconds: float  # its share of the time in which it was trained among others
    device: str
    versions: dict[str, str]
    data_sha256: NotRequired[dict[str, str] | None]  # of each split's images and labels
    counts: list[int]  # training images by class
    n_train: int
    n_test: int

    # As trained.
    error: float
    balanced_error: float
    recall: list[float]
    negative_share: (
        float  # of samples whose own logit is below 0, where RS would work the wrong way
    )
    best_epoch: BestEpoch | None
    norms: list[float]  # of the weight vectors
    norms_over_epochs: NormsOverEpochs
    geometry: Geometry
    nearest_mean_error: (
        float | None
    )  # of the class whose mean of training features is nearest, instead of the head
    top: TopErrors | None

    # Adjusted after training.
    curve: list[float]  # error after RS at each gamma of `cells.GRID`
    best_on_test: ErrorsAtGamma  # at the gamma that no one could have chosen
    recall_at_best: list[float]
    match_prior: ErrorsAtGamma  # at the gamma that levels the predicted shares, without labels
    shift: NotRequired[
        dict[str, Any]
    ]  # the same for offsets by the counts: `post_hoc.shift_errors`
    held_out: (
        dict[str, Any] | None
    )  # by each rule, chosen on the hold-out: `post_hoc.chosen_on_hold_out`
    oracle: OracleErrors | None
