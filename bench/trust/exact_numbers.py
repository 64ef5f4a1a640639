"""Check predictions along the path against exact arithmetic, over families of logits made to break it, by every engine.

    python -m bench.trust.exact_numbers 10000000    # so many (row, gamma) pairs; prints one line of JSON

The truth is the definition. Class k is ahead of y at gamma if ``l_k + gamma a_k > l_y + gamma a_y`` (shift, with the
float64 slopes a as given), or ``l_k r_k^gamma > l_y r_y^gamma`` (rescale, tau, with the float64 ratios r as given), or
if both are equal and k < y. Differences are computed in float64 with a bound on their rounding. What that bound cannot
decide is decided by fractions (shift) or by logarithms of 60 digits.

A crossing is a float64, so it cannot be closer than rounding to the real one. A pair counts as undecided, and not among
the pairs, where gamma is within 1.5e-13 of a crossing, relative to gamma (ties at round gammas are looked for so far),
or within the rounding of the slopes. Equal scores at 0 and at multiples of 1/64000 are always decided: the first class.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from decimal import Decimal, getcontext
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from levelhead.core.gamma_path import find_path_rule
from levelhead.core.rules import Tau
from levelhead.path.direction import Direction
from levelhead.path.envelope import Envelope
from levelhead.path.walk import compute_envelope

getcontext().prec = 60
SMALLEST = Fraction(5e-323)  # ten floats above 0, between which crossings are rounded
EPS = np.finfo(np.float64).eps
# Strengths that people give, at which ties are likely; and ones so small that products underflow.
NICE = (0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0)
TINY = (5e-324, 1e-300, 1e-17, 1e-12, 1e-9)
Draw = Callable[[np.random.Generator, int, int], np.ndarray]


class Family(NamedTuple):
    """Logits [n, K], made by `draw`, and counts [K], by `counts`, for each of the numbers of classes."""

    draw: Draw
    counts: Callable[[np.random.Generator, int], np.ndarray]
    classes: tuple[int, ...] = (2, 3, 10, 40)


def _any(rng: np.random.Generator, k: int) -> np.ndarray:
    """Return counts of all sizes, [K]."""
    return rng.integers(1, 5000, k)


def _powers(rng: np.random.Generator, k: int) -> np.ndarray:
    """Return powers of 2: their ratios are exact, and scores tie at round strengths."""
    return 2 ** rng.integers(0, 8, k)


def _repeated(rng: np.random.Generator, k: int) -> np.ndarray:
    """Return counts of which many are equal: lines that are parallel."""
    return rng.choice([1, 30, 30, 900], k)


def _near(rng: np.random.Generator, k: int) -> np.ndarray:
    """Return counts that differ in the seventh digit: lines that are nearly parallel."""
    return 1_000_000 + rng.integers(0, 4, k)


def _ones(rng: np.random.Generator, k: int) -> np.ndarray:
    """Return counts of which most are 1."""
    return np.where(rng.random(k) < 0.7, 1, rng.integers(1, 10**6, k))


def _signs(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Return 1 or -1, [n, K]."""
    return rng.choice([-1.0, 1.0], (n, k))


def _steps(rng: np.random.Generator, n: int, k: int, bits: int) -> np.ndarray:
    """Return logits of one sign with `bits` bits, within a factor of two: many are equal, others a step apart."""
    return (1 + rng.integers(0, 1 << bits, (n, k)) / (1 << bits)) * rng.choice([-1.0, 1.0], (n, 1))


def _one_float_apart(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Return logits of which those of a row are at most four floats apart."""
    base = rng.normal(size=(n, 1)) * np.ones(k)
    return (base.view(np.int64) + rng.integers(-2, 3, (n, k))).view(np.float64)


def _tied_somewhere(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Return powers of 2 as logits: with powers of 2 as counts, scores are equal at many round gammas."""
    return 2.0 ** rng.integers(-6, 7, (n, k))


# Each is made to break something: rounding, ties, underflow, overflow, signed zeros, parallel
# lines, many classes, few classes.
FAMILIES: dict[str, Family] = {
    "normal": Family(lambda rng, n, k: rng.normal(size=(n, k)), _any),
    "single precision": Family(lambda rng, n, k: (3 * rng.normal(size=(n, k))).astype(np.float32), _any),
    "small integers, with zeros": Family(lambda rng, n, k: rng.integers(-3, 4, (n, k)).astype(np.float32), _powers),
    "int8": Family(lambda rng, n, k: rng.integers(-128, 128, (n, k)) * 1.0, _any),
    "int4, positive": Family(lambda rng, n, k: rng.integers(1, 16, (n, k)) * 1.0, _powers),
    "bfloat16 steps": Family(lambda rng, n, k: _steps(rng, n, k, 7).astype(np.float32), _any),
    "float16 steps": Family(lambda rng, n, k: _steps(rng, n, k, 10).astype(np.float16), _powers),
    "float16 near 60,000": Family(
        lambda rng, n, k: (_signs(rng, n, k) * rng.uniform(55_000, 65_504, (n, k))).astype(np.float16), _any
    ),
    "float16, smallest": Family(
        lambda rng, n, k: (_signs(rng, n, k) * rng.integers(0, 40, (n, k)) * 2.0**-24).astype(np.float16), _any
    ),
    "equal rows": Family(lambda rng, n, k: rng.normal(size=(n, 1)) * np.ones(k), _any),
    "equal rows, repeated counts": Family(lambda rng, n, k: rng.integers(-9, 9, (n, 1)) * np.ones(k), _repeated),
    "zeros": Family(lambda rng, n, k: rng.integers(-1, 2, (n, k)) * 0.0, _any),
    "signed zeros and ones": Family(lambda rng, n, k: rng.choice([-1.0, -0.0, 0.0, 1.0], (n, k)), _repeated),
    "one float apart": Family(_one_float_apart, _any),
    "powers of two": Family(_tied_somewhere, _powers),
    "powers of two, negative": Family(lambda rng, n, k: -_tied_somewhere(rng, n, k), _powers),
    "powers of two, K 33": Family(_tied_somewhere, _powers, (33,)),
    "huge and tiny": Family(lambda rng, n, k: _signs(rng, n, k) * 10.0 ** rng.uniform(-300, 300, (n, k)), _any),
    "huge and tiny, single": Family(
        lambda rng, n, k: (_signs(rng, n, k) * 10.0 ** rng.uniform(-44, 38, (n, k))).astype(np.float32), _any
    ),
    "huge": Family(lambda rng, n, k: _signs(rng, n, k) * rng.uniform(0.5, 1.7, (n, k)) * 1e308, _any),
    "denormal": Family(lambda rng, n, k: _signs(rng, n, k) * rng.integers(0, 9, (n, k)) * 5e-324, _any),
    "denormal, single": Family(
        lambda rng, n, k: (_signs(rng, n, k) * rng.integers(0, 9, (n, k)) * 1.5e-45).astype(np.float32), _powers
    ),
    "opposite signs, underflowing quotient": Family(
        lambda rng, n, k: _signs(rng, n, k) * 10.0 ** rng.choice([-200.0, -190.0, 190.0, 200.0], (n, k)), _any
    ),
    "near-parallel lines": Family(lambda rng, n, k: 1 + rng.integers(-3, 4, (n, k)) * 1e-7, _near),
    "near-parallel lines, single": Family(
        lambda rng, n, k: (1 + rng.integers(-3, 4, (n, k)) * 2.0**-20).astype(np.float32), _near
    ),
    "counts of one": Family(lambda rng, n, k: 2 * rng.normal(size=(n, k)), _ones),
    "counts of one, quarters": Family(lambda rng, n, k: rng.integers(-9, 10, (n, k)) / 4, _ones),
    "repeated counts": Family(lambda rng, n, k: rng.integers(-9, 10, (n, k)) / 8, _repeated),
    "K 2, opposite logits": Family(lambda rng, n, k: rng.normal(size=(n, 1)) * np.array([1.0, -1.0]), _any, (2,)),
    "K 33": Family(lambda rng, n, k: rng.integers(-20, 60, (n, k)).astype(np.float32) / 8, _any, (33,)),
    "K 300, single": Family(lambda rng, n, k: rng.normal(size=(n, k)).astype(np.float32), _any, (300,)),
    "K 1000": Family(lambda rng, n, k: rng.integers(-40, 90, (n, k)).astype(np.float32) / 16, _powers, (1000,)),
    "far from zero": Family(lambda rng, n, k: 1e6 + rng.integers(0, 30, (n, k)) / 4, _any),
    "all equal counts": Family(lambda rng, n, k: rng.integers(-3, 4, (n, k)) * 1.0, lambda rng, k: np.full(k, 7)),
}  # fmt: skip


@lru_cache(maxsize=1 << 16)
def _log(value: float) -> Decimal:
    """Return the logarithm to 60 digits; the same few logits and counts come again and again."""
    return Decimal(value).ln()


@lru_cache(maxsize=1 << 18)
def compare_exactly(
    own: float, other: float, a_own: float, a_other: float, gamma: float, multiplies: bool
) -> int:
    """Return 1, 0 or -1 as y's score is larger, equal or smaller; 2 if undecided.

    ``a_own`` and ``a_other`` are ratios if the rule multiplies, else slopes. Logits have one sign, and none is 0.
    """
    # The round strength nearest to this one: a tie there is a tie by definition, not by rounding.
    near = Fraction(round(gamma * 64000), 64000)
    if not multiplies:
        gap = Fraction(own) - Fraction(other)
        rise = Fraction(a_other) - Fraction(a_own)
        difference = gap - Fraction(gamma) * rise
        if difference == 0 or abs(difference) > (
            Fraction(1.5e-13) * abs(Fraction(gamma)) + SMALLEST
        ) * abs(rise):
            return (difference > 0) - (difference < 0)
        return 2
    gap = Decimal(0)
    if own != other:
        gap = _log(abs(own)) - _log(abs(other))
    sign = 1
    if own < 0:  # of two negative scores the one nearer to 0 is larger
        sign = -1
    own_slope = _log(a_own)
    other_slope = _log(a_other)
    rise = other_slope - own_slope
    size = abs(own_slope) + abs(other_slope)
    # Where logits and ratios are powers of one number the scores tie exactly; 60 digits leave 1e-45
    # of that.
    tied = abs(gap - rise * near.numerator / near.denominator) < Decimal("1e-45")
    if tied and near and float(near) == gamma and abs(rise) > size / 100:
        return 0
    difference = (gap - rise * Decimal(gamma)) * sign
    # So close to a crossing, either answer is right: a crossing is itself a rounded float64.
    hair = (
        Decimal("1.5e-13") * abs(Decimal(gamma) * rise)
        + 4 * Decimal(float(EPS)) * abs(Decimal(gamma)) * size
    )
    if abs(difference) <= hair:
        return 2
    return 1 if difference > 0 else -1


class Truth:
    """Which classes are ahead of y at any gamma: logits [n, K], labels [n], under a rule.

    The score of class k less that of y is a line in gamma: ``gap - gamma rise``, of logits and
    slopes for a rule that adds; for one that multiplies, of logarithms, times the sign, as long as
    both logits have the same one. If they have not, or one is 0, no gamma changes their order.
    Everything is computed for all pairs at once in float64; only pairs that come too close for that
    are given to `compare_exactly`.
    """

    def __init__(self, logits: np.ndarray, labels: np.ndarray, rule: Direction) -> None:
        wide = logits.astype(np.float64)
        rows = np.arange(len(labels))
        own = wide[rows, labels][:, None]
        slopes = rule.slopes
        self.wide = wide  # logits in float64
        self.labels = labels
        self.rows = rows
        self.multiplies = rule.multiplies
        self.terms = rule.ratios if rule.multiplies else slopes
        # Which classes lose a tie against y: of equal scores, the first is predicted.
        self.first = labels[:, None] < np.arange(wide.shape[1])
        # Who is ahead where gamma changes nothing: 1 for y, -1 for the other, 0 for a tie.
        self.order = (own > wide).astype(np.int8) - (own < wide)
        # The slope of each difference, and the size of what it was computed from, which bounds its
        # rounding; which differences gamma moves at all, and in which direction of the logarithms.
        self.rise = slopes - slopes[labels][:, None]
        self.size = np.abs(slopes) + np.abs(slopes[labels][:, None])
        self.moves = self.rise != 0
        self.sign = np.ones_like(own)
        if rule.multiplies:
            self.moves &= (np.sign(own) == np.sign(wide)) & (wide != 0)
            self.sign = np.sign(own)
            wide = np.log(np.abs(np.where(wide == 0, 1.0, wide)))
            own = wide[rows, labels][:, None]
        self.gap = own - wide
        self.rounding = 1e-15 * np.abs(own) + 1e-15 * np.abs(wide)

    def count_ahead(self, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """Return how many classes are certainly ahead of y, [n], and how many may be, [n]."""
        order = self.order.copy()
        if gamma != 0:
            difference = (self.gap - gamma * self.rise) * self.sign
            doubt = self.rounding + abs(gamma) * (1e-15 * self.size + 1.5e-13 * np.abs(self.rise))
            # Where a difference is larger than its doubt, its sign decides.
            np.copyto(order, np.where(difference > 0, 1, -1), where=self.moves, casting="unsafe")
            near = self.moves & (
                np.abs(difference) <= doubt + (0 if self.multiplies else 5e-323 * np.abs(self.rise))
            )
            for i, c in np.argwhere(near):
                y = self.labels[i]
                pair = (
                    float(self.wide[i, y]),
                    float(self.wide[i, c]),
                    float(self.terms[y]),
                    float(self.terms[c]),
                )
                order[i, c] = compare_exactly(*pair, float(gamma), self.multiplies)
        # Of equal scores, the first class is predicted.
        ahead = (order == -1) | ((order == 0) & ~self.first)
        ahead[self.rows, self.labels] = False
        return ahead.sum(axis=1), (ahead | (order == 2)).sum(axis=1)


def _labels(rng: np.random.Generator, logits: np.ndarray) -> np.ndarray:
    """Return labels, half of them among the three largest logits, so that intervals are not all empty."""
    n, k = logits.shape
    ranked = np.argsort(-logits.astype(np.float64), axis=1, kind="stable")
    near = ranked[np.arange(n), rng.integers(0, min(3, k), n)]
    return np.where(rng.random(n) < 0.7, near, rng.integers(0, k, n))


def changes_found(
    logits: np.ndarray, direction: Direction, range: tuple[float, float]
) -> dict[str, Envelope]:
    """Return the changes that every engine finds; that of a GPU runs on the host."""
    import torch

    from levelhead.path.walk_torch import walk_on_device

    by_engine = {"numpy": compute_envelope(logits, direction, range)}
    wide = logits.astype(np.float64)
    tiny = not direction.multiplies and bool(((wide != 0) & (np.abs(wide) < 1e-290)).any())
    if not tiny:  # such are left to the host
        by_engine["torch"] = walk_on_device(torch.from_numpy(logits), direction, range)
    return by_engine


def check_family(name: str, rng: np.random.Generator, rows: int, gammas: int) -> dict[str, int]:
    """Return how many pairs were checked, undecided and wrong in one draw of a family.

    A pair is right if its label is predicted where, and only where, no class is ahead of it. Labels are
    drawn among the largest logits, so that every class of a row is looked at sooner or later.
    """
    family = FAMILIES[name]
    k = int(rng.choice(family.classes))
    rows = max(4, min(rows, 60_000 // k))
    counts = family.counts(rng, k)
    logits = family.draw(rng, rows, k)
    labels = _labels(rng, logits)
    title = str(rng.choice(["rescale", "shift", "tau"]))
    norms = rng.uniform(0.5, 2, k).astype(np.float32)
    if rng.random() < 0.5:
        norms = 2.0 ** rng.integers(-2, 3, k)
    rule = Tau(norms=norms) if title == "tau" else find_path_rule(title)
    direction = rule.direction(counts)
    reach = ((0.0, 2.0), (-1.0, 2.0))[rng.integers(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        by_engine = changes_found(logits, direction, reach)
    # Strengths to look at: round ones, tiny ones, any, and those next to a change, where mistakes
    # would be.
    changes = by_engine["numpy"].gamma
    near_changes = np.zeros(0)
    if len(changes):
        near_changes = rng.choice(changes, 4) * rng.choice([1 - 1e-12, 1.0, 1 + 1e-12], 4)
    at = np.concatenate(
        [[0.0], rng.choice(NICE, 2), rng.choice(TINY, 1), near_changes, rng.uniform(*reach, gammas)]
    )
    at = np.concatenate([at, -at[1:4]]).clip(*reach)[:gammas]
    wrong: dict[str, int] = {}
    pairs = 0
    undecided = 0
    with np.errstate(all="ignore"):
        truth = Truth(logits, labels, direction)
    for gamma in at:
        with np.errstate(all="ignore"):
            certain, possible = truth.count_ahead(float(gamma))
        # A pair is decided if some class is surely ahead, or none can be.
        decided = (certain >= 1) | (possible < 1)
        pairs += int(decided.sum())
        undecided += int((~decided).sum())
        for engine, envelope in by_engine.items():
            right = envelope.predictions(float(gamma)) == labels
            bad = int(((right != (possible < 1)) & decided).sum())
            if bad:
                wrong[engine] = wrong.get(engine, 0) + bad
    return {"pairs": pairs, "undecided": undecided, "wrong": sum(wrong.values())} | {
        f"wrong: {engine}, {title}": n for engine, n in wrong.items()
    }


def check_numbers(
    pairs: int, seed: int = 0, *, rows: int = 2000, gammas: int = 60
) -> dict[str, object]:
    """Return how many pairs were checked, over all families in turn, and how many are wrong, by family and engine."""
    rng = np.random.default_rng(seed)
    total = {"pairs": 0, "undecided": 0, "wrong": 0}
    by_family: dict[str, int] = {}
    start = time.time()
    while total["pairs"] < pairs:
        print(f"{total} {round(time.time() - start)} s {by_family}", file=sys.stderr, flush=True)
        for name in FAMILIES:
            checked = check_family(name, rng, rows, gammas)
            for key in total:
                total[key] += checked[key]
            for key, n in checked.items():
                if key.startswith("wrong: "):
                    place = f"{name} | {key.removeprefix('wrong: ')}"
                    by_family[place] = by_family.get(place, 0) + n
    return {
        **total,
        "families": len(FAMILIES),
        "seed": seed,
        "seconds": round(time.time() - start, 1),
        "where": by_family,
    }


def main() -> None:
    """Run as many pairs as the first argument says, with the seed that the second says."""
    counted = check_numbers(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(json.dumps(counted))
    sys.exit(bool(counted["wrong"]))


if __name__ == "__main__":
    main()
