"""cRT, classifier re-training: plain training, then a new head on frozen features with classes sampled equally often.

Changes: retrain, a second stage for the head alone. The first is the baseline's.
Formula: stage two minimizes cross entropy over the head's weights from a fresh start; an epoch is that of over-sampling
    (N samples, N / K of each class).
Knobs: share = 1/9 of the first stage's epochs: 10 after 90, as Kang et al. on ImageNet-LT.
Caveats: here BatchNorm keeps the first stage's statistics. On sets learned by heart the features of the training images
    are nearly separated, and stage two has little to learn from.
Reference: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020.
"""

from __future__ import annotations

from . import baseline, over_sample
from .method import Method, Retrain

STAGE_TWO = Retrain(share=1 / 9, loss=baseline.loss, sample=over_sample.sample)

METHOD = Method("crt", "cRT", baseline.loss, retrain=STAGE_TWO, card=__doc__)
