"""The parameters of R networks of one architecture as matrices, one row per network (a *run*).

All learned numbers of a run are one row of `rows` [R, P], the optimizer's buffers for them one of
`momentum` [R, P], and all its batch-norm statistics one of `statistics` [R, Q]. A step of SGD is a
few operations on matrices, and saving the state of all runs means copying three of them.

`NetRows` holds the matrices and maps them to and from networks by name. How images become features
is up to its two kinds: `SingleNet` runs a network's own module, `stacked.StackedNets` runs R of
them as one. `sgd_` is the optimizer; `RowMeans` are the means over the last epochs.

A row stores parameters in the order of `net.named_parameters()`, with the axes of filters as the
kernels read them (`filter_axes`). Everything is a view of the matrices: their memory never moves,
as captured graphs refer to it.
"""

import copy
from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from ..lab.nets import CosineHead, Net
from ..lab.recipe import Recipe
from ..lab.train import add_to_means_, undecayed
from .precision import Precision, find_precision


class NetRows:
    """The numbers of R networks, and views of them by name, each [R, ...] and a leaf for autograd.

    Args:
        net: like all of them; only names and shapes are read.
        runs: R.
        device: where the matrices are. `meta` has none: it only tries whether the networks fit.
        precision: weights are in its `weights`, float32 or better.

    Attributes:
        rows, momentum, statistics: the matrices, see above.
        parameter_views, momentum_views, statistic_views: parts of these by name, [R, ...].
        leaves: the parameter views as leaves of autograd, in order; `named` has them by name.
        head_columns: which columns of a row are the head's.
    """

    filter_axes = (0, 2, 3, 1)  # the order in which a row stores the axes of filters [C', C, k, k]
    eval_pixels = 2**21  # evaluated at a time, over all runs: 512 images of 64x64

    def __init__(
        self, net: Net, runs: int, device: torch.device, precision: Precision | torch.dtype
    ):
        self.runs = runs
        self.precision = find_precision(precision)
        # Whether the head of each run is a cosine one; all others are linear.
        self.is_cosine = torch.zeros(runs, 1, 1, dtype=torch.bool, device=device)
        self.any_cosine = False
        learned = {name: self._to_row_axes(p) for name, p in net.named_parameters()}
        measured = {name: b for name, b in net.named_buffers() if b.is_floating_point()}
        # Of what each of the three matrices consists, by name, in the order of its columns.
        self.shapes = []
        # Filters are stored in the order of axes in which convolutions read them: no copy in a step.
        matrices = []
        for parts in (learned, learned, measured):
            self.shapes.append({name: part.shape for name, part in parts.items()})
            columns = sum(part.numel() for part in parts.values())
            matrices.append(torch.zeros(runs, columns, device=device, dtype=self.precision.weights))
        self.rows, self.momentum, self.statistics = matrices
        self.parameter_views, self.momentum_views, self.statistic_views = self._views(
            self.rows, self.momentum, self.statistics
        )
        # Leaves share the memory of the rows: a step on the rows is one on them.
        self.leaves = [view.detach().requires_grad_() for view in self.parameter_views.values()]
        self.named = dict(zip(self.parameter_views, self.leaves, strict=True))
        sizes = {name: leaf[0].numel() for name, leaf in self.named.items()}
        start = sum(size for name, size in sizes.items() if not name.startswith("head."))
        self.head_columns = slice(start, sum(sizes.values()))  # the head's parameters are the last
        self._find_head()

    def _find_head(self) -> None:
        """Keep the leaves of the heads: weight [R, K, d], and bias [R, K] where there is one."""
        self.head = self.named["head.weight"]
        self.head_bias = self.named.get("head.bias")
        self.head_leaves = [leaf for name, leaf in self.named.items() if name.startswith("head.")]

    def decay(self, recipe: Recipe) -> Tensor:
        """Return the weight decay of each number of a row, [P]: 0 for parameters without it.

        Only asked for where some parameter has none: else `sgd_` takes one number for all.
        """
        free = undecayed(recipe)
        parts = []
        for name, view in self.parameter_views.items():
            decay = 0.0 if name in free else recipe.weight_decay
            parts.append(self.rows.new_full((view[0].numel(),), decay))
        return torch.cat(parts)

    @torch.no_grad()
    def load(self, run: int, net: Net, momentum: dict[str, Tensor] | None = None) -> None:
        """Copy a network, and the optimizer's buffers by the parameters' names, to a row.

        Without buffers the row's momentum stays as it is: zeros, at the start.
        """
        for name, view in self.parameter_views.items():
            view[run].copy_(self._to_row_axes(net.get_parameter(name)))
        for name, view in self.statistic_views.items():
            view[run].copy_(net.get_buffer(name))
        for name, buffer in (momentum or {}).items():
            self.momentum_views[name][run].copy_(self._to_row_axes(buffer))
        self.is_cosine[run] = isinstance(net.head, CosineHead)
        self.any_cosine = bool(self.is_cosine.any())

    @torch.no_grad()
    def store(self, run: int, net: Net) -> None:
        """Copy a row back to a network, whose own tensors stay where they are."""
        for name, view in self.parameter_views.items():
            net.get_parameter(name).copy_(self._from_row_axes(view[run]))
        for name, view in self.statistic_views.items():
            net.get_buffer(name).copy_(view[run])

    @torch.no_grad()
    def load_means(self, run: int, means: Sequence[Tensor], tensors: dict[str, Tensor]) -> None:
        """Copy the mean weights and statistics of a run to its rows of the matrices of means.

        Args:
            run: which row.
            means: matrices like `rows` and `statistics`.
            tensors: by name, as `State.mean` has them.
        """
        learned, _, measured = self._views(means[0], self.momentum, means[1])
        for name, view in (learned | measured).items():
            view[run].copy_(self._to_row_axes(tensors[name]))

    def run_tensors(self, run: int, *copies: Tensor) -> list[dict[str, Tensor]]:
        """Return one run's parameters, buffers and statistics by name.

        From copies of the three matrices: these themselves may be an epoch ahead by then.

        Args:
            run: which row.
            copies: of `rows`, `momentum` and `statistics`, on any device.

        Returns:
            Three dicts, with the axes of filters as torch has them.
        """
        return [
            {name: self._from_row_axes(view[run]).clone() for name, view in views.items()}
            for views in self._views(*copies)
        ]

    def refresh(self) -> None:
        """Update what is derived from the rows; called before every step."""

    def features(self, x: Tensor, *, training: bool) -> Tensor:
        """Map images [R, B, H, W, C] to features [R, B, d].

        Args:
            x: in the format of activations.
            training: whether batch norm goes by the batch and updates its statistics, or goes by these.
        """
        raise NotImplementedError

    def logits(self, features: Tensor) -> Tensor:
        """Map features [R, B, d] to logits [R, B, K], in float32 or better.

        Runs with a cosine head and with a linear one may be in one pack: which rows are normalized
        is a mask, so that all heads are one product.
        """
        weight = self.head
        if self.any_cosine:
            features, weight = (
                torch.where(self.is_cosine, F.normalize(x, dim=-1), x) for x in (features, weight)
            )
        scores = features @ weight.mT
        if self.head_bias is None:
            return scores
        return scores + self.head_bias[..., None, :]

    def gradient_rows(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the gradients of all leaves as rows, [R, P].

        Args:
            gradients: one for each of `leaves`, in their order, each [R, ...].
        """
        return torch.cat([g.reshape(self.runs, -1) for g in gradients], dim=1)

    def _views(self, *matrices: Tensor) -> list[dict[str, Tensor]]:
        """Return the parts of `rows`, `momentum` and `statistics`, or of copies of them, by name: [R, ...]."""
        views_of = []
        for matrix, shapes in zip(matrices, self.shapes, strict=True):
            columns = matrix.split([shape.numel() for shape in shapes.values()], dim=1)
            views = {}
            for (name, shape), part in zip(shapes.items(), columns, strict=True):
                views[name] = part.unflatten(1, shape) if shape else part[:, 0]
            views_of.append(views)
        return views_of

    def _to_row_axes(self, p: Tensor) -> Tensor:
        """Return a parameter with the axes of filters [C', C, k, k] in the order in which rows store them."""
        if p.ndim == 4:
            return p.detach().permute(self.filter_axes)
        return p.detach()

    def _from_row_axes(self, view: Tensor) -> Tensor:
        """Undo `_to_row_axes`, without a copy."""
        if view.ndim == 4:
            return view.permute([self.filter_axes.index(axis) for axis in range(4)])
        return view


class SingleNet(NetRows):
    """One network of any kind, run by its own module.

    Its parameters are made views of the row. Batches of `compiled_batch` images go through
    torch.compile, which compiles for one shape; the last batch of an epoch, which may be smaller,
    does not, nor does evaluation.

    Args:
        net: copied; the copy is what runs.
        device, precision: as of `NetRows`; R is 1.
        compiled_batch: images of a whole batch; None to compile nothing.
    """

    def __init__(
        self,
        net: Net,
        device: torch.device,
        precision: Precision | torch.dtype,
        *,
        compiled_batch: int | None,
    ):
        super().__init__(net, 1, device, precision)
        # The module's own parameters and statistics become views of the row: a step on the row is
        # one on the module.
        self.net = copy.deepcopy(net).to(device, self.rows.dtype)
        for name, p in self.net.named_parameters():
            p.data = self._from_row_axes(self.parameter_views[name][0])
        for name, b in self.net.named_buffers():
            if name in self.statistic_views:
                b.data = self.statistic_views[name][0]
            else:
                b.data = b
        self.named = dict(self.net.named_parameters())
        self.compiled_batch = compiled_batch
        self.leaves = list(self.named.values())
        self._find_head()
        if compiled_batch:
            self.compiled_body = torch.compile(self.net.body, dynamic=False)
        else:
            self.compiled_body = self.net.body
        storage = self.precision.storage
        # A module rounds its activations by autocast; stacked networks do so by themselves.
        half = storage in (torch.bfloat16, torch.float16)
        if half:
            self.autocast = torch.autocast(device.type, storage, cache_enabled=False)
        else:
            self.autocast = nullcontext()

    def features(self, x: Tensor, *, training: bool) -> Tensor:
        """Map images [1, B, H, W, C] to features [1, B, d], in the dtype of the weights."""
        self.net.train(training)
        with self.autocast:
            # Another shape would be compiled anew, which takes longer than the few steps that have
            # it.
            if training and x.shape[1] == self.compiled_batch:
                body = self.compiled_body
            else:
                body = self.net.body
            return body(x[0].permute(0, 3, 1, 2))[None].to(self.rows.dtype)

    def gradient_rows(self, gradients: Sequence[Tensor]) -> Tensor:
        return super().gradient_rows([self._to_row_axes(g) for g in gradients])


def sgd_(
    rows: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    lr: Tensor,
    recipe: Recipe,
    decay: Tensor | float | None = None,
) -> None:
    """Take a step of SGD with momentum, on matrices.

    ``g <- g + decay w``, ``m <- mu m + g``, ``w <- w - lr m``; Nesterov: ``w - lr (g + mu m)``.
    As torch.optim.SGD: its first step sets m to g; with m = 0 at first, that is the same.

    Args:
        rows, momentum: [R, P] or a part of their columns, changed in place.
        gradient: of the same shape.
        lr: a tensor on the device, as graphs must read it anew in every replay.
        recipe: momentum, Nesterov, and the weight decay where `decay` is None.
        decay: of each column, [P], or of all.
    """
    if decay is None:
        decay = recipe.weight_decay
    if isinstance(decay, Tensor):
        gradient = torch.addcmul(gradient, rows, decay)
    else:
        gradient = torch.add(gradient, rows, alpha=decay)
    torch.add(gradient, momentum, alpha=recipe.momentum, out=momentum)  # one pass over memory
    rows.addcmul_(
        gradient + recipe.momentum * momentum if recipe.nesterov else momentum, lr, value=-1
    )


class RowMeans:
    """The means of packed networks over the last epochs, see `Recipe.average`.

    They are matrices like the rows and the statistics; there are none where the recipe averages
    nothing.
    """

    def __init__(self, nets: NetRows, recipe: Recipe):
        self.nets = nets
        self.recipe = recipe
        if recipe.average:
            self.matrices = (torch.zeros_like(nets.rows), torch.zeros_like(nets.statistics))
        else:
            self.matrices = ()

    def load(self, run: int, mean: dict[str, Tensor]) -> None:
        """Copy the mean of a run that resumes, by name; nothing where it has none yet."""
        if self.matrices and mean:
            self.nets.load_means(run, self.matrices, mean)

    @torch.no_grad()
    def add(self, epoch: int) -> bool:
        """Take in the weights after an epoch, as far as the recipe asks.

        Returns:
            Whether their mean has replaced them, as it does after the last epoch.
        """
        count = self.recipe.epochs_averaged(epoch)
        current = (self.nets.rows, self.nets.statistics)
        if not count:
            return False
        add_to_means_(self.matrices, current, count)
        if epoch + 1 < self.recipe.epochs:
            return False
        for x, mean in zip(current, self.matrices, strict=True):
            x.copy_(mean)
        return True

    def of_run(
        self, run: int, epoch: int, momentum: Tensor, copies: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        """Return the mean of one run by name, from copies of the matrices after an epoch.

        It is empty before there is one. `momentum` only fills the place of the second of three
        matrices.
        """
        if not self.recipe.epochs_averaged(epoch):
            return {}
        learned, _, measured = self.nets.run_tensors(run, copies[0], momentum, copies[1])
        return learned | measured
