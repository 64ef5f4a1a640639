"""Results as text, compared with texts written by hand."""

import numpy as np

from levelhead.files.inspect import HeadLayer, Inspection, inspection_text
from levelhead.files.model import AdjustedFile, adjusted_text
from levelhead.files.undo import UndoResult, undo_text


def inspection(**changes):
    plain = {
        "path": "m.onnx", "format": "ONNX", "layers": (HeadLayer("fc", "fc.weight", None, (2, 4), "F32"),),
        "norms": np.array([1.0, 2.0]), "names": None, "counts": None, "correlation": None, "bias_share": None,
        "bias_gap": None, "adjusted": None, "warnings": (),
    }  # fmt: skip
    return Inspection(**(plain | changes))


def result(**changes):
    plain = {
        "path": "a.pt", "out": "b c.pt", "original": None, "head": ("fc",), "rule": "rescale", "strength": 0.5,
        "bias": None, "counts": np.array([25, 100]), "scale": np.array([2.0, 1.0]), "offset": np.zeros(2),
        "before": np.array([0.5, 0.25]),
        "after": np.array([1.0, 0.25]), "sha256": {},
    }  # fmt: skip
    return AdjustedFile(**(plain | changes))


def test_a_head_alone():
    assert inspection_text(inspection(), width=4).splitlines() == [
        "m.onnx (ONNX)",
        "  head fc: fc.weight [2, 4] F32, no bias",
        "",
        "  class  norm",
        "  0         1  ██",
        "  1         2  ████",
    ]


def test_a_head_with_all_that_can_be_known_largest_count_first():
    layer = HeadLayer("fc", "fc.weight", "fc.bias", (2, 4), "F32")
    seen = inspection(
        layers=(layer,), names=("cat", "dog"), counts=np.array([5, 70]), correlation=-1.0, bias_share=0.25,
        bias_gap=1.5, warnings=("beware",),
    )  # fmt: skip
    assert inspection_text(seen, width=4).splitlines() == [
        "m.onnx (ONNX)",
        "  head fc: fc.weight [2, 4] F32, fc.bias",
        "",
        "  class  count  norm",
        "  1 dog     70     2  ████",
        "  0 cat      5     1  ██",
        "",
        "rank correlation of norm and count: -1.00",
        "bias: |b| is 0.25 of ||w|| in the median class",
        "at strength 0.5, scaling and keeping the bias are up to 1.5 apart in a logit",
        "warning: beware",
    ]


def test_the_shortest_bar_is_one_block_also_where_all_norms_are_0():
    lines = inspection_text(inspection(norms=np.array([0.0, 0.0])), width=4).splitlines()
    assert lines[-2:] == ["  0         0  █", "  1         0  █"]


def test_of_many_classes_the_first_and_the_last_ten_are_shown():
    for classes in (20, 21, 30):
        norms = np.arange(1, classes + 1) * 1.0
        rows = inspection_text(inspection(norms=norms), width=4).splitlines()[4:]
        shown = [row.split()[0] for row in rows]
        every = [str(i) for i in range(classes)]
        assert shown == (every if classes == 20 else [*every[:10], "...", *every[-10:]])


def test_a_rescaled_head_and_the_way_back():
    done = result(original="b c.pt.original", bias="scale", flips=3, notes=("one", "two"))
    assert adjusted_text(done).splitlines() == [
        "a.pt -> b c.pt",
        "  fc: RS, strength 0.5, bias scaled",
        "",
        "  class  count  norm before  after  scale",
        "  1        100         0.25   0.25      1",
        "  0         25          0.5      1      2",
        "",
        "kept b c.pt.original: `levelhead undo 'b c.pt' -o BACK` gives the input back, byte for byte",
        "predictions that rounding to half precision could flip: 3",
        "note: one",
        "note: two",
    ]


def test_a_shifted_head_of_one_logit():
    done = result(
        rule="shift",
        bias="scale",
        scale=np.ones(1),
        offset=np.array([2.0]),
        before=np.array([0.5]),
        after=np.array([0.5]),
    )
    lines = adjusted_text(done).splitlines()
    assert lines[1].endswith(", strength 0.5")  # a shift has no policy of the bias
    titles, values = lines[3:5]
    assert titles == "  class       count  norm before  after  offset"
    assert values == "  the logit  25/100          0.5    0.5       2"


def test_a_head_that_is_scaled_and_shifted():
    done = result(rule="vector", strength=None, bias="scale", offset=np.array([0.5, 0.0]))
    lines = adjusted_text(done).splitlines()
    assert lines[1].endswith("fc: vector scaling, bias scaled")
    assert lines[3:6] == [
        "  class  count  norm before  after  scale  offset",
        "  1        100         0.25   0.25      1       0",
        "  0         25          0.5      1      2     0.5",
    ]


def test_a_kept_bias_and_a_head_whose_counts_are_not_known():
    lines = adjusted_text(result(rule="tau", bias="keep", counts=None)).splitlines()
    assert lines[1].endswith("tau-normalization, strength 0.5, bias kept")
    assert lines[3:5] == [
        "  class  norm before  after  scale",
        "  0              0.5      1      2",
    ]


def test_what_undo_gave_back():
    assert undo_text(UndoResult("o.pt", "b.pt", True, {"b.pt": "12ab"})) == (
        "o.pt -> b.pt: the file that was adjusted, byte for byte\n  b.pt: sha256 12ab"
    )
    assert undo_text(UndoResult("o.pt", "b.pt", False, {})) == (
        "o.pt -> b.pt: by the recorded numbers, exact only up to rounding (there was no o.pt.original)"
    )
