"""A slice of the census (bench/zoo/census.py): real models of transformers and timm, judged by what their logits do."""

import importlib

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # other people's imports, and they take long


@pytest.fixture(scope="module")
def census():
    return importlib.import_module("bench.zoo.census")


@pytest.fixture(scope="module")
def small_models():
    return importlib.import_module("bench.zoo.small_models")


def verdicts(judged, census):
    return {road: judged[road]["verdict"] for road in census.ROADS}


# A layer under a plain name, in a block of its own, one 1x1 convolution, two heads that are averaged.
RIGHT = {
    "BertForSequenceClassification": ["classifier"],
    "RobertaForSequenceClassification": ["classifier.out_proj"],
    "GPT2ForSequenceClassification": ["score"],
    "XLNetForSequenceClassification": ["logits_proj"],
    "DeiTForImageClassificationWithTeacher": ["cls_classifier", "distillation_classifier"],
    "ResNetForImageClassification": ["classifier.1"],
    "resnet18": ["fc"],
    "convnext_atto": ["head.fc"],
    "mobilenetv3_small_050": ["classifier"],
    "dla34": ["fc"],
    "deit_tiny_distilled_patch16_224": ["head", "head_dist"],
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_head_is_found_on_every_road(name, census, small_models):
    case = small_models.transformers_case if "For" in name else small_models.timm_case
    judged = census.judge(*case(name))
    assert verdicts(judged, census) == dict.fromkeys(census.ROADS, "right")
    assert all(judged[road]["layers"] == RIGHT[name] for road in census.ROADS)


def test_second_head_that_nobody_declares_is_seen_and_an_example_settles_it(census, small_models):
    """VOLO adds the maximum of an auxiliary head's logits; `get_classifier()` names one of the two only."""
    judged = census.judge(*small_models.timm_case("volo_d1_224"))
    assert verdicts(judged, census) == {"counts": "refused", "example": "right", "model": "refused"}
    assert (
        "head looks like the head, but aux_head [7, 384] may feed the output too"
        in judged["counts"]["reason"]
    )
    assert sorted(judged["example"]["layers"]) == ["aux_head", "head"]


def test_census_tells_a_wrong_edit(census, small_models):
    """The judge itself: if only one of two averaged heads were scaled, it would say so."""
    model, example = small_models.timm_case("deit_tiny_distilled_patch16_224")
    assert census.edit(model, example, ["head"])["verdict"] == "wrong"
