"""The curve as text: values at their heights, gamma and its interval below."""

import numpy as np

from levelhead.path.curve import Curve
from levelhead.show.style import draw_text_curve


def test_a_curve_is_drawn_with_its_heights_and_gamma():
    curve = Curve(np.array([0.0, 0.5, 1.5]), np.array([0.4, 0.2, 0.3]), 2.0)
    assert draw_text_curve(curve, 1.0, (0.6, 1.4), width=16, height=3).splitlines() == [
        "40.00% |****",
        "30.00% |            ****",
        "20.00% |    ********",
        "       +---------------",
        "       0   ----^---   2",
    ]
