from dataclasses import replace

import numpy as np
import pytest

from levelhead.files.find import NoHead, find_layers
from levelhead.files.spans import Span


@pytest.fixture
def spans(tmp_path):
    """Tensors of a file: `key shape` each."""
    file = tmp_path / "m"
    file.write_bytes(np.random.default_rng(0).bytes(20_000))

    def make(*entries, dtype="F32"):
        span_of, at = {}, 0
        for entry in entries:
            key, *shape = entry.split()
            span_of[key] = Span(key, file, at, dtype, tuple(map(int, shape)))
            at += span_of[key].nbytes if dtype == "F32" else 0
        return span_of

    return make


@pytest.fixture
def head(spans):
    return lambda *entries, **how: [layer.key for layer in find_layers("m", spans(*entries), **how)]


BACKBONE = ("conv1.weight 8 3 3 3", "conv1.bias 8", "bn1.weight 8", "layer.0.weight 8 8")

FOUND = [
    ("torchvision resnet", (*BACKBONE, "fc.weight 10 8", "fc.bias 10"), None, ["fc"]),
    (
        "vgg: the last of a Sequential",
        ("classifier.0.weight 16 8", "classifier.3.weight 16 16", "classifier.6.weight 10 16"),
        None,
        ["classifier.6"],
    ),
    (
        "an eleventh layer comes after the second",
        ("classifier.2.weight 10 8", "classifier.10.weight 10 10"),
        10,
        ["classifier.10"],
    ),
    ("vit", ("heads.head.weight 10 8", *BACKBONE), None, ["heads.head"]),
    ("one logit", (*BACKBONE, "fc.weight 1 8", "fc.bias 1"), None, ["fc"]),
    (
        "a stem whose norm is as wide as there are classes",
        (
            "conv1.weight 10 3 3 3",
            "bn1.weight 10",
            "bn1.bias 10",
            "bn1.running_mean 10",
            "fc.weight 10 8",
        ),
        10,
        ["fc"],
    ),
    (
        "inputs that are normed, as many as there are classes",
        ("body.weight 8 10", "fc.weight 10 8", "norm.weight 10", "norm.bias 10"),
        10,
        ["fc"],
    ),
    ("a norm before a square head", ("fc.weight 8 8", "norm.weight 8", "norm.bias 8"), 8, ["fc"]),
    ("a numbered norm before it", ("0.weight 10", "0.bias 10", "3.weight 10 8"), 10, ["3"]),
    (
        "class weights of a loss",
        (*BACKBONE, "criterion.weight 10", "fc.weight 10 8", "fc.bias 10"),
        10,
        ["fc"],
    ),
    (
        "one logit after a hidden layer",
        ("classifier.0.weight 8 4", "classifier.2.weight 1 8"),
        None,
        ["classifier.2"],
    ),
    (
        "one logit beside a head",
        (*BACKBONE, "classifier.weight 10 8", "score.weight 1 8"),
        None,
        ["classifier"],
    ),
    (
        "squeezenet: 1x1 convolution",
        (*BACKBONE, "classifier.1.weight 10 8 1 1", "classifier.1.bias 10"),
        10,
        ["classifier.1"],
    ),
    (
        "roberta",
        ("roberta.x.weight 8 8", "classifier.dense.weight 8 8", "classifier.out_proj.weight 3 8"),
        3,
        ["classifier.out_proj"],
    ),
    (
        "bert with two classes",
        ("bert.embeddings.token_type_embeddings.weight 2 8", "classifier.weight 2 8"),
        2,
        ["classifier"],
    ),
    (
        "ddp and compile wrappers",
        ("module._orig_mod.fc.weight 10 8", "module._orig_mod.conv.weight 8 3 3 3"),
        None,
        ["module._orig_mod.fc"],
    ),
    (
        "deit: two heads feed one output",
        ("head.weight 10 8", "head_dist.weight 10 8"),
        10,
        ["head", "head_dist"],
    ),
    (
        "hf deit",
        ("cls_classifier.weight 10 8", "distillation_classifier.weight 10 8", "deit.x.weight 8 8"),
        10,
        ["cls_classifier", "distillation_classifier"],
    ),
    ("timm mlp head", ("head.fc1.weight 8 8", "head.fc2.weight 10 8"), 10, ["head.fc2"]),
    (
        "an unknown name, but the only shape",
        ("backbone.a.weight 8 8", "my_own.weight 5 8"),
        5,
        ["my_own"],
    ),
    (
        "a hidden layer as wide as there are classes",
        ("block.up.weight 8 4", "block.down.weight 4 8", "fc.weight 8 4"),
        8,
        ["fc"],
    ),
    ("a bare layer", ("weight 3 8", "bias 3"), None, [""]),
    (
        "a 1-d convolution of one logit",
        ("body.weight 8 8 3", "decoder.weight 1 8 1"),
        2,
        ["decoder"],
    ),
    ("one logit of two classes", ("a.weight 8 8", "b.weight 4 8", "c.weight 1 4"), 2, ["c"]),
    (
        "a numbered hidden layer as wide as there are classes",
        ("block.0.weight 8 4", "block.2.weight 4 8", "fc.weight 8 4"),
        8,
        ["fc"],
    ),
    (
        "a hidden layer with weight norm, as wide as there are classes",
        ("block.0.weight_v 8 4", "block.2.weight_v 4 8", "fc.weight 8 4"),
        8,
        ["fc"],
    ),
    (
        "a head that stays plain where the rest is quantized, in two groups of inputs",
        ("layers.0.q.qweight 4 32", "layers.0.q.scales 2 32", "score.weight 2 32"),
        2,
        ["score"],
    ),
    (
        "a table called emb after the head, as wide as it takes",
        ("ff_1.weight 8 4", "ff_2.weight 6 8", "nuc_emb.weight 9 6", "pos.emb.weight 6 8"),
        6,
        ["ff_2"],
    ),
    (
        "a gate beside a head that is told by its counts",
        ("gate.weight 1 8", "top.weight 5 8"),
        5,
        ["top"],
    ),
]


@pytest.mark.parametrize(
    ("entries", "classes", "expected"),
    [case[1:] for case in FOUND],
    ids=[case[0] for case in FOUND],
)
def test_found(head, entries, classes, expected):
    assert head(*entries, classes=classes) == expected


REFUSED = [
    (
        "crossvit: numbered heads whose outputs are averaged",
        ("head.0.weight 10 4", "head.1.weight 10 8"),
        10,
        r"more than one.*head\.0 \[10, 4\], head\.1 \[10, 8\]",
    ),
    (
        "a LayerNorm after it",
        ("fc.weight 10 8", "norm.weight 10", "norm.bias 10"),
        10,
        "fc is not the head: norm of",
    ),
    (
        "an RMSNorm after it",
        ("m.fc.weight 10 8", "m.norm.weight 10"),
        10,
        r"m\.fc is not the head: m\.norm of",
    ),
    (
        "a bare BatchNorm after it",
        ("bn.running_mean 10", "fc.weight 10 8", "fc.bias 10"),
        10,
        "not the head: bn of",
    ),
    (
        "a later number",
        (*BACKBONE, "4.weight 10 8", "4.bias 10", "5.weight 10", "5.bias 10"),
        10,
        "not the head: 5 of",
    ),
    (
        "two of a kind",
        ("a.weight 10 8", "b.weight 10 8"),
        10,
        r"more than one.*head: a \[10, 8\], b \[10, 8\]; pass head to name it",
    ),
    (
        "an auxiliary head beside it",
        ("fc.weight 10 8", "aux.weight 10 8"),
        10,
        "more than one.*fc.*aux",
    ),
    ("nothing fits and K is not known", BACKBONE[:3], None, "no head found"),
    (
        "weight norm, old",
        ("fc.weight_g 10 1", "fc.weight_v 10 8", "x.weight 8 8"),
        10,
        "fc is parametrized",
    ),
    (
        "weight norm, new",
        ("fc.parametrizations.weight.original0 10 1", "fc.parametrizations.weight.original1 10 8"),
        10,
        "fc is parametrized",
    ),
    (
        "lora",
        (
            "base_model.model.classifier.base_layer.weight 10 8",
            "base_model.model.classifier.lora_A.default.weight 2 8",
        ),
        10,
        "classifier is wrapped by LoRA.*merge",
    ),
    (
        "gptq",
        ("classifier.qweight 10 8", "classifier.scales 10 1", "x.weight 8 8"),
        10,
        "classifier is quantized",
    ),
    ("bitsandbytes", ("fc.weight 10 8", "fc.SCB 10"), 10, "fc is quantized"),
    ("cosine", ("fc.weight 10 8", "fc.scale 1"), 10, "fc has a scale of its own"),
    (
        "bias of another size",
        ("fc.weight 10 8", "fc.bias 9"),
        10,
        r"expected fc\.bias \[10\], .*, got \[9\]",
    ),
    (
        "a network that refines the logits",
        ("fc.weight 10 8", "refine.0.weight 32 10", "refine.2.weight 10 32"),
        10,
        r"more than one.*fc \[10, 8\], refine\.2 \[10, 32\]; pass head",
    ),
    (
        "weight norm beside it, old",
        ("fc.weight 10 8", "last.weight_g 10 1", "last.weight_v 10 8"),
        10,
        r"more than one.*fc \[10, 8\], last \[10, 8\]; pass head",
    ),
    (
        "weight norm beside it, new",
        (
            "fc.weight 10 8",
            "last.parametrizations.weight.original0 10 1",
            "last.parametrizations.weight.original1 10 8",
        ),
        None,
        r"more than one.*fc \[10, 8\], last \[10, 8\]; pass head",
    ),
    (
        "a quantized layer beside it",
        ("fc.weight 10 8", "last.qweight 10 8", "last.scales 10"),
        10,
        r"more than one.*fc \[10, 8\], last \[10, 8\]; pass head",
    ),
    (
        "a layer quantized by GPTQ beside it",
        ("fc.weight 10 64", "last.qweight 8 10", "last.scales 2 10"),
        10,
        r"more than one.*fc \[10, 64\], last \[10, 8\]; pass head",
    ),
    (
        "an auxiliary head beside it, in a wrapper",
        ("module.fc.weight 10 8", "module.aux.weight 10 8"),
        10,
        r"more than one.*module\.fc \[10, 8\], module\.aux \[10, 8\]; pass head",
    ),
    (
        "two state dicts in one file",
        ("state_dict.fc.weight 10 8", "state_dict_ema.fc.weight 10 8"),
        10,
        "more than one",
    ),
    (
        "one logit after hidden layers",
        ("lstm.weight_ih_l0 400 64", "fc0.weight 100 100", "fc1.weight 1 200", "fc2.weight 1 100"),
        None,
        r"more than one.*fc0 \[100, 100\], fc1 \[1, 200\], fc2 \[1, 100\]",
    ),
    (
        "a hidden layer with as many rows as counts",
        ("fc0.weight 100 100", "fc1.weight 1 200", "fc2.weight 1 100"),
        100,
        r"more than one.*fc0 \[100, 100\], fc1 \[1, 200\], fc2 \[1, 100\]",
    ),
    ("counts that fit none", ("a.weight 8 8", "b.weight 1 8"), 5, r"a \[8, 8\], b \[1, 8\]"),
    (
        "a gate, where the counts are wrong in number",
        ("gate.weight 1 8", "top.weight 5 8"),
        2,
        r"no weight matrix .* with 2 rows.*gate \[1, 8\], top \[5, 8\]",
    ),
    (
        "a gate that comes last, by its name",
        ("top.weight 5 8", "zgate.weight 1 8"),
        2,
        r"no weight matrix .* with 2 rows.*top \[5, 8\], zgate \[1, 8\]",
    ),
    (
        "a hidden fc",
        ("fc.weight 8 4", "fc2.weight 5 8"),
        None,
        r"more than one.*fc \[8, 4\], fc2 \[5, 8\]",
    ),
    (
        "ten small heads in one matrix",
        ("heads.w2 10 4", "heads.b2 10", "heads.layer1.weight 40 8", "heads.layer1.bias 40"),
        None,
        r"heads\.w2 \[10, 4\] next to it may take its outputs.*head",
    ),
    (
        "a matrix that takes the outputs",
        ("top.fc.weight 8 4", "top.out 3 8"),
        None,
        r"top\.out \[3, 8\] next to it may take its outputs.*head",
    ),
    (
        "weight norm under a name of one's own",
        ("a.weight 8 8", "b.weight_g 10 1", "b.weight_v 10 8"),
        None,
        r"more than one.*a \[8, 8\], b \[10, 8\]",
    ),
    (
        "nothing but weight norm",
        ("b.parametrizations.weight.original0 10 1", "b.parametrizations.weight.original1 10 8"),
        None,
        "b is parametrized",
    ),
    (
        "a CRF after it",
        (
            "lstm.weight_ih_l0 40 8",
            "hidden2tag.weight 7 8",
            "hidden2tag.bias 7",
            "crf.transitions 7 7",
        ),
        7,
        r"hidden2tag looks like the head.*crf\.transitions: a CRF",
    ),
    (
        "transitions with a start and an end",
        ("fc.weight 7 8", "transitions 9 9"),
        None,
        "there is a transitions: a CRF",
    ),
    (
        "only a language model's head",
        ("lm_head.weight 100 8", "embed_tokens.weight 100 8"),
        100,
        "no head found",
    ),
]


@pytest.mark.parametrize(
    ("entries", "classes", "reason"),
    [case[1:] for case in REFUSED],
    ids=[case[0] for case in REFUSED],
)
def test_refused_with_the_reason(head, entries, classes, reason):
    with pytest.raises(ValueError, match=reason):
        head(*entries, classes=classes)


def test_in_a_file_with_an_order_a_hidden_layer_feeds_what_comes_later(head):
    up, down = "block.up.weight 8 4", "block.down.weight 4 8"
    assert head(up, down, "fc.weight 8 4", ordered=True) == ["fc"]
    with pytest.raises(ValueError, match=r"more than one.*block\.up \[8, 4\], fc \[8, 4\]"):
        head(down, up, "fc.weight 8 4", ordered=True)


def test_a_named_layer_is_taken_by_layer_or_by_weight(head):
    two = ("a.weight 10 8", "b.weight 10 8")
    assert head(*two, named="b") == head(*two, named="b.weight") == ["b"]


def test_an_unknown_name_lists_the_layers_there_are(head):
    with pytest.raises(ValueError, match=r"no layer 'clf'.*fc \[10, 8\]"):
        head("fc.weight 10 8", named="clf")


def test_a_convolution_over_several_places_is_taken_by_its_name_alone(head):
    model = (*BACKBONE[:-1], "classifier.3.weight 10 8 7 1", "classifier.3.bias 10")
    with pytest.raises(NoHead, match=r"convolutions.*classifier\.3 \[10, 8, 7, 1\]; pass head"):
        head(*model, classes=10)
    assert head(*model, classes=10, named="classifier.3") == ["classifier.3"]


def test_a_named_convolution_that_may_be_transposed_is_refused(head):
    # A transposed one has its inputs first.
    with pytest.raises(ValueError, match=r"up has \[8, 8, 2, 2\], .* transposed convolution"):
        head(*BACKBONE, "up.weight 8 8 2 2", named="up")


def test_a_quantized_dtype_is_refused(spans):
    with pytest.raises(ValueError, match=r"fc\.weight holds F8_E4M3"):
        find_layers("m", spans("fc.weight 10 8", dtype="F8_E4M3"))


def test_the_same_bytes_under_two_keys_are_tied(spans):
    span = spans("fc.weight 10 8")["fc.weight"]
    with pytest.raises(ValueError, match=r"fc\.weight is tied to embed\.weight"):
        find_layers("m", {"fc.weight": span, "embed.weight": replace(span, key="embed.weight")})


def test_a_copy_of_the_whole_matrix_is_tied_but_not_within_a_pair(spans, tmp_path):
    (tmp_path / "m").write_bytes(bytes(range(64)) * 2)
    with pytest.raises(ValueError, match=r"fc\.weight is tied to embed\.weight"):
        find_layers("m", spans_of(tmp_path / "m", "fc.weight", "embed.weight"))
    assert len(find_layers("m", spans_of(tmp_path / "m", "head.weight", "head_dist.weight"))) == 2


def spans_of(file, first, second):
    return {
        first: Span(first, file, 0, "F32", (4, 4)),
        second: Span(second, file, 64, "F32", (4, 4)),
    }


def test_no_head_of_that_size_is_told_apart_from_other_refusals(head):
    with pytest.raises(NoHead, match=r"no weight matrix .* with 9 rows.*fc \[10, 8\]"):
        head("fc.weight 10 8", classes=9)


def test_a_head_before_a_crf_is_taken_by_its_name(head):
    assert head("fc.weight 7 8", "crf.transitions 7 7", named="fc") == ["fc"]
