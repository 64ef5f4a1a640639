"""Two columns of one title: refused where one of them is used or copied, since either may be meant."""

import pytest

import levelhead as lh
from levelhead.io import samples_file
from levelhead.io.parts import read_parts

REFUSED = r"two columns are titled '(cat|note|label)'; rename or drop one of them"


def table(tmp_path, titles, row="1,2,3,4"):
    path = tmp_path / "scores.csv"
    path.write_text("\n".join([titles, row, row.replace("1", "0"), ""]))
    return path


@pytest.mark.parametrize("names", [None, ["cat", "dog", "owl"]])
def test_scores_of_one_class_in_two_columns(names, tmp_path):
    path = table(tmp_path, "cat,cat,dog,owl")
    with pytest.raises(lh.LevelheadError, match=REFUSED):
        samples_file.read(path, names=names)


def test_labels_in_two_columns(tmp_path):
    path = table(tmp_path, "label,label,cat,dog")
    with pytest.raises(lh.LevelheadError, match=REFUSED):
        samples_file.read(path)


def test_a_column_that_would_be_lost_in_what_is_written(tmp_path):
    path = table(tmp_path, "note,note,cat,dog")
    with pytest.raises(lh.LevelheadError, match=REFUSED):
        list(read_parts(path, 2, ["cat", "dog"]).parts)


def test_columns_that_nobody_uses_may_have_one_title(tmp_path):
    path = table(tmp_path, "note,note,logit_cat,logit_dog,label", "a,b,1.5,2,0")
    samples = samples_file.read(path)
    assert list(samples.names) == ["cat", "dog"]
