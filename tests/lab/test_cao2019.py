"""LDAM-DRW as its description for Tiny ImageNet could also be read."""

import numpy as np
import torch
import torch.nn.functional as F

from levelhead_lab.lab.cao2019 import CAO_METHODS
from levelhead_lab.methods import METHODS
from levelhead_lab.methods.class_balanced import class_balanced_weights
from levelhead_lab.methods.ldam import ldam_drw_loss, ldam_margins

COUNTS = np.array([500, 40, 5])


def batch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    return logits, torch.tensor([0, 1, 2, 2, 1, 0])


def test_with_a_linear_head_margins_are_taken_from_the_logits_as_they_are():
    logits, labels = batch()
    lowered = logits.clone()
    for row, label in enumerate(labels.tolist()):
        lowered[row, label] -= float(ldam_margins(COUNTS)[label])
    method = CAO_METHODS["cao-ldam-drw-linear"]
    assert method.head == "linear"
    expected = F.cross_entropy(lowered, labels, reduction="none")
    torch.testing.assert_close(method.loss(COUNTS, 0.0)(logits, labels), expected)
    weights = torch.tensor(class_balanced_weights(COUNTS, 0.9999))
    torch.testing.assert_close(method.loss(COUNTS, 0.9)(logits, labels), weights[labels] * expected)


def test_another_scale_is_all_that_the_other_reading_changes():
    logits, labels = batch()
    smaller, usual = CAO_METHODS["cao-ldam-drw-10"], METHODS["ldam-drw"]
    assert (smaller.head, smaller.stages) == (usual.head, usual.stages)
    expected = ldam_drw_loss(COUNTS, 0.9, scale=10.0)(logits, labels)
    torch.testing.assert_close(smaller.loss(COUNTS, 0.9)(logits, labels), expected)
