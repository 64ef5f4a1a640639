"""cRT, classifier re-training: plain training, then a new head on frozen features with classes sampled equally often.

Changes: retrain, a second stage for the head alone. The first stage is the baseline's.
Formula: stage two minimizes cross entropy over the head's weights from a fresh start; its epochs
    are those of over-sampling (N samples, N / K of each class).
Knobs: share = 1/9 of the first stage's epochs: 10 after 90, as Kang et al. on ImageNet-LT.
Caveats: BatchNorm keeps the first stage's statistics here. Where the network has memorized the
    training images, their features are nearly separated, and stage two has little to learn from.
Reference: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020.
"""

from .baseline import baseline_loss
from .method import Method, Retrain
from .over_sample import over_sample

METHOD = Method(
    "crt", "cRT", baseline_loss, retrain=Retrain(1 / 9, baseline_loss, over_sample), card=__doc__
)
