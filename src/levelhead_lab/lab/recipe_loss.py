"""What a recipe changes about a method's loss: how class weights are normalized, when they begin.

Papers differ in two habits that are not part of a method but of how it was trained.
`Recipe.weights` says whether class weights have mean 1 over the classes or over each batch, as
those of `F.cross_entropy(weight=...)` do; `Recipe.deferred` lets a method's last stage, such as
DRW, begin with the first drop of the learning rate instead of at a fixed share of the training.
`stages.stages` passes every method through `as_recipe_has_it`, so that methods know nothing of this.
"""

from dataclasses import dataclass, replace

from levelhead.core.counts import Counts

from ..methods.method import Loss, LossFactory, Method, WeightedLoss
from .recipe import Recipe


@dataclass(frozen=True)
class RecipeLoss:
    """A method's loss as a recipe has it: a function of counts and progress, as that of the method.

    The clock that the method sees runs faster or slower before the moved stage, and at its own pace
    after it: progress p is told to the method as ``p * method_start / recipe_start`` before
    `recipe_start`, and as ``method_start + (p - recipe_start)``, at most 1, from there on.

    Compared by value: the fast engine calls the loss of neighboring runs once if it is the same.
    """

    loss: LossFactory  # the method's own
    in_batch: bool  # whether class weights have mean 1 over each batch
    # Where the last stage begins by the method, as a share of the training; and where by the
    # recipe.
    method_start: float = 1.0
    recipe_start: float = 1.0

    def __call__(self, counts: Counts, progress: float = 0.0) -> Loss:
        """Return the loss of this part of the training, from counts [K] and the true progress."""
        loss = self.loss(counts, self._method_progress(progress))
        if self.in_batch and isinstance(loss, WeightedLoss):
            return replace(loss, in_batch=True)
        return loss

    def _method_progress(self, progress: float) -> float:
        """Return the progress that the method is told; exactly the true one where nothing moved.

        Deferred from half of the training to three quarters, a method hears 1/2 when 3/4 are over:

        >>> moved = RecipeLoss(lambda counts, progress: None, False, method_start=0.5, recipe_start=0.75)
        >>> [moved._method_progress(progress) for progress in (0.0, 0.375, 0.75, 1.0)]
        [0.0, 0.25, 0.5, 0.75]
        """
        if self.method_start == self.recipe_start:
            return progress
        if progress < self.recipe_start:
            moved = progress * self.method_start / self.recipe_start
        else:
            moved = self.method_start + (progress - self.recipe_start)
        return min(moved, 1.0)


def as_recipe_has_it(method: Method, recipe: Recipe) -> Method:
    """Return a method with weights normalized, and its last stage begun, as a recipe says.

    A recipe that says nothing returns the method itself. Its name stays in any case: what was
    changed is in the recipe, which is a part of a run's identity.

    >>> from levelhead_lab.lab.recipe import find_recipe
    >>> from levelhead_lab.methods import METHODS
    >>> drw = METHODS["ldam-drw"]
    >>> as_recipe_has_it(drw, find_recipe("kim2020")) is drw
    True
    >>> drw.stages, as_recipe_has_it(drw, find_recipe("cao2019-64")).stages  # whose rate drops at 90 of 120
    ((0.8,), (0.75,))
    """
    in_batch = recipe.weights == "batch"
    drop = recipe.first_decay_epoch / recipe.epochs
    if recipe.deferred and method.stages and drop:
        last = method.stages[-1]
        # Earlier stages keep their places relative to the last.
        earlier = tuple(share * drop / last for share in method.stages[:-1])
        moved = RecipeLoss(method.loss, in_batch, method_start=last, recipe_start=drop)
        return replace(method, loss=moved, stages=(*earlier, drop))
    if in_batch:
        return replace(method, loss=RecipeLoss(method.loss, True))
    return method
