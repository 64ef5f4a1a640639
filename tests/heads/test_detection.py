"""Detectors: the background is left alone, and the head is found by an example input. Random weights, no downloads."""

import importlib
from typing import Any

import numpy as np
import pytest
import torch

import levelhead as lh

COUNTS = [900_000, 100, 25, 4]  # the first is the background
FACTORS = np.array([1.0, 1.0, 2.0, 5.0])  # (100 / n)^0.5


def test_background_has_the_factor_1_and_is_not_the_largest_count():
    head = lh.Head(np.eye(4), np.ones(4), ["none", "a", "b", "c"])
    for counts in (COUNTS, [0, 100, 25, 4]):
        for background in (0, "none"):
            alone = lh.counts.with_background(counts, background)
            scaled = lh.adjust(head, lh.rules.Rescale(0.5), alone)
            assert np.allclose(scaled.norms, FACTORS)
            shifted: Any = lh.adjust(head, lh.rules.Shift(1.0), alone).bias
            assert np.allclose(shifted, 1 + np.log([1, 1, 4, 25]))
    model = torch.nn.Linear(8, 4)
    for counts, how in (
        (lh.counts.with_background(COUNTS, 0), {}),
        (COUNTS, {"background": 0}),
    ):
        with lh.adjust_(model, lh.rules.Rescale(0.5), counts, **how) as done:
            assert np.allclose(done.adjustment.scale, FACTORS)


@pytest.mark.parametrize("background", [4, -1, "cat", True, 1.5])
def test_background_that_is_no_class_is_refused(background):
    with pytest.raises(
        lh.LevelheadError, match="background: expected the index or the name of one class"
    ):
        lh.adjust_(torch.nn.Linear(8, 4), lh.rules.Shift(1.0), COUNTS, background=background)


def samples():
    rng = np.random.default_rng(0)
    labels = rng.choice(4, size=800, p=[0.5, 0.3, 0.15, 0.05])
    logits = rng.normal(size=(800, 4)) + 2.5 * np.eye(4)[labels] + [2, 1.5, 0, -1.5]
    return logits, labels


@pytest.mark.parametrize("rule", ["offsets", "shift", "rescale"])
def test_tuned_choice_leaves_the_background_alone(rule):
    logits, labels = samples()
    tuned = lh.tune(logits, labels, lh.counts.with_background(COUNTS, 0), rule=rule)
    after = lh.adjust(lh.Head(np.eye(4), np.zeros(4)), tuned).logits(logits)
    assert np.array_equal(after[:, 0], logits[:, 0])
    assert not np.allclose(after[:, 3], logits[:, 3])
    with lh.adjust_(torch.nn.Linear(8, 4), tuned, background=0):
        pass


def test_what_cannot_leave_a_class_alone_is_refused():
    logits, labels = samples()
    alone = lh.counts.with_background(COUNTS, 0)
    with pytest.raises(ValueError, match="class 0 would change"):
        lh.adjust_(torch.nn.Linear(8, 4), lh.rules.Tau(1.0), background=0)
    model = torch.nn.Linear(8, 4)
    before = model.weight.detach().clone()
    with pytest.raises(ValueError, match="class 0 would change"):
        lh.adjust_(model, lh.tune(logits, labels, [9, 100, 25, 4], rule="shift"), background=0)
    assert torch.equal(model.weight, before)
    lh.adjust_(model, lh.tune(logits, labels, alone, rule="shift"), background=0)


def detr():
    hf: Any = importlib.import_module("transformers")
    backbone = hf.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    config = hf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=16,
        encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, num_queries=5, num_labels=3,
    )  # fmt: skip
    return hf.DetrForObjectDetection(config)


def rt_detr():
    hf: Any = importlib.import_module("transformers")
    backbone = hf.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = hf.RTDetrConfig(
        backbone_config=backbone, encoder_in_channels=[8, 8, 8], encoder_hidden_dim=16, d_model=16, encoder_ffn_dim=16,
        decoder_ffn_dim=16, decoder_layers=2, num_queries=5, num_labels=4, decoder_in_channels=[16, 16, 16],
        encoder_attention_heads=2, decoder_attention_heads=2, num_denoising=0,
    )  # fmt: skip
    return hf.RTDetrForObjectDetection(config)


def logits_of(model, example):
    model.eval()
    with torch.no_grad():
        return model(**example).logits.double().numpy()


PIXELS = {"pixel_values": torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_detr_is_adjusted_by_example_and_no_object_stays():
    torch.manual_seed(0)
    model = detr()
    before = logits_of(model, PIXELS)
    assert before.shape[-1] == 4  # three classes, then "no object"
    with pytest.raises(
        ValueError,
        match=r"class_labels_classifier looks like the head, but bbox_predictor.*example",
    ):
        lh.rescale_(model, [100, 25, 4, 900_000], gamma=0.5, background=3)
    done = lh.rescale_(model, [100, 25, 4, 900_000], gamma=0.5, background=3, example=PIXELS)
    assert done.layers == ("class_labels_classifier",)
    after = logits_of(model, PIXELS)
    assert np.array_equal(after[..., 3], before[..., 3])
    assert np.allclose(after, before * [1, 2, 5, 1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_rt_detr_is_found_by_example_and_never_wrongly_changed():
    torch.manual_seed(0)
    model = rt_detr()
    before = logits_of(model, PIXELS)
    with pytest.raises(ValueError, match="class_embed"):
        lh.rescale_(model, [100, 50, 25, 4], gamma=0.5)
    done = lh.rescale_(model, [100, 100, 25, 4], gamma=0.5, example=PIXELS)
    assert np.allclose(logits_of(model, PIXELS), before * [1, 1, 2, 5], atol=1e-4)
    assert all("class_embed" in path for path in done.layers)


def faster_rcnn(classes=4):
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    backbone: Any = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 8, stride=8), torch.nn.ReLU())
    backbone.out_channels = 8
    anchors = AnchorGenerator(sizes=((16, 32),), aspect_ratios=((1.0,),))
    from torchvision.ops import MultiScaleRoIAlign

    pool = MultiScaleRoIAlign(["0"], output_size=2, sampling_ratio=1)
    return FasterRCNN(
        backbone, num_classes=classes, rpn_anchor_generator=anchors, box_roi_pool=pool, min_size=64, max_size=64,
        box_score_thresh=0.0, box_detections_per_img=5, rpn_post_nms_top_n_test=20,
    )  # fmt: skip


def slow_nms(boxes, scores, iou_threshold):
    from torchvision.ops import box_iou

    overlap, kept = (box_iou(boxes, boxes) > iou_threshold).numpy(), []
    for i in scores.argsort(descending=True).tolist():
        if not overlap[i, kept].any():
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def box_logits(model, images):
    """Return what the box predictor gives, before softmax and non-maximum suppression."""
    seen = []
    handle = model.roi_heads.box_predictor.register_forward_hook(
        lambda *call: seen.append(call[-1][0])
    )
    model.eval()
    with torch.no_grad():
        model(images)
    handle.remove()
    return seen[0].double().numpy()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("with_example", [True, False])
def test_faster_rcnn_is_adjusted_and_its_background_stays(with_example, monkeypatch):
    boxes = pytest.importorskip("torchvision.ops.boxes", reason="torchvision is not installed")
    if not importlib.import_module(
        "torchvision.extension"
    )._has_ops():  # a build without compiled operators, of which this is the only one needed
        monkeypatch.setattr(boxes, "nms", slow_nms)
    torch.manual_seed(0)
    model, images = faster_rcnn(), [torch.rand(3, 64, 64)]
    before = box_logits(model, images)
    options: dict[str, Any] = {"example": (images,)} if with_example else {}
    done = lh.rescale_(model, COUNTS, gamma=0.5, background=0, **options)
    assert done.layers == ("roi_heads.box_predictor.cls_score",)
    after = box_logits(model, images)
    assert np.array_equal(after[:, 0], before[:, 0])
    assert np.allclose(after, before * FACTORS, atol=1e-5)
    done.restore()
    assert np.array_equal(box_logits(model, images), before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_detector_whose_head_is_a_3x3_convolution_is_refused_with_candidates():
    detection = pytest.importorskip(
        "torchvision.models.detection", reason="torchvision is not installed"
    )
    model = detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=4
    )
    before = {name: p.clone() for name, p in model.state_dict().items()}
    with pytest.raises(ValueError, match="outputs"):
        lh.rescale_(model, COUNTS, gamma=0.5, background=0)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
