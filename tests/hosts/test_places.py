"""Every place that a head can live in (bench/zoo/places.py): the right head or a refusal, never a wrong edit."""

import pytest

from bench.zoo.place import Place, X, as_expected, check_scaled, judge
from bench.zoo.places import PLACES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # other people's imports, and they take long


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_head_is_right_or_refused_as_the_table_says(place, tmp_path):
    if place.library != "none":
        pytest.importorskip(place.library, reason=f"{place.library} is not installed")
    judged = judge(place, tmp_path)
    assert as_expected(place, judged), judged


def test_judge_tells_a_wrong_edit(tmp_path):
    def wrong(folder):
        check_scaled(X[:, :3], X[:, :3] * [1, 2, 4])
        return ""

    assert judge(Place("wrong", "none", wrong), tmp_path).verdict == "wrong"


def test_names_are_unique():
    names = [place.name for place in PLACES]
    assert len(set(names)) == len(names)
