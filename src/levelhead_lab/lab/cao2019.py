"""LDAM-DRW of Cao et al., 2019, as it could also have been where their code is not released.

They describe their training on Tiny ImageNet and released the code for CIFAR, where logits are
cosines times 30. `CAO_METHODS` change what the description leaves open, one thing each. They are no
part of `METHODS`, because only the reproduction of that paper's rows trains them.

Reference: Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, 2019,
    and its released code.
"""

from dataclasses import dataclass

from levelhead.core.counts import Counts

from ..methods.ldam import DEFERRED, ldam_drw_loss
from ..methods.method import Loss, Method


@dataclass(frozen=True)
class ScaledLDAM:
    """A method's `loss`: LDAM-DRW with another scale of the logits."""

    scale: float  # of the logits before the softmax; margins are in their units

    def __call__(self, counts: Counts = None, progress: float = 0.0) -> Loss:
        return ldam_drw_loss(counts, progress, scale=self.scale)


_LINEAR = Method(
    name="cao-ldam-drw-linear",
    title="LDAM-DRW, linear head",
    loss=ScaledLDAM(1.0),
    stages=(DEFERRED,),
    card=__doc__,
)
_LINEAR_30 = Method(
    name="cao-ldam-drw-linear-30",
    title="LDAM-DRW, linear head times 30",
    loss=ScaledLDAM(30.0),
    stages=(DEFERRED,),
    card=__doc__,
)
_SCALE_10 = Method(
    name="cao-ldam-drw-10",
    title="LDAM-DRW, cosines times 10",
    loss=ScaledLDAM(10.0),
    head="cosine",
    stages=(DEFERRED,),
    card=__doc__,
)
CAO_METHODS = {method.name: method for method in (_LINEAR, _LINEAR_30, _SCALE_10)}
