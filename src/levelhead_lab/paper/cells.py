"""The cells of the paper's tables, read from records.

A table asks `cell` for a column, a method and a *reading*: which of the errors in a record it shows. That is the error
after the last epoch, at the best epoch, of the oracle head, or after RS with gamma from one of the sources in `GAMMAS`.
The records behind a cell are those of `full_runs`, one for each seed. Where gamma is chosen on a hold-out, it comes
from another network, the `companion` of the cell: trained without the images that choose.

The road: `load_records` reads and checks every file of a folder, once for a command. From then on a list of records
is handed to whoever makes a table, a sentence, a claim or a figure, and each picks its own by `cell`, `full_runs` and
`companion`. Records have shares; a `Cell` has percent, as tables do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Literal, cast

import numpy as np

from levelhead.support.errors import LevelheadError
from levelhead.support.text import parse_json
from levelhead.support.text import read as read_text

from .record_fields import BothErrors, HoldOutChoices, Record
from .tables import SAME_WHEN_BALANCED, official_sha256, tables

# What the tables, claims and figures read of every record: without one of these it is refused.
RECORD_KEYS = (
    "best_epoch", "best_on_test", "column", "counts", "curve", "device", "error", "geometry", "held_out", "hold_out",
    "identity", "match_prior", "method", "norms", "norms_over_epochs", "oracle", "seconds", "seed", "top", "versions",
)  # fmt: skip
_REMOVE = "remove it, and train its network again"
GRID = np.linspace(0.0, 2.0, 201)  # the gammas of every curve in a record


@dataclass(frozen=True)
class Cell:
    """The errors, in percent, of the runs behind one cell: one for each seed, none where nothing was trained.

    >>> Cell((30.1, 30.5)).text
    '30.30 ± 0.28'
    >>> Cell((30.1, 30.5)).against(29.7)
    '30.30 ± 0.28, *29.70*'
    """

    errors: tuple[float, ...]

    @property
    def text(self) -> str:
        """The mean and, for several runs, the standard deviation; empty without a run."""
        if not self.errors:
            return ""
        spread = ""
        if len(self.errors) > 1:
            spread = f" ± {stdev(self.errors):.2f}"
        return f"{mean(self.errors):.2f}{spread}"

    @property
    def mean_error(self) -> float | None:
        """The mean, in percent; None without a run.

        For sums and differences of cells; a table shows `text`.
        """
        if self.errors:
            return mean(self.errors)
        return None

    def against(self, published: float) -> str:
        """Return the text with the published error behind it, in italics.

        Args:
            published: in percent. Without a run of ours it stands alone, so that no cell is empty that the paper has.
        """
        if self.errors:
            return f"{self.text}, *{published:.2f}*"
        return f"*{published:.2f}*"


def load_records(results: str | Path) -> list[Record]:
    """Read every record in a folder, in the order of the file names.

    Args:
        results: the folder, such as results/records; one without a record gives an empty list.

    Raises:
        LevelheadError: if a file is no record or lacks a key of `RECORD_KEYS`, if two files are of one network (then a
            cell would count it twice), or if a network was trained on other data than the official ones.
    """
    networks: dict[tuple[str, str, int, float], Path] = {}
    records = []
    for path in sorted(Path(results).glob("*.json")):
        record = _read_record(path)
        network = (record["column"], record["method"], record["seed"], record["hold_out"])
        first = networks.setdefault(network, path)
        if first != path:
            raise LevelheadError(
                f"{path.parent}: {first.name} and {path.name} are records of one network ({record['column']}, "
                f"{record['method']}, seed {record['seed']}); remove one of them"
            )
        _check_data(path, record)
        records.append(record)
    return records


def _read_record(path: Path) -> Record:
    """Read one file; raise LevelheadError, with what to do, if it is no record."""
    try:
        record = parse_json(read_text(path))
    except ValueError as error:
        raise LevelheadError(f"{path}: not a record ({error}); {_REMOVE}") from None
    if not isinstance(record, dict):
        raise LevelheadError(f"{path}: not a record, expected a JSON object; {_REMOVE}")
    missing = [key for key in RECORD_KEYS if key not in record]
    if missing:
        raise LevelheadError(f"{path}: not a record, it has no {', '.join(missing)}; {_REMOVE}")
    return cast(Record, record)


def _check_data(path: Path, record: Record) -> None:
    """Raise LevelheadError if a network was trained or tested on other images or labels than the official ones.

    Files with the right names and the wrong content are easy to come by (a mirror, a part of the set), and their errors
    would stand in a table as if they were comparable.
    """
    official = official_sha256(record["column"], record["hold_out"])
    trained_on = record.get("data_sha256")
    # An older record has no digests, and not every column is known.
    if not trained_on or not official:
        return
    # Over the splits of both, so that one that only one of them has is a difference too.
    for split in {**official, **trained_on}:
        if trained_on.get(split) != official.get(split):
            raise LevelheadError(
                f"{path.name}: its {split} images or labels are not those of the official files for "
                f"{record['column']}; remove the record and train it again on those files"
            )


def companion_gamma(records: Sequence[Record], column: str, method: str) -> float | None:
    """Return the gamma that the hold-out of a cell's companion chooses; None if it has no companion.

    All seeds of a cell share it, as there is one companion for all of them.

    >>> held = {"column": "cifar10:100", "method": "wvn", "held_out": {"rescale": {"gamma": 0.31}}}
    >>> companion_gamma([held], "cifar10:100", "wvn"), companion_gamma([held], "cifar10:50", "wvn")
    (0.31, None)
    """
    if column.endswith(":1"):  # on a balanced set, RS is the identity
        return 0.0
    record = companion(records, column, method)
    if record is None:
        return None
    return choices_on_hold_out(record)["rescale"]["gamma"]


def value_at(curve: Sequence[float], gamma: float, grid: np.ndarray = GRID) -> float:
    """Return the value at the point of the grid that is nearest to gamma.

    Args:
        curve: a value for each point of the grid, from its start on; it may end before the grid does.
        gamma: a strength; past the end of the curve, its last value is returned.
        grid: the strengths of the curve, in ascending order.

    >>> value_at([0.3, 0.2, 0.25], 0.012)
    0.2
    """
    return curve[int(np.abs(grid[: len(curve)] - gamma).argmin())]


# Where gamma comes from; the first is the one to compare with what is published.
HELD_OUT = "gamma from a hold-out"
RELEASED_SCRIPT = "gamma 0.5, of the released script"
RELEASED_DEFAULT = "gamma 0.1, the released default"
TEST_IMAGES = "gamma from the test images, without their labels"
BEST_ON_TEST = "best gamma on test"
PAPER_GAMMA = "gamma of the paper"  # stated for Table 2 alone
# Those that rows of Table 1 show, for which the paper states none.
TABLE1_GAMMAS = (HELD_OUT, RELEASED_SCRIPT, RELEASED_DEFAULT, TEST_IMAGES, BEST_ON_TEST)

# (all records, one of them) -> gamma, or None where it is not known
GAMMAS: dict[str, Callable[[Sequence[Record], Record], float | None]] = {
    HELD_OUT: lambda records, record: companion_gamma(records, record["column"], record["method"]),
    RELEASED_SCRIPT: lambda _, record: 0.5,
    RELEASED_DEFAULT: lambda _, record: 0.1,
    TEST_IMAGES: lambda _, record: record["match_prior"]["gamma"],
    BEST_ON_TEST: lambda _, record: record["best_on_test"]["gamma"],
    PAPER_GAMMA: lambda _, record: tables()["table2"]["gamma"],
}
# Sources for which a record has the exact error, and not only the nearest point of a curve: its key there.
EXACT: dict[str, Literal["match_prior", "best_on_test"]] = {
    TEST_IMAGES: "match_prior",
    BEST_ON_TEST: "best_on_test",
}


def _best_epoch_error(record: Record) -> float | None:
    """Return the lowest test error of any epoch; None if none was measured before the last.

    While training, errors are measured in half precision; the last epoch is measured again in full precision, and that
    may come out lower than the best of the others.
    """
    if record["best_epoch"] is None:
        return None
    return min(record["best_epoch"]["error"], record["error"])


def _oracle_error(record: Record) -> float | None:
    if record["oracle"] is None:
        return None
    return record["oracle"]["error"]


LAST_EPOCH = "last epoch"
BEST_EPOCH = "best epoch on test"
ORACLE = "oracle"
# The other readings of a cell: one record -> error, or None where it is not known.
READINGS: dict[str, Callable[[Record], float | None]] = {
    LAST_EPOCH: lambda record: record["error"],
    BEST_EPOCH: _best_epoch_error,
    ORACLE: _oracle_error,
}


def full_runs(records: Sequence[Record], column: str, method: str) -> list[Record]:
    """Return the runs of a cell that were trained on the whole training set, ordered by seed.

    In a balanced column that may be the runs of another method, which it equals there (`SAME_WHEN_BALANCED`).

    >>> plain = {"column": "cifar10:1", "method": "baseline", "seed": 0, "hold_out": 0.0}
    >>> full_runs([plain], "cifar10:1", "over-sample") == [plain]
    True
    """
    trained = method
    if column.endswith(":1"):
        trained = SAME_WHEN_BALANCED.get(method, method)
    runs = []
    for record in records:
        in_cell = record["column"] == column and record["method"] == trained
        if in_cell and not record["hold_out"]:
            runs.append(record)
    return sorted(runs, key=lambda record: record["seed"])


def cell(records: Sequence[Record], column: str, method: str, reading: str = LAST_EPOCH) -> Cell:
    """Return the errors of one cell, in percent.

    Args:
        records: all there are: a gamma may come from another record than the error.
        column, method: of the table; the method without `+rs`, since RS trains nothing.
        reading: a key of `READINGS` or, after RS, a source of gamma: a key of `GAMMAS`.

    Returns:
        A `Cell` with an error for each seed that has a record and, after RS, a gamma.

    >>> run = {"column": "cifar10:100", "method": "baseline", "hold_out": 0.0, "error": 0.25}
    >>> cell([{**run, "seed": 0}, {**run, "seed": 1, "error": 0.375}], "cifar10:100", "baseline")
    Cell(errors=(25.0, 37.5))
    """
    errors = []
    for record in full_runs(records, column, method):
        if reading in READINGS:
            error = READINGS[reading](record)
        else:
            error = _error_after_rs(records, record, reading)
        if error is not None:
            errors.append(100 * error)
    return Cell(tuple(errors))


def top5_cell(
    records: Sequence[Record], column: str, method: str, source: str | None = None
) -> Cell:
    """Return the top-5 errors of a cell as trained or, after RS, with gamma from a source.

    Records have them on Tiny ImageNet alone, and on the grid alone: no source has an exact one.

    Args:
        records, column, method: as of `cell`.
        source: of gamma, a key of `GAMMAS`; None for the network as trained.
    """
    errors = []
    for record in full_runs(records, column, method):
        gamma = 0.0
        if source is not None:
            gamma = GAMMAS[source](records, record)
        if record["top"] and gamma is not None:
            errors.append(100 * value_at(record["top"]["curve"], gamma))
    return Cell(tuple(errors))


def top1_and_top5(
    records: Sequence[Record], column: str, method: str, source: str | None = None
) -> str:
    """Return both errors of a cell, such as `66.02 / 42.10`; empty without a run.

    Args:
        records, column, method: as of `cell`.
        source: as of `top5_cell`.
    """
    top1 = cell(records, column, method, source or LAST_EPOCH)
    if not top1.errors:
        return ""
    return f"{top1.text} / {top5_cell(records, column, method, source).text}"


def companion(records: Sequence[Record], column: str, method: str) -> Record | None:
    """Return the run of a cell that held a tenth of its training images out, if there is one.

    A network that was trained on all images has none left to choose gamma on. Its companion, trained without a tenth,
    is alike enough to lend its gamma; the error is that of the full run, at that gamma.
    """
    for record in records:
        if (record["column"], record["method"]) == (column, method) and record["held_out"]:
            return record
    return None


def choices_on_hold_out(record: Record) -> HoldOutChoices:
    """Return what the hold-out of a companion chose, by rule: see `post_hoc.chosen_on_hold_out`.

    Args:
        record: one that `companion` returned; others have chosen nothing.
    """
    choices = record["held_out"]
    assert choices is not None  # `companion` returns no other record
    return choices


def errors_on_hold_out(record: Record) -> dict[str, BothErrors]:
    """Return the test errors of a companion by each rule that every such record has, chosen on its hold-out.

    The strength or the offsets come from the hold-out, the errors from the test images. Offsets are left out: records
    from before they were the default have none.
    """
    choices = choices_on_hold_out(record)
    return {
        "rescale": choices["rescale"],
        "tau": choices["tau"],
        "shift": choices["shift"],
        "rescale-then-shift": choices["rescale-then-shift"],
    }


def share_of_gap(before: float, after: float, oracle: float) -> float | None:
    """Return which part of the way to the oracle head an adjustment goes; None where there is no way to go.

    Args:
        before, after: errors without the adjustment and with it.
        oracle: error of the oracle head, in the same unit as the others.

    >>> share_of_gap(before=30.0, after=22.0, oracle=20.0)
    0.8
    """
    if before <= oracle:
        return None
    return (before - after) / (before - oracle)


def _error_after_rs(records: Sequence[Record], record: Record, source: str) -> float | None:
    """Return the error after RS, a share; None where the source has no gamma for this record.

    It is the exact one where the record has it, or else the one at the nearest point of its curve.

    Args:
        records: all there are, among which the companion is looked for.
        record: whose error is asked for.
        source: of gamma, a key of `GAMMAS`.
    """
    if source in EXACT:
        return record[EXACT[source]]["error"]
    gamma = GAMMAS[source](records, record)
    if gamma is None:
        return None
    return value_at(record["curve"], gamma)
