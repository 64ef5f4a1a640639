"""What the runs of a pack do on the device in an epoch: steps, projections and the evaluation.

All of it can be captured as a CUDA graph. So nothing here reads a value back from the device:
shapes do not depend on values, and what is to be told is written into a table on the device,
`report`. R runs go in lockstep, as rows of the matrices in `NetRows`; a batch has the shape [R, B].

`steps` takes the steps of a part of an epoch: images [R, n, H, W, C] of the plan are made at once,
and `_step` takes one batch of them through features [R, B, d], logits [R, B, K] and losses [R, B]
to gradients [R, P] and one step of SGD on all rows. `report_epoch` and `evaluate` write what became
of it. It computes what `train._StageLoop` does for one run, in the same order.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from levelhead.core.head import Head

from ..lab.epoch_plan import EpochPlan
from ..lab.preprocess import Preprocess
from ..lab.recipe import Recipe
from ..lab.stages import Stage
from ..lab.train import check_losses
from ..methods.method import Loss
from .net_rows import NetRows


class SharedLoss(NamedTuple):
    """A loss, and how many runs, one behind the other, have it.

    They are one batch to it, so that it is called once for all of them.
    """

    loss: Loss
    runs: int


class EpochWork:
    """The work of R runs that share data and recipe; `begin_stage` says what they do next."""

    def __init__(
        self,
        nets: NetRows,
        splits: dict[str, tuple[Tensor, Tensor]],
        recipe: Recipe,
        preprocess: Preprocess,
        *,
        classes: int,
        sgd_: Callable[..., None],
        decay: Tensor | None,
    ):
        """Keep what the work needs.

        Args:
            nets: the parameters of all runs.
            splits: images [N, C, H, W], uint8 in channels-last memory, and labels [N] of each
                split, on the device.
            recipe: of the batches and of SGD.
            preprocess: from these images to the input of a network.
            classes: K.
            sgd_: `net_rows.sgd_`, as it is or compiled.
            decay: the weight decay of each number of a row, [P]; None where it is the same for all.
        """
        self.nets = nets
        self.splits = splits
        self.recipe = recipe
        self.preprocess = preprocess
        self.classes = classes
        self.sgd_ = sgd_
        self.decay = decay
        self.eval_splits = [name for name in splits if name != "train"]
        # A row for each run: loss, training error, the error of each other split, the norm of each
        # class.
        columns = 2 + len(self.eval_splits) + classes
        device = nets.rows.device
        self.report = torch.zeros(nets.runs, columns, dtype=torch.float64, device=device)
        self.seen = torch.zeros(nets.runs, 2, dtype=torch.float64, device=device)  # losses, errors

    def begin_stage(self, stages: Sequence[Stage], losses: Sequence[SharedLoss]) -> None:
        """Set what each run does in this part of its training.

        Graphs that were captured before do not know of it: they must be captured again.

        Args:
            stages: of each run, R of them; all of them train the head alone, or none does.
            losses: in the order of the runs, and for R of them in all.
        """
        self.stages = stages
        self.losses = losses

    def steps(self, plan: EpochPlan, lr: Tensor) -> None:
        """Take the steps of a part of an epoch, and add its losses and errors to `seen`.

        Args:
            plan: the samples of every run, each tensor [R, n, ...].
            lr: the learning rate of each step.
        """
        images, labels = self.splits["train"]
        # The images of all steps are varied at once, [R n, C, H, W], then cut into batches [R, B,
        # H, W, C].
        flat = EpochPlan(*(part.flatten(0, 1) for part in plan.tensors))
        x = self.preprocess.augmented(images, flat)
        x = x.permute(0, 2, 3, 1).unflatten(0, (self.nets.runs, -1))
        batches = zip(
            x.split(self.recipe.batch, dim=1),
            labels[plan.indices].split(self.recipe.batch, dim=1),
            strict=True,
        )
        losses = []
        wrong = []
        for i, (batch, expected) in enumerate(batches):
            of_step, wrong_of_step = self._step(batch, expected, lr[i])
            losses.append(of_step)
            wrong.append(wrong_of_step)
        # Added up at the end, not step by step: two sums for all steps of the graph.
        for column, values in enumerate((losses, wrong)):
            self.seen[:, column] += torch.cat(values, dim=1).sum(dim=1, dtype=torch.float64)

    def report_epoch(self, length: int) -> None:
        """Write the mean loss and error over the samples of an epoch, and the norms at its end.

        Args:
            length: samples of the epoch, the same for every run.
        """
        self.report[:, :2] = self.seen / length
        self.report_norms()

    def report_norms(self) -> None:
        """Write the norm of each class's weight vector; in a cosine head all of them count as 1."""
        norms = self._head_weights().norm(dim=-1)
        is_cosine = self.nets.is_cosine[..., 0]
        self.report[:, 2 + len(self.eval_splits) :] = torch.where(is_cosine, 1.0, norms)

    def _head_weights(self) -> Tensor:
        """Return the weight vectors of all runs, [R, K, d], in the memory of the rows."""
        return self.nets.head.detach().reshape(self.nets.runs, self.classes, -1)

    def _step(self, x: Tensor, labels: Tensor, lr: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step; return each sample's loss, and whether it was wrong, [R, B].

        Args:
            x: images [R, B, H, W, C], in the format of activations.
            labels: [R, B].
            lr: of this step, a tensor of one number: a graph reads it anew in every replay.
        """
        nets = self.nets
        head_only = self.stages[0].head_only
        nets.refresh()
        # A frozen body needs no gradient, and runs in evaluation mode.
        recorded = nullcontext()
        if head_only:
            recorded = torch.no_grad()
        with recorded:
            features = nets.features(x, training=not head_only)
        logits = nets.logits(features)
        losses = self._losses(logits, labels)
        # The sum over runs: each run's gradient is that of its own mean.
        gradient = self._gradient(losses.mean(dim=1).sum(), features)
        with torch.no_grad():
            # What is learned: all columns of a row, or those of the head, which are the last.
            columns = slice(None)
            if head_only:
                columns = nets.head_columns
            decay = self.decay
            if decay is not None:
                decay = decay[columns]
            self.project("before")
            rows = nets.rows[:, columns]
            momentum = nets.momentum[:, columns]
            self.sgd_(rows, momentum, gradient, lr, self.recipe, decay)
            self.project("after")
            return losses.detach(), logits.argmax(dim=-1) != labels

    def _gradient(self, loss: Tensor, features: Tensor) -> Tensor:
        """Return the gradient of what is learned, as rows [R, P], or [R, of the head].

        Args:
            loss: the sum over all runs.
            features: [R, B, d], for which autograd has a graph, unless only the head learns.
        """
        nets = self.nets
        if self.stages[0].head_only:
            of_leaves = torch.autograd.grad(loss, nets.head_leaves)
            return torch.cat([part.reshape(nets.runs, -1) for part in of_leaves], dim=1)
        if nets.precision.largest_gradient is None:
            return nets.gradient_rows(torch.autograd.grad(loss, nets.leaves))
        # In two parts: the gradient of the features says by how much to scale, so that what lies
        # behind them neither underflows nor overflows in a narrow format. At the end the scale is
        # taken out again; so the gradients of the head, which need none, are multiplied by it
        # before.
        heads = {name: leaf for name, leaf in nets.named.items() if name.startswith("head.")}
        body = {name: leaf for name, leaf in nets.named.items() if name not in heads}
        of_features, *of_heads = torch.autograd.grad(loss, [features, *heads.values()])
        scale = nets.precision.gradient_scale(of_features)
        of_body = torch.autograd.grad(features, list(body.values()), of_features * scale[..., None])
        gradients = dict(zip(body, of_body, strict=True))
        for name, of_head in zip(heads, of_heads, strict=True):
            gradients[name] = of_head * scale[..., None]
        return nets.gradient_rows([gradients[name] for name in nets.named]) / scale

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the losses [R, B] of logits [R, B, K] and labels [R, B].

        Runs with the same loss are one batch [R' B] to it. One with weights that are normalized in
        the batch gets [R', B] instead, and normalizes over the last axis: run by run.
        """
        parts = []
        run = 0
        for loss, runs in self.losses:
            x = logits[run : run + runs]
            y = labels[run : run + runs]
            if not getattr(loss, "in_batch", False):
                x = x.flatten(0, 1)
                y = y.flatten()
            checked = check_losses(loss(x, y), y, self.stages[run].method)
            parts.append(checked.reshape(runs, -1))
            run += runs
        return torch.cat(parts)

    def project(self, order: str) -> None:
        """Project the heads of runs whose method does so, `before` or `after` the step.

        One by one, as a projection is a function of one head.
        """
        for run, stage in enumerate(self.stages):
            if stage.method.project is not None and stage.method.order == order:
                weight = self._head_weights()[run]
                weight.copy_(stage.method.project(Head(weight)).weight)

    @torch.no_grad()
    def evaluate(self) -> None:
        """Write the errors of all runs on the evaluation splits.

        All images of a split are standardized once for all runs, chunk by chunk. The norms and the loss of
        the report stay, unless the logits are not finite.
        """
        runs = self.nets.runs
        self.nets.refresh()
        for column, name in enumerate(self.eval_splits, 2):
            images, labels = self.splits[name]
            wrong = torch.zeros_like(self.report[:, 0])
            # All runs see the same images, as many at a time as fit.
            chunk = max(1, self.nets.eval_pixels // (runs * images[0, 0].numel()))
            for part, expected in zip(images.split(chunk), labels.split(chunk), strict=True):
                x = self.preprocess.standardized(part).permute(0, 2, 3, 1)
                features = self.nets.features(x.expand(runs, *x.shape), training=False)
                logits = self.nets.logits(features)
                wrong += (logits.argmax(dim=-1) != expected).sum(dim=1)
                # If the last step made the network diverge, this makes the loss NaN, which the host
                # will see.
                self.report[:, 0] += 0 * logits.sum(dim=(1, 2))
            self.report[:, column] = wrong / len(labels)
