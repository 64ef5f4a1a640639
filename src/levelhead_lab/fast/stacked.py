"""R networks of one architecture as one: every layer works on all of them at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelhead.support.errors import LevelheadError

from ..lab.nets import GlobalMean, Net, PadShortcut, ResidualBlock
from .net_rows import NetRows
from .precision import Precision

KERNEL_CHANNELS = (
    16,
    32,
    64,
)  # for which the kernels are made; with more, cuDNN is good and one network fills the GPU

LayerFunction = Callable[
    [Tensor, bool], Tensor
]  # (x [R, B, H, W, C], training) -> the same, or [R, B, d]


class SideStream:
    """A second CUDA stream, for work whose result is only needed at the end of the step."""

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.in_use: list[tuple[Tensor, ...]] = []

    def __call__(self, work: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        if self.stream is None:
            return work(*tensors)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = work(*tensors)
        self.in_use.append((*tensors, result))  # so that their memory is not reused meanwhile
        return result

    def join(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        self.in_use.clear()


@dataclass(frozen=True, eq=False)
class StackedConvNorm:
    """``relu(norm(conv(x)) + residual)`` of R runs: filters [R, k, k, C, C'], cast ones too, the rest [R, C']."""

    filters: Tensor
    cast_filters: Tensor
    gamma: Tensor
    beta: Tensor
    running_mean: Tensor
    running_var: Tensor
    stride: int
    eps: float
    momentum: float
    products: str
    side_stream: SideStream | None

    def __call__(
        self, x: Tensor, *, residual: Tensor | None = None, relu: bool = True, training: bool
    ) -> tuple[Tensor, Tensor]:
        """Map x [R, B, H, W, C] to the result, and to x for its other readers."""
        if self.side_stream is None:
            outs = [
                self._one_run(
                    run, x[run], None if residual is None else residual[run], relu, training
                )
                for run in range(len(x))
            ]
            return torch.stack(outs), x
        from . import conv_norm

        if training:
            state = (
                self.filters,
                self.gamma,
                self.beta,
                self.running_mean,
                self.running_var,
                self.cast_filters,
            )
            options = self.stride, relu, self.eps, self.momentum, self.products, self.side_stream
            return conv_norm.FusedConvNorm.apply(x, residual, *state, *options)  # type: ignore[return-value]
        scale = self.gamma * torch.rsqrt(self.running_var + self.eps)
        affine = scale, self.beta - self.running_mean * scale
        how = {"stride": self.stride, "products": self.products}
        return conv_norm.convolve(
            x, self.cast_filters, affine=affine, residual=residual, relu=relu, **how
        )[0], x

    def _one_run(
        self, run: int, x: Tensor, residual: Tensor | None, relu: bool, training: bool
    ) -> Tensor:
        filters = self.filters[run].permute(3, 2, 0, 1).to(x.dtype)
        y = F.conv2d(
            x.permute(0, 3, 1, 2), filters, stride=self.stride, padding=filters.shape[2] // 2
        )
        mean, var, gamma, beta = (
            x[run] for x in (self.running_mean, self.running_var, self.gamma, self.beta)
        )
        y = F.batch_norm(y, mean, var, gamma, beta, training, self.momentum, self.eps).permute(
            0, 2, 3, 1
        )
        y = y if residual is None else y + residual
        return F.relu(y) if relu else y


class UnstackableError(LevelheadError):
    """A layer has no form for several runs at once."""


class StackedNets(NetRows):
    """R networks of convolutions, batch norms and relus, like `net`; `kernels` are Triton's, else plain torch."""

    filter_axes = (2, 3, 1, 0)  # as the kernels read them
    eval_pixels = 2**24  # narrow networks: 16384 images of 32x32

    def __init__(
        self,
        net: Net,
        runs: int,
        device: torch.device,
        precision: Precision | torch.dtype,
        *,
        kernels: bool,
    ):
        super().__init__(net, runs, device, precision)
        self.cast_rows = self.rows.to(
            self.precision.storage
        )  # the rows themselves where that is their dtype
        self.side_stream = SideStream(device) if kernels else None
        self.layers = list(self._layers(net.body))

    def refresh(self) -> None:
        if self.cast_rows is not self.rows:
            self.cast_rows.copy_(self.rows)

    def gradient_rows(self, gradients: Sequence[Tensor]) -> Tensor:
        if self.side_stream is not None:
            self.side_stream.join()
        return super().gradient_rows(gradients)

    def features(self, x: Tensor, *, training: bool) -> Tensor:
        spare = (
            4 - x.shape[4] if self.side_stream is not None else 0
        )  # the kernels read 4 channels faster than 3
        x = F.pad(x, (0, spare)) if spare > 0 else x.contiguous()
        for layer in self.layers:
            x = layer(x, training)
        return x.to(self.rows.dtype)

    def _layers(self, body: nn.Module) -> Iterator[LayerFunction]:
        parts = list(body.named_children()) if isinstance(body, nn.Sequential) else []
        kinds = [type(part) for _, part in parts]
        at = 0
        while at < len(parts):
            name, part = parts[at]
            if kinds[at : at + 3] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]:
                norm = self._conv_norm(
                    f"body.{name}", part, f"body.{parts[at + 1][0]}", parts[at + 1][1]
                )
                yield lambda x, training, norm=norm: norm(x, training=training)[0]
                at += 2
            elif isinstance(part, ResidualBlock):
                yield self._block(f"body.{name}", part)
            elif isinstance(part, GlobalMean):
                yield lambda x, training: x.mean(dim=(2, 3), dtype=self.rows.dtype)
            else:
                raise UnstackableError(f"{type(part).__name__} ({name}) has no stacked form")
            at += 1
        if not parts:
            raise UnstackableError(f"{type(body).__name__} has no stacked form")

    def _block(self, name: str, block: ResidualBlock) -> LayerFunction:
        first = self._conv_norm(f"{name}.conv1", block.conv1, f"{name}.bn1", block.bn1)
        second = self._conv_norm(f"{name}.conv2", block.conv2, f"{name}.bn2", block.bn2)
        by, norm = block.shortcut, None
        if isinstance(by, nn.Sequential):
            norm = self._conv_norm(f"{name}.shortcut.0", by[0], f"{name}.shortcut.1", by[1])

        def layer(x: Tensor, training: bool) -> Tensor:
            y, x = first(x, training=training)
            if norm is not None:
                x, _ = norm(x, training=training, relu=False)
            elif isinstance(by, PadShortcut):
                x = by.channels_last(x)
            return second(y, residual=x, training=training)[0]

        return layer

    def _conv_norm(
        self, conv_name: str, conv: nn.Module, norm_name: str, norm: nn.Module
    ) -> StackedConvNorm:
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        plain = (
            conv.bias is None
            and conv.groups == 1
            and conv.dilation == (1, 1)
            and norm.momentum is not None
        )
        if (
            not plain
            or conv.kernel_size not in ((1, 1), (3, 3))
            or conv.padding != (conv.kernel_size[0] // 2,) * 2
        ):
            raise UnstackableError(f"{conv_name} is not a plain 1x1 or 3x3 convolution")
        channels = (conv.in_channels if conv.in_channels > 3 else 16, conv.out_channels)
        if self.side_stream is not None and any(c not in KERNEL_CHANNELS for c in channels):
            raise UnstackableError(
                f"{conv_name} has {channels} channels; the kernels are made for {KERNEL_CHANNELS}"
            )
        leaf = self.named
        filters = leaf[f"{conv_name}.weight"]
        return StackedConvNorm(
            filters=filters,
            cast_filters=torch.as_strided(
                self.cast_rows, filters.shape, filters.stride(), filters.storage_offset()
            ),
            gamma=leaf[f"{norm_name}.weight"],
            beta=leaf[f"{norm_name}.bias"],
            running_mean=self.statistic_views[f"{norm_name}.running_mean"],
            running_var=self.statistic_views[f"{norm_name}.running_var"],
            stride=conv.stride[0],
            eps=norm.eps,
            momentum=norm.momentum or 0.0,
            products=self.precision.products,
            side_stream=self.side_stream,
        )


def is_stackable(net: Net, *, kernels: bool) -> bool:
    try:
        StackedNets(net, 1, torch.device("meta"), torch.float32, kernels=kernels)
    except UnstackableError:
        return False
    return True
