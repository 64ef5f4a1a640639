"""R networks of one architecture as one: a run is a row, and every layer works on all of them at once.

All learned numbers of a run are one row of `rows` [R, P], the optimizer's for them one of `momentum` [R, P], all its
batch-norm statistics one of `statistics` [R, Q], so that a step of SGD is a few operations on matrices, and keeping
where all runs stand is copying three of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import LevelheadError
from .nets import CosineHead, GlobalMean, Net, PadShortcut, ResidualBlock

WIDEST = 64  # channels up to which the kernels are made; above, cuDNN is good and networks fill the chip alone


class Rows:
    """The numbers of R networks, and views of them by name, each [R, ...] and a leaf for autograd."""

    order = (0, 2, 3, 1)  # how a row has the axes of filters [C', C, k, k]
    at_once = 2**21  # pixels evaluated at a time, over all runs: 512 images of 64x64

    def __init__(self, net: Net, runs: int, device: torch.device, dtype: torch.dtype):
        self.runs, self.dtype = runs, dtype
        self.cosine = torch.zeros(runs, 1, 1, dtype=torch.bool, device=device)  # which heads are cosine ones
        self.any_cosine = False
        wide = torch.promote_types(dtype, torch.float32)
        learned = {name: self._pack(p) for name, p in net.named_parameters()}
        counted = {name: b for name, b in net.named_buffers() if b.is_floating_point()}
        self.rows, self.momentum, self.statistics = (
            torch.zeros(runs, sum(part.numel() for part in parts.values()), device=device, dtype=wide)
            for parts in (learned, learned, counted))
        self.shapes = [{name: part.shape for name, part in parts.items()} for parts in (learned, learned, counted)]
        self.views, self.momenta, self.counts = self._views(self.rows, self.momentum, self.statistics)
        self.leaves = [view.detach().requires_grad_() for view in self.views.values()]
        self.head = self.leaves[list(self.views).index("head.weight")]
        start = sum(v[0].numel() for v in list(self.views.values())[: list(self.views).index("head.weight")])
        self.head_columns = slice(start, start + self.head[0].numel())

    @torch.no_grad()
    def load(self, run: int, net: Net, momentum: dict[str, Tensor] | None = None) -> None:
        """A network into a row, and the optimizer's buffers by the parameters' names."""
        state = dict(net.named_parameters()) | dict(net.named_buffers())
        for name, view in self.views.items():
            view[run].copy_(self._pack(state[name]))
        for name, view in self.counts.items():
            view[run].copy_(state[name])
        for name, buffer in (momentum or {}).items():
            self.momenta[name][run].copy_(self._pack(buffer))
        self.cosine[run] = isinstance(net.head, CosineHead)
        self.any_cosine = bool(self.cosine.any())

    @torch.no_grad()
    def store(self, run: int, net: Net) -> None:
        """A row into a network."""
        for name, p in net.named_parameters():
            p.copy_(self._unpack(self.views[name][run]))
        for name, b in net.named_buffers():
            if name in self.counts:
                b.copy_(self.counts[name][run])

    def apart(self, run: int, *copies: Tensor) -> list[dict[str, Tensor]]:
        """Copies of `rows`, `momentum` and `statistics` -> one run's parameters, buffers and statistics, by name."""
        return [{name: self._unpack(view[run]).clone() for name, view in views.items()}
                for views in self._views(*copies)]

    def refresh(self) -> None:
        """Before a step: whatever is derived from the rows."""

    def features(self, x: Tensor, *, training: bool) -> Tensor:
        """images [R, B, H, W, C] -> features [R, B, d]."""
        raise NotImplementedError

    def logits(self, features: Tensor) -> Tensor:
        """features [R, B, d] -> logits [R, B, K]: the heads, in float32 or better."""
        weight = self.head
        if self.any_cosine:
            features, weight = (torch.where(self.cosine, F.normalize(x, dim=-1), x) for x in (features, weight))
        return features @ weight.mT

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        """The gradients of all leaves as rows, [R, P]."""
        return torch.cat([g.reshape(self.runs, -1) for g in gradients], dim=1)

    def _views(self, *matrices: Tensor) -> list[dict[str, Tensor]]:
        """Of `rows`, `momentum`, `statistics` or copies of them, each part by its name: [R, ...]."""
        found = []
        for matrix, shapes in zip(matrices, self.shapes, strict=True):
            columns = matrix.split([shape.numel() for shape in shapes.values()], dim=1)
            found.append({name: c.unflatten(1, shape) if shape else c[:, 0]
                          for (name, shape), c in zip(shapes.items(), columns, strict=True)})
        return found

    def _pack(self, p: Tensor) -> Tensor:
        return p.detach().permute(self.order) if p.ndim == 4 else p.detach()

    def _unpack(self, view: Tensor) -> Tensor:
        return view.permute([self.order.index(axis) for axis in range(4)]) if view.ndim == 4 else view


class Single(Rows):
    """One network of any kind, as its module has it: channels last, mixed precision.

    Steps on `compiled` samples go through torch.compile. Those are all but the last of an epoch: it and evaluation are
    too rare for what compiling each of their shapes takes.
    """

    def __init__(self, net: Net, device: torch.device, dtype: torch.dtype, *, compiled: int | None):
        super().__init__(net, 1, device, dtype)
        self.net = copy.deepcopy(net).to(device, self.rows.dtype)
        for name, p in self.net.named_parameters():
            p.data = self._unpack(self.views[name][0])
        for name, b in self.net.named_buffers():
            b.data = self.counts[name][0] if name in self.counts else b
        self.leaves = list(self.net.parameters())
        self.compiled, self.quick = compiled, torch.compile(self.net.body, dynamic=False) if compiled else self.net.body
        half = dtype in (torch.bfloat16, torch.float16)
        self.precision = torch.autocast(device.type, dtype, cache_enabled=False) if half else nullcontext()
        self.head = dict(self.net.named_parameters())["head.weight"]

    def features(self, x: Tensor, *, training: bool) -> Tensor:
        self.net.train(training)
        with self.precision:
            body = self.quick if training and x.shape[1] == self.compiled else self.net.body
            return body(x[0].permute(0, 3, 1, 2))[None].to(self.rows.dtype)

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        return super().gather([self._pack(g) for g in gradients])


class Stack(Rows):
    """R networks made of convolutions, batch norms and relus. Raises `Unstackable` for others.

    Args:
        net: one of them, for the architecture.
        kernels: use the fused Triton kernels; else plain torch, run by run: the same numbers, anywhere.
    """

    order = (2, 3, 1, 0)  # as the kernels read them
    at_once = 2**24  # narrow networks: 16384 images of 32x32

    def __init__(self, net: Net, runs: int, device: torch.device, dtype: torch.dtype, *, kernels: bool):
        super().__init__(net, runs, device, dtype)
        self.half = self.rows.to(dtype) if dtype != self.rows.dtype else self.rows
        self.aside = Aside(device) if kernels else None
        self.layers = list(self._layers(net.body))

    def refresh(self) -> None:
        if self.half is not self.rows:
            self.half.copy_(self.rows)

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        if self.aside is not None:
            self.aside.join()
        return super().gather(gradients)

    def features(self, x: Tensor, *, training: bool) -> Tensor:
        for layer in self.layers:
            x = layer(x, training)
        return x.to(self.rows.dtype)

    def _layers(self, body: nn.Module) -> Iterator[Layer]:
        parts = list(body.named_children()) if isinstance(body, nn.Sequential) else []
        kinds = [type(part) for _, part in parts]
        at = 0
        while at < len(parts):
            name, part = parts[at]
            if kinds[at : at + 3] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]:
                norm = self._conv_norm(f"body.{name}", part, f"body.{parts[at + 1][0]}", parts[at + 1][1])
                yield lambda x, training, norm=norm: norm(x, training=training)[0]
                at += 3
                continue
            if isinstance(part, ResidualBlock):
                yield self._block(f"body.{name}", part)
            elif isinstance(part, GlobalMean):
                yield lambda x, training: x.mean(dim=(2, 3), dtype=self.rows.dtype)
            else:
                raise Unstackable(f"{type(part).__name__} ({name}) has no stacked form")
            at += 1
        if not parts:
            raise Unstackable(f"{type(body).__name__} has no stacked form")

    def _block(self, name: str, block: ResidualBlock) -> Layer:
        first = self._conv_norm(f"{name}.conv1", block.conv1, f"{name}.bn1", block.bn1)
        second = self._conv_norm(f"{name}.conv2", block.conv2, f"{name}.bn2", block.bn2)
        side: Callable[[Tensor, bool], Tensor] = lambda x, training: x  # noqa: E731
        if isinstance(block.shortcut, nn.Sequential):
            conv, bn = block.shortcut
            norm = self._conv_norm(f"{name}.shortcut.0", conv, f"{name}.shortcut.1", bn)
            side = lambda x, training: norm(x, training=training, relu=False)[0]  # noqa: E731
        elif isinstance(block.shortcut, PadShortcut):
            pad = block.shortcut
            side = lambda x, training: F.pad(x[:, :, :: pad.stride, :: pad.stride], (pad.before, pad.after))  # noqa: E731

        def layer(x: Tensor, training: bool) -> Tensor:
            y, x = first(x, training=training)
            return second(y, residual=side(x, training), training=training)[0]

        return layer

    def _conv_norm(self, conv_name: str, conv: nn.Module, norm_name: str, norm: nn.Module) -> ConvNorm:
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        plain = conv.bias is None and conv.groups == 1 and conv.dilation == (1, 1) and norm.momentum is not None
        if not plain or conv.kernel_size not in ((1, 1), (3, 3)) or conv.padding != (conv.kernel_size[0] // 2,) * 2:
            raise Unstackable(f"{conv_name} is no plain 1x1 or 3x3 convolution")
        channels = (conv.in_channels if conv.in_channels > 3 else 16, conv.out_channels)
        if self.aside is not None and any(c not in (16, 32, WIDEST) for c in channels):
            raise Unstackable(f"{conv_name} has {channels} channels; the kernels are made for 16, 32 and {WIDEST}")
        leaf = dict(zip(self.views, self.leaves, strict=True))
        filters = leaf[f"{conv_name}.weight"]
        half = torch.as_strided(self.half, filters.shape, filters.stride(), filters.storage_offset())
        return ConvNorm(
            filters, half, leaf[f"{norm_name}.weight"], leaf[f"{norm_name}.bias"],
            self.counts[f"{norm_name}.running_mean"], self.counts[f"{norm_name}.running_var"],
            conv.stride[0], norm.eps, norm.momentum or 0.0, self.aside,
        )  # fmt: skip


Layer = Callable[[Tensor, bool], Tensor]  # (x [R, B, H, W, C], training) -> the same, or [R, B, d]


def has_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the Triton kernels run there, in that precision."""
    return device.type == "cuda" and dtype in (torch.bfloat16, torch.float32) and find_spec("triton") is not None


def stackable(net: Net, *, kernels: bool) -> bool:
    """Whether `Stack` has a form of this network."""
    try:
        Stack(net, 1, torch.device("meta"), torch.float32, kernels=kernels)
    except Unstackable:
        return False
    return True


class Unstackable(LevelheadError):
    """A network has a layer of which there is no form for several runs at once."""


class Aside:
    """Work that nothing waits for before the step's end, on a stream of its own beside the current one."""

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.kept: list[tuple[Tensor, ...]] = []

    def __call__(self, work: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """work(*tensors), begun when what the current stream does now is over."""
        if self.stream is None:
            return work(*tensors)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = work(*tensors)
        self.kept.append((*tensors, result))  # their memory must not be given to others meanwhile
        return result

    def join(self) -> None:
        """Let the current stream wait for all of it."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        self.kept.clear()


@dataclass(frozen=True, eq=False)
class ConvNorm:
    """``relu(norm(conv(x)) + residual)`` of R runs: filters [R, k, k, C, C'], the rest [R, C']."""

    filters: Tensor
    half: Tensor
    gamma: Tensor
    beta: Tensor
    running_mean: Tensor
    running_var: Tensor
    stride: int
    eps: float
    momentum: float
    aside: Aside | None  # where the kernels put what can wait; None is plain torch

    def __call__(
        self, x: Tensor, *, residual: Tensor | None = None, relu: bool = True, training: bool
    ) -> tuple[Tensor, Tensor]:
        """x [R, B, H, W, C] -> the result, and x for whoever else reads it."""
        if self.aside is None:
            outs = [self._one(run, x[run], None if residual is None else residual[run], relu, training)
                    for run in range(len(x))]
            return torch.stack(outs), x
        from . import conv_norm

        if training:
            return conv_norm.ConvNorm.apply(  # type: ignore[return-value]
                x, residual, self.filters, self.gamma, self.beta, self.running_mean, self.running_var, self.half,
                self.stride, relu, self.eps, self.momentum, self.aside,
            )  # fmt: skip
        scale = self.gamma * torch.rsqrt(self.running_var + self.eps)
        affine = scale, self.beta - self.running_mean * scale
        return conv_norm.convolve(x, self.half, stride=self.stride, affine=affine, residual=residual, relu=relu)[0], x

    def _one(self, run: int, x: Tensor, residual: Tensor | None, relu: bool, training: bool) -> Tensor:
        filters = self.filters[run].permute(3, 2, 0, 1).to(x.dtype)
        y = F.conv2d(x.permute(0, 3, 1, 2), filters, stride=self.stride, padding=filters.shape[2] // 2)
        y = F.batch_norm(y, self.running_mean[run], self.running_var[run], self.gamma[run], self.beta[run],
                         training, self.momentum, self.eps).permute(0, 2, 3, 1)
        y = y if residual is None else y + residual
        return F.relu(y) if relu else y
