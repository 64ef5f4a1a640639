"""What rounding a scaled head to half precision can change."""

import numpy as np

from .array import Array, to_numpy
from .errors import LevelheadError, check_choice
from .head import Head

_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def rounding_flips(
    logits: Array, by: np.ndarray, dtype: object, *, head: Head | None = None, features: Array | None = None
) -> int:
    """Count the predictions that could flip because the scaled weights are rounded to `dtype`.

    Rounding moves a scaled weight by at most u of its size (u = 2^-11 in float16, 2^-8 in bfloat16), and not at all if
    its factor is a power of two. So logit i of x moves by at most ``u f_i sum_k |w_ik x_k|``, and a prediction is safe
    if the largest logit leads every other by more than the two can move. Without features the sum is not known, and
    ``|l_i| = |sum_k w_ik x_k|`` is used for it: an estimate, which is a bound only where no terms cancel.

    Args:
        logits: [N, K], before scaling, in more than half precision if possible.
        by: [K], the factors.
        dtype: of the stored weights: "float16", "bfloat16", or a numpy or torch dtype.
        head, features: the head before scaling and features [N, d], for the bound.

    >>> rounding_flips(np.array([[2.0, 1.002], [2.0, 1.5]]), np.array([1.0, 1.995]), "bfloat16")
    1
    """
    name = str(dtype).removeprefix("torch.") if not isinstance(dtype, np.dtype | type) else np.dtype(dtype).name
    check_choice("dtype", name, _ROUNDOFF)
    scores = to_numpy(logits).astype(np.float64)
    if scores.ndim != 2 or scores.shape[1] != len(by):
        raise LevelheadError(f"expected logits [N, {len(by)}], one column per class, got shape {list(scores.shape)}")
    size = np.abs(scores)
    if head is not None and features is not None:
        wide = head.numpy()
        size = np.abs(to_numpy(features)) @ np.abs(wide.weight).T + (0 if wide.bias is None else np.abs(wide.bias))
    reach = _ROUNDOFF[name] * size * np.where(np.frexp(by)[0] == 0.5, 0.0, by)
    scores = scores * by
    top = scores.argmax(axis=1)[:, None]
    room = reach + np.take_along_axis(reach, top, axis=1)
    close = (np.take_along_axis(scores, top, axis=1) - scores <= room) & (room > 0)
    np.put_along_axis(close, top, False, axis=1)
    return int(close.any(axis=1).sum())
