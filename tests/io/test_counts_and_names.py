"""Files of counts and of shares."""

import numpy as np
import pytest

from levelhead.core.counts import resolve
from levelhead.io.arrays import read_counts, target_shares


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.json", "[60, 30, 10]", [60, 30, 10]),
        ("c.json", '{"cat": 30, "ant": 60, "elk": 10}', [60, 30, 10]),
        ("c.txt", "60\n30\n10\n", [60, 30, 10]),
        ("c.csv", "60\n30\n10\n", [60, 30, 10]),
        ("c.csv", "class,n\ncat,30\nant,60\n\nelk,10\n", [60, 30, 10]),
        ("c.csv", "2,10\n0,60\n1,30\n", [60, 30, 10]),
        ("c.csv", ",0\n0,60\n1,30\n2,10\n", [60, 30, 10]),
        ("c.csv", ",0\nant,60\nelk,10\ncat,30\n", [60, 30, 10]),
        ("c.csv", "label,0\n0,60\n1,30\n2,10\n", [60, 30, 10]),
        ("c.csv", "class;n\ncat;30\nant;60\nelk;10\n", [60, 30, 10]),
        ("c.csv", "class\tn\ncat\t30\nant\t60\nelk\t10\n", [60, 30, 10]),
    ],
)
def test_files_of_counts_are_read(tmp_path, name, text, expected):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert resolve(read_counts(path), 3, names=["ant", "cat", "elk"]).tolist() == expected


def test_numpy_files_of_counts_are_read_and_pickled_ones_are_not(tmp_path):
    np.save(tmp_path / "c.npy", [60, 30])
    assert read_counts(tmp_path / "c.npy").tolist() == [60, 30]
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"o.npy: the file holds Python objects"):
        read_counts(tmp_path / "o.npy")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", "{", "c.json: not JSON"),
        ("c.json", "7", r"c.json: expected a list of counts or {class: n}"),
        ("c.txt", "60 thirty", "c.txt: expected a number, got 'thirty'"),
        ("c.csv", "a,1\nb,2,3\n", r"c.csv: expected rows of class,n"),
        ("c.csv", "a,1\na,2\n", r"c.csv: class 'a' is listed twice"),
        ("c.json", '{"0": 1, "1": 2, "0": 3}', r"c.json: class '0' is listed twice"),
        ("c.csv", "0,1\n0 ,2\n", r"c.csv: class '0' is listed twice"),
        ("c.yaml", "a: 1", "c.yaml: expected counts as .npy, .* .json, or with commas, got .yaml"),
        ("c", "1", "c: expected counts as .npy, .* .json, or with commas, got no suffix"),
    ],
)
def test_a_file_without_counts_is_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_counts(tmp_path / name)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.json"):
        read_counts(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", "[60, 30]"),
        ("C.JSON", "[60, 30]"),
        ("c.csv", "60\n30\n"),
        ("d.csv", "0,60\n1,30\n"),
        ("c.txt", "60 30"),
    ],
)
def test_a_byte_order_mark_is_not_part_of_a_count(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert resolve(read_counts(tmp_path / name), 2).tolist() == [60, 30]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"ant": 0.5, "dog": 0.5}', "s.json: unknown class name 'dog'; the classes are ant, cat"),
        (
            '{"ant": 1}',
            r"s.json: class 1 \(cat\) has no share; expected 2 shares, one per class, got 1",
        ),
        ('["half", 0.5]', "target: expected 2 numbers with commas between them, or a file of them"),
    ],
)
def test_wrong_shares_are_named(tmp_path, monkeypatch, content, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(ValueError, match=says):
        target_shares("s.json", ["ant", "cat"], 2)


def test_shares_come_from_words_or_a_file_by_class(tmp_path):
    (tmp_path / "s.json").write_text('{"cat": 0.25, "ant": 0.75}')
    for words_or_file in ("0.75,0.25", str(tmp_path / "s.json")):
        assert target_shares(words_or_file, ["ant", "cat"], 2).tolist() == [0.75, 0.25]
