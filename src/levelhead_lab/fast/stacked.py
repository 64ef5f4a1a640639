"""R networks of one architecture as one: every layer works on all of them at once.

A narrow network cannot fill a GPU: its kernels are too small. R of them side by side can, with
weights [R, ...] and activations [R, B, H, W, C].

`StackedNets` reads the body of a `Net` layer by layer (`_layers`) and makes a function of each for
all runs: a `StackedConvNorm` for a convolution with its batch norm and relu, `_block` for a
residual block, `_mean` for the pooling at the end. A layer that has no such form raises
UnstackableError, and `most_stacked` finds out beforehand, on the device `meta`, which computes
nothing.

With kernels a layer is one call into `conv_norm`, or for a wide network `cudnn`; without them the
same is done run by run by torch's own functions, which is slow and what tests compare with.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelhead.support.errors import LevelheadError

from ..lab.nets import GlobalMean, Net, PadShortcut, ResidualBlock
from .net_rows import NetRows
from .precision import Precision

# For which the convolutions of conv_norm are made. With more, cuDNN is good, and one network fills
# the GPU.
KERNEL_CHANNELS = (16, 32, 64)
CUDNN_CHANNELS = (64, 128, 256, 512, 1024, 2048)

# One tensor for two readers, whose gradients are added where it was made: see `FusedConvNorm`.
Pair = tuple[Tensor, Tensor]
# (x [R, B, H, W, C], training) -> the same, or [R, B, d]
LayerFunction = Callable[[Pair, bool], Pair]


class SideStream:
    """A second CUDA stream, for work whose result is only needed at the end of the step.

    That is the gradients of filters: the next layer of the backward pass needs that of x, not
    these. On a CPU the work is done at once.
    """

    def __init__(self, device: torch.device):
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)
        else:
            self.stream = None
        self.in_use: list[tuple[Tensor, ...]] = []

    def __call__(self, work: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """Do the work with these tensors beside the main stream; return its result, to be read after `join`."""
        if self.stream is None:
            return work(*tensors)
        # Behind all that is queued so far, so that the tensors are ready.
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = work(*tensors)
        self.in_use.append((*tensors, result))  # so that their memory is not reused meanwhile
        return result

    def join(self) -> None:
        """Let the main stream wait for all that was begun here."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        self.in_use.clear()


@dataclass(frozen=True, eq=False)
class StackedConvNorm:
    """``relu(norm(conv(x)) + residual)`` of R runs.

    All tensors are views of the matrices of `NetRows`: a step changes them in place, and a training
    pass updates the running statistics.
    """

    filters: Tensor  # [R, ...], the axes of each as in `NetRows.filter_axes`
    cast_filters: Tensor  # the same in the format of activations
    gamma: Tensor  # [R, C'], as are the next three
    beta: Tensor
    running_mean: Tensor
    running_var: Tensor
    stride: int
    eps: float
    momentum: float  # of the running statistics
    products: str  # see `Precision`
    side_stream: SideStream | None  # None: plain torch, without kernels
    wide: bool  # convolved by cuDNN

    def __call__(
        self, x: Tensor, *, residual: Tensor | None = None, relu: bool = True, training: bool
    ) -> Pair:
        """Map x [R, B, H, W, C] to [R, B, H', W', C'], twice, for two readers.

        Args:
            x: contiguous, in the format of activations.
            residual: added after batch norm, of the shape of the result.
            relu: whether to end with it; a shortcut does not.
            training: whether to normalize by the batch, or by the running statistics.
        """
        if self.side_stream is None:
            outs = []
            for run in range(len(x)):
                beside = None
                if residual is not None:
                    beside = residual[run]
                outs.append(self._one_run(run, x[run], beside, relu, training))
            out = torch.stack(outs)
            return out, out
        # Imported here, as they need Triton.
        from . import conv_norm
        from .cudnn import CudnnConvolutions

        convolutions = CudnnConvolutions if self.wide else conv_norm
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
            return conv_norm.FusedConvNorm.apply(x, residual, *state, *options, convolutions)  # type: ignore[return-value]
        # In evaluation batch norm is a scale and a shift of each channel, which the convolution
        # applies.
        scale = self.gamma * torch.rsqrt(self.running_var + self.eps)
        affine = scale, self.beta - self.running_mean * scale
        how = {"stride": self.stride, "products": self.products}
        out, _ = convolutions.convolve(
            x, self.cast_filters, affine=affine, residual=residual, relu=relu, **how
        )
        return out, out

    def _one_run(
        self, run: int, x: Tensor, residual: Tensor | None, relu: bool, training: bool
    ) -> Tensor:
        """Map x [B, H, W, C] of one run by torch's own functions: what the kernels are compared with.

        Args:
            run: whose filters and statistics are taken.
            x, residual, relu, training: as of `__call__`, without the axis of runs.
        """
        filters = self.filters[run].permute(3, 2, 0, 1).to(x.dtype)
        images = x.permute(0, 3, 1, 2)
        y = F.conv2d(images, filters, stride=self.stride, padding=filters.shape[2] // 2)
        y = F.batch_norm(
            y,
            self.running_mean[run],
            self.running_var[run],
            self.gamma[run],
            self.beta[run],
            training,
            self.momentum,
            self.eps,
        )
        y = y.permute(0, 2, 3, 1)
        if residual is not None:
            y = y + residual
        if relu:
            y = F.relu(y)
        return y


class UnstackableError(LevelheadError):
    """A layer has no form for several runs at once; caught by `most_stacked`."""


class StackedNets(NetRows):
    """R networks of convolutions, batch norms and relus, like `net`; `kernels` are Triton's, else plain torch.

    A wide network is alone: with kernels, cuDNN convolves, and Triton's do the rest.

    Raises:
        UnstackableError: if a layer has no stacked form, its number of channels is not one that the
            kernels are made for, or several wide networks are asked for.
    """

    filter_axes = (2, 3, 1, 0)  # as the kernels read them
    eval_pixels = 2**24  # narrow networks: 16384 images of 32x32
    image_channels = 4  # which the kernels read faster than 3

    def __init__(
        self,
        net: Net,
        runs: int,
        device: torch.device,
        precision: Precision | torch.dtype,
        *,
        kernels: bool,
    ):
        self.wide = kernels and _is_wide(net)
        if self.wide:
            if runs > 1:
                raise UnstackableError(f"expected one wide network, got {runs}")
            # As cuDNN reads them.
            self.filter_axes = NetRows.filter_axes
            self.image_channels = 8
            self.eval_pixels = NetRows.eval_pixels
        super().__init__(net, runs, device, precision)
        self.cast_rows = self.rows.to(
            self.precision.storage
        )  # the rows themselves where that is their dtype
        self.side_stream = SideStream(device) if kernels else None
        self.layers = list(self._layers(net.body))

    def refresh(self) -> None:
        """Copy the weights to the format of activations, in which convolutions read them."""
        if self.cast_rows is not self.rows:
            self.cast_rows.copy_(self.rows)

    def gradient_rows(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the gradients of all leaves as rows, [R, P]; wait for those of the side stream."""
        if self.side_stream is not None:
            self.side_stream.join()
        return super().gradient_rows(gradients)

    def features(self, x: Tensor, *, training: bool) -> Tensor:
        """Map images [R, B, H, W, C] to features [R, B, d], layer by layer."""
        # Images have 1 or 3 channels, and the kernels read more, of zeros.
        spare = 0
        if self.side_stream is not None:
            spare = self.image_channels - x.shape[4]
        x = F.pad(x, (0, spare)) if spare > 0 else x.contiguous()
        pair = x, x
        for layer in self.layers:
            pair = layer(pair, training)
        return pair[0].to(self.rows.dtype)

    def _layers(self, body: nn.Module) -> Iterator[LayerFunction]:
        """Yield a function for each layer of the body.

        A convolution, its batch norm and a relu after it are one layer here; alone none of them has
        a form.
        """
        parts = []
        if isinstance(body, nn.Sequential):
            parts = list(body.named_children())
        kinds = [type(part) for _, part in parts]
        at = 0
        while at < len(parts):
            name, part = parts[at]
            if kinds[at : at + 3] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]:
                norm = self._conv_norm(
                    f"body.{name}", part, f"body.{parts[at + 1][0]}", parts[at + 1][1]
                )
                yield lambda pair, training, norm=norm: norm(pair[0], training=training)
                at += 2
            elif isinstance(part, ResidualBlock):
                yield self._block(f"body.{name}", part)
            elif isinstance(part, GlobalMean):
                yield self._mean
            else:
                raise UnstackableError(f"{type(part).__name__} ({name}) has no stacked form")
            at += 1
        if not parts:
            raise UnstackableError(f"{type(body).__name__} has no stacked form")

    def _block(self, name: str, block: ResidualBlock) -> LayerFunction:
        """Return a residual block: its second convolution adds the shortcut before the relu.

        Args:
            name: of the block in the network, by which its parameters are found.
            block: the module, of which layers and shapes are read.
        """
        first = self._conv_norm(f"{name}.conv1", block.conv1, f"{name}.bn1", block.bn1)
        second = self._conv_norm(f"{name}.conv2", block.conv2, f"{name}.bn2", block.bn2)
        by = block.shortcut
        norm = None
        if isinstance(by, nn.Sequential):
            norm = self._conv_norm(f"{name}.shortcut.0", by[0], f"{name}.shortcut.1", by[1])

        def layer(pair: Pair, training: bool) -> Pair:
            """Map the pair of two readers through the block, to a pair again."""
            # The input for two readers: the convolutions, and the shortcut beside them.
            x, beside = pair
            y, _ = first(x, training=training)
            if norm is not None:
                beside, _ = norm(beside, training=training, relu=False)
            elif isinstance(by, PadShortcut):
                beside = by.channels_last(beside)
            return second(y, residual=beside, training=training)

        return layer

    def _mean(self, pair: Pair, training: bool) -> Pair:
        """Map [R, B, H, W, C] to features [R, B, C], in the dtype of the weights."""
        features = pair[0].mean(dim=(2, 3), dtype=self.rows.dtype)
        return features, features

    def _conv_norm(
        self, conv_name: str, conv: nn.Module, norm_name: str, norm: nn.Module
    ) -> StackedConvNorm:
        """Return a convolution with its batch norm for all runs, which read the rows where they lie.

        Args:
            conv_name, norm_name: of the two modules in the network, by which their parameters are found.
            conv, norm: the modules, of which stride, sizes and constants are read.

        Raises:
            UnstackableError: if the convolution has another form, or other numbers of channels, than the
                kernels are made for.
        """
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        if not _is_plain(conv) or norm.momentum is None:
            raise UnstackableError(f"{conv_name} is not a plain 1x1 or 3x3 convolution")
        # The kernels are compiled for some numbers of channels; without kernels any will do.
        made_for = CUDNN_CHANNELS if self.wide else KERNEL_CHANNELS
        inputs = conv.in_channels
        if inputs <= 3:  # of images, which the first layer takes padded
            inputs = made_for[0]
        channels = (inputs, conv.out_channels)
        if self.side_stream is not None and any(c not in made_for for c in channels):
            raise UnstackableError(
                f"{conv_name} has {channels} channels; the kernels are made for {made_for}"
            )
        leaf = self.named
        filters = leaf[f"{conv_name}.weight"]
        # The same part of the cast rows: a view of them, as the filters are one of the rows.
        cast_filters = torch.as_strided(
            self.cast_rows, filters.shape, filters.stride(), filters.storage_offset()
        )
        return StackedConvNorm(
            filters=filters,
            cast_filters=cast_filters,
            gamma=leaf[f"{norm_name}.weight"],
            beta=leaf[f"{norm_name}.bias"],
            running_mean=self.statistic_views[f"{norm_name}.running_mean"],
            running_var=self.statistic_views[f"{norm_name}.running_var"],
            stride=conv.stride[0],
            eps=norm.eps,
            momentum=norm.momentum or 0.0,
            products=self.precision.products,
            side_stream=self.side_stream,
            wide=self.wide,
        )


def _is_plain(conv: nn.Conv2d) -> bool:
    """Say whether a convolution is 1x1 or 3x3, padded to keep the size, without bias, groups or dilation."""
    size = conv.kernel_size
    padded = conv.padding == (size[0] // 2,) * 2
    simple = conv.bias is None and conv.groups == 1 and conv.dilation == (1, 1)
    return simple and padded and size in ((1, 1), (3, 3))


def _is_wide(net: Net) -> bool:
    """Say whether a network has more channels than the convolutions of conv_norm are made for.

    >>> from levelhead_lab.lab.nets import build
    >>> _is_wide(build("resnet32", 10)), _is_wide(build("resnet18-64", 10))
    (False, True)
    """
    convolutions = [part for part in net.body.modules() if isinstance(part, nn.Conv2d)]
    return max((conv.out_channels for conv in convolutions), default=0) > max(KERNEL_CHANNELS)


def most_stacked(
    net: Net, most: int, precision: Precision | torch.dtype = torch.float32, *, kernels: bool
) -> int:
    """Return how many networks like this one `StackedNets` takes: `most`, 1 of a wide one, or 0.

    It is tried, on a device without memory: so there is no second list of what can be stacked.

    Args:
        net: one of them.
        most: how many there are room for.
        precision: of their activations.
        kernels: whether those of Triton are to be used, which take some numbers of channels alone.

    >>> from levelhead_lab.lab.nets import build
    >>> most_stacked(build("resnet32", 10), 16, kernels=True)
    16
    >>> most_stacked(build("resnet18-64", 10), 16, kernels=True)
    1
    """
    # All of them, or one: a network is narrow enough for any number, or is alone.
    for runs in sorted({most, 1}, reverse=True):
        try:
            StackedNets(net, runs, torch.device("meta"), precision, kernels=kernels)
        except UnstackableError:
            continue
        return runs
    return 0
