"""A record: what is kept of one trained network, as a JSON object in `results/records`.

`record.make_record` computes it from a run's snapshot and log, `cells.load_records` reads it back and checks it. All
tables, claims and figures of the reproduction read records alone, so that nobody needs the networks (two of them are
in the repository: `record.whole_snapshots`). Errors and recalls are shares, from 0 to 1. A list with one number for
each class is in class order.

The classes here are what a type checker knows of that JSON. They check nothing while a program runs: which keys a file
must have is said by `cells.RECORD_KEYS`. A field that is `NotRequired` came later than the first records, and those
were not made again.
"""

from typing import NotRequired, TypedDict

PerClass = list[float | None]  # None for a class without a sample


class LogRow(TypedDict):
    """What a record takes from one epoch of a run's log; the log has more."""

    epoch: int  # from 1
    test_error: NotRequired[float | None]  # only of epochs that were evaluated
    norms: NotRequired[list[float]]  # of the weight vectors, [K]


class BothErrors(TypedDict):
    """Test errors of a head that was adjusted."""

    error: float
    balanced_error: float  # the mean over classes; equal to the error where classes have equally many test images


class ErrorsAtGamma(BothErrors):
    """Test errors at one strength, which is called gamma for every rule."""

    gamma: float


class ChosenStrength(ErrorsAtGamma):
    """What the hold-out chooses for a rule of one strength, and what it gives on test."""

    interval: NotRequired[list[float]]  # of that strength; older records have one
    best: ErrorsAtGamma  # at the strength whose test error is lowest: what the choice could have reached


class ChosenPair(ErrorsAtGamma):
    """RS at `gamma` and then the shift at `tau`, both chosen on the hold-out."""

    tau: float


class ChosenRule(ErrorsAtGamma):
    """One rule of several, chosen on the hold-out; of older records, from when there was such a choice."""

    rule: str


# `rescale-then-shift` is no name for a field of a class.
_ChoiceOfTwo = TypedDict("_ChoiceOfTwo", {"rescale-then-shift": ChosenPair})


class HoldOutChoices(_ChoiceOfTwo):
    """What the hold-out of a network chooses, by rule: see `post_hoc.chosen_on_hold_out`."""

    n: int  # images that were held out
    rescale: ChosenStrength
    tau: ChosenStrength
    shift: ChosenStrength
    offsets: NotRequired[BothErrors]
    auto: NotRequired[ChosenRule]


class ShiftErrors(TypedDict):
    """The shift, whose offsets follow from the counts: see `post_hoc.shift_errors`."""

    best_on_test: ErrorsAtGamma
    match_prior: ErrorsAtGamma
    curve: list[float]  # error at each strength of `post_hoc.SHIFTS`


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


class RecipeFacts(TypedDict):
    """What the pages read of the recipe in a record's identity; it has every field of `lab.recipe.Recipe`."""

    epochs: int
    milestones: list[int]  # epochs after which the learning rate falls


class Identity(TypedDict):
    """What the pages read of a record's identity; `Spec.identity` has everything that decides a network's numbers."""

    recipe: RecipeFacts
    dtype: NotRequired[str]  # precision of the training; the first records do not say


class RunFacts(TypedDict):
    """Which network a record is of, and what made it: all that is known without looking at its numbers."""

    name: str  # of the record's file: `trainings.Training.name`
    command: NotRequired[str]  # what to type to train it again
    column: str  # of a table: `cifar10:100`, `strong/cifar10:100`
    method: str
    seed: int
    hold_out: float  # share of the training images held out, to choose gamma on
    identity: Identity
    seconds: float  # its share of the time in which it was trained among others
    device: str
    versions: dict[str, str]  # of Python and of the libraries
    data_sha256: NotRequired[dict[str, str] | None]  # of each split's images and labels
    counts: list[int]  # training images by class


class Record(RunFacts):
    """One trained network: the facts of its run, its numbers as trained, and those of adjustments after training."""

    n_train: int
    n_test: int

    # As trained.
    error: float
    balanced_error: float
    recall: PerClass
    # Share of test images whose own logit is below 0: for these RS would work the wrong way.
    negative_share: float
    best_epoch: BestEpoch | None
    norms: list[float]  # of the weight vectors
    norms_over_epochs: NormsOverEpochs
    geometry: Geometry
    # Error if each image goes to the class whose mean of training features is nearest, instead of the head's choice;
    # None if the run kept no training features.
    nearest_mean_error: float | None
    top: TopErrors | None

    # Adjusted after training.
    curve: list[float]  # error after RS at each gamma of `cells.GRID`
    best_on_test: ErrorsAtGamma  # at the gamma that no one could have chosen
    recall_at_best: PerClass
    match_prior: ErrorsAtGamma  # at the gamma that levels the predicted shares, without labels
    shift: NotRequired[ShiftErrors]
    held_out: HoldOutChoices | None  # None unless images were held out
    oracle: OracleErrors | None  # None where the head has more weights than there are test images
