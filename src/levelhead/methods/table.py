"""The table of methods: Table 1's nine rows in its order, then their variants, then methods beyond the paper."""

from . import (
    balanced_softmax,
    baseline,
    class_balanced,
    crt,
    focal,
    ldam,
    over_sample,
    re_weighting,
    tau_norm,
    under_sample,
    wvn,
)
from .method import Method
from .rs import plus_rs


class MethodTable(dict[str, Method]):
    """Methods by name. A name that is not there is answered with those that are."""

    def __missing__(self, name: str) -> Method:
        raise KeyError(f"unknown method {name!r}; the methods are {', '.join(self)}")


METHODS: dict[str, Method] = MethodTable(
    (method.name, method)
    for method in (
        # Table 1
        baseline.METHOD,
        over_sample.METHOD,
        under_sample.METHOD,
        re_weighting.METHOD,
        focal.METHOD,
        class_balanced.METHOD,
        ldam.METHOD,
        plus_rs(baseline.METHOD),
        plus_rs(wvn.METHOD),
        # variants of its rows
        over_sample.LARGEST,
        under_sample.ONCE,
        under_sample.LONG,
        wvn.METHOD,
        wvn.WVN_RELEASED,
        plus_rs(wvn.WVN_RELEASED),
        class_balanced.FOCAL,
        ldam.DRW,
        # beyond the paper
        balanced_softmax.METHOD,
        tau_norm.METHOD,
        crt.METHOD,
    )
)
