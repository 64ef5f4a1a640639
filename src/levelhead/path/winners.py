"""Who wins at one gamma, where rounding of scores decides nothing.

Scores are computed and compared in floats, which is fast and nearly always enough. Where a second
class is within rounding of the winner, the crossing of their two lines decides (`comes_before`).

The walk needs the winners at the two ends of its range, `winners_at` at the start and `winners_at_end` at the
end; whatever is asked at a gamma beyond the range of a path is answered by `winners_at` as well. If rounding
decided there, the walk would begin with a class that its own crossings contradict.
"""

from __future__ import annotations

import numpy as np

from ..support.threads import SCRATCH
from .direction import Direction, MoveTable, comes_before


@np.errstate(over="ignore")  # of a margin, within which every class is then looked at
def winners_at(logits: np.ndarray, direction: Direction, gamma: float) -> np.ndarray:
    """Return the class that wins at gamma, [n], where rounding of scores decides nothing.

    Args:
        logits: [n, K], of any floating-point type.
        direction, gamma: how scores depend on gamma, and where they are compared.

    Returns:
        [n]; of classes that are exactly equal at gamma, the first, as by numpy's argmax.
    """
    # At 0 the scores are the logits, compared as they are.
    if gamma == 0:
        return logits.argmax(axis=1)
    # The largest factor is 1, or the largest addend 0, so that no score overflows.
    slopes = direction.slopes
    steepest = slopes.max()
    if gamma < 0:
        steepest = slopes.min()
    moves = gamma * (slopes - steepest)
    if direction.multiplies:
        scores = logits * np.exp(moves)
    else:
        scores = logits + moves
    winner = scores.argmax(axis=1)
    level = np.take_along_axis(scores, winner[:, None], 1)
    # A class within rounding of the winner takes its place if the crossing of the two lines, exact to
    # its last bits, says so. One class after another, so that the winner of all pairs is left.
    rounding = 1e-12 * (1 + abs(gamma) * np.abs(slopes).max()) * (1 + np.abs(level))
    near = scores >= level - rounding
    rows = np.flatnonzero(near.sum(axis=1) > 1)
    for other in np.flatnonzero(near[rows].any(axis=0)):
        contested = rows[near[rows, other] & (winner[rows] != other)]
        ahead = winner[contested]
        stays = comes_before(
            logits[contested, ahead].astype(np.float64),
            logits[contested, other].astype(np.float64),
            slopes[other] - slopes[ahead],
            ahead < other,
            gamma,
            multiplies=direction.multiplies,
        )
        winner[contested[~stays]] = other
    return winner


def winners_at_end(
    logits: np.ndarray, direction: Direction, gamma: float, table: MoveTable | None
) -> np.ndarray:
    """Return the class that wins at the end of the range, [n], as `winners_at` does.

    With a table, logits are float32, and so are scores: only rows in which that cannot tell who is
    ahead go to `winners_at`. Without one, all do.
    """
    if table is None:
        return winners_at(logits, direction, gamma)
    width = logits.shape[1]
    scores = SCRATCH.table("scores of lines", logits.shape, np.float32)
    table.apply(logits, table.moves[-1], out=scores)
    winner = scores.argmax(axis=1)
    level = scores.take(np.arange(0, logits.size, width) + winner)
    # Rows with a second class that rounding could have put below the winner.
    near = SCRATCH.table("reaches", logits.shape, np.bool_)
    np.greater_equal(scores, (level - 2 * table.margin(level))[:, None], out=near)
    rows = np.flatnonzero(near) // width
    close = np.flatnonzero(np.bincount(rows, minlength=len(logits)) > 1)
    if len(close):
        winner[close] = winners_at(logits[close], direction, gamma)
    return winner
