"""The error class: what it prints, and that it survives a process boundary."""

import pickle

import pytest

from levelhead.support.errors import Advice, LevelheadError, check_choice, in_file, named


@pytest.mark.parametrize(
    "error",
    [
        LevelheadError("plain"),
        LevelheadError("wrong", parameter="bias"),
        LevelheadError(
            "wrong", parameter="bias", advice=Advice("missing", "neutral", "to leave it")
        ),
    ],
)
def test_an_error_survives_pickling(error):
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.message, again.parameter, again.advice) == (
        str(error),
        error.message,
        error.parameter,
        error.advice,
    )


def test_a_choice_outside_the_list_is_refused_by_its_parameter():
    with pytest.raises(
        LevelheadError, match=r"^rule: expected 'rescale', 'tau' or 'shift', got 'magic'$"
    ):
        check_choice("rule", "magic", ("rescale", "tau", "shift"))


def test_a_file_is_named_once_and_advice_is_kept():
    with (
        pytest.raises(LevelheadError, match=r"^c\.json: no samples; pass missing to leave it$"),
        in_file("c.json"),
        in_file("c.json"),
    ):
        raise LevelheadError("no samples", advice=Advice("missing", None, "to leave it"))


def test_a_parameter_is_named_and_the_advice_kept():
    advice = Advice("names", None, "to say which class is which")
    with pytest.raises(LevelheadError) as caught, named("floors"):
        raise LevelheadError("unknown class 'cat'", parameter="names", advice=advice)
    assert (caught.value.message, caught.value.parameter) == ("unknown class 'cat'", "floors")
    assert caught.value.advice == advice
    with pytest.raises(KeyError), named("floors"):
        raise KeyError("cat")
