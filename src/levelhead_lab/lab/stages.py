"""The stages of a training: the recipe's own, and a second one for a method that retrains the head.

Both engines go through `stages`: the plain loop one by one, the fast engine to know which runs take
the same steps. A stage says everything that does not change within it: its epochs, the method as the
recipe has it, the learning rate, and whether only the head learns.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..methods.method import Method
from .recipe import Recipe
from .recipe_loss import as_recipe_has_it


@dataclass(frozen=True)
class Stage:
    """Epochs first .. end - 1, under one method.

    Progress counts from 0 to 1 over them.
    """

    first: int  # counted from 0 over the whole training
    end: int  # the epoch after the last
    method: Method  # as the recipe has it
    head_only: bool  # whether only the head learns, and the body is frozen and in evaluation mode
    lr: Callable[[int, float], float]  # of an epoch and the share of it that is done


def stages(recipe: Recipe, method: Method) -> list[Stage]:
    """Return the parts of a training, in order.

    The first is that of the recipe. A method that retrains the head has a second one, which
    continues the count of epochs; see `Retrain`.

    >>> from levelhead_lab.lab.recipe import find_recipe
    >>> from levelhead_lab.methods import METHODS
    >>> [(stage.first, stage.end, stage.head_only) for stage in stages(find_recipe("kim2020"), METHODS["crt"])]
    [(0, 180, False), (180, 200, True)]
    """
    method = as_recipe_has_it(method, recipe)
    main = Stage(0, recipe.epochs, method, False, lambda epoch, done: recipe.lr_at(epoch))
    if method.retrain is None:
        return [main]
    epochs = max(1, round(method.retrain.share * recipe.epochs))
    # The second stage trains a plain head: nothing is projected.
    second = replace(method, loss=method.retrain.loss, sample=method.retrain.sample, project=None)

    def half_cosine(epoch: int, done: float) -> float:
        """Return the rate of a step of the second stage: from that of the recipe to 0, step by step."""
        return recipe.lr * (1 + math.cos(math.pi * (epoch - recipe.epochs + done) / epochs)) / 2

    return [main, Stage(recipe.epochs, recipe.epochs + epochs, second, True, half_cosine)]
