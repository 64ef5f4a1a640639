"""The convolutions of one wide network by cuDNN, which is near the peak of a GPU from 128 channels on.

What a convolution of `conv_norm` does on the way, to sum its result or to normalize it, is a pass
of its own here. How float32 is multiplied (`products`) is decided by torch's settings.

`conv_norm.FusedConvNorm` calls either module by the same names. A single run has an axis of 1 in
front, [1, B, H, W, C], so that the kernels of batch norm need not know of it; torch gets the same
memory under the names of its channels-last format.
"""

# pyright: reportIndexIssue=false, reportCallIssue=false
import torch
import torch.nn.functional as F
import triton  # type: ignore[import-not-found]
from torch import Tensor

from . import kernels

SUMMED_TILES = 4  # that a program of `statistics_kernel` adds, one after the other


class CudnnConvolutions:
    """The functions of the module `conv_norm`, for a single run, with filters [1, C', k, k, C].

    That order of axes is `NetRows.filter_axes`: torch's [C', C, k, k] in channels-last memory.
    """

    @staticmethod
    def convolve(
        x: Tensor, filters: Tensor, *, stride: int, products: str = "", statistics: bool = False,
        affine: tuple[Tensor, Tensor] | None = None, residual: Tensor | None = None, relu: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Convolve x [1, B, H, W, C]; for the options see `conv_norm.convolve`."""
        side = filters.shape[2]
        convolved = F.conv2d(
            _channels_first(x),
            _channels_first(_padded(filters, x.shape[4])),
            stride=stride,
            padding=side // 2,
        )
        y = _channels_last(convolved)
        if affine is not None:
            y = _normalized(y, *affine, residual, relu=relu)
        return y, _sums(y) if statistics else y.new_empty(0)

    @staticmethod
    def input_gradient(
        g: Tensor, filters: Tensor, shape: torch.Size, *, stride: int, products: str = ""
    ) -> Tensor:
        """Return the gradient of `convolve`'s x, of that shape, from g [1, B, H', W', C'].

        x itself is not read: an empty tensor of its shape stands in for it.
        """
        return _gradients(g, g.new_empty(shape), filters, stride, of_input=True)

    @staticmethod
    def weight_gradient(
        x: Tensor, g: Tensor, *, shape: torch.Size, stride: int, products: str = ""
    ) -> Tensor:
        """Return the gradient of `convolve`'s filters, of that shape, in float32.

        Args:
            x: what was convolved, [1, B, H, W, C]; channels that the filters lack are 0.
            g: the gradient of the result, [1, B, H', W', C'].
            shape: of the filters.
            stride: of the convolution.
            products: decided by torch's settings, and not read.
        """
        like_filters = _padded(g.new_empty(shape), x.shape[4])
        gradient = _gradients(g, x, like_filters, stride, of_input=False)
        return gradient[..., : shape[4]].float()


def _gradients(g: Tensor, x: Tensor, filters: Tensor, stride: int, *, of_input: bool) -> Tensor:
    """Return the gradient of x or else of the filters.

    Of the one that is asked for, only the shape is read. One at a time, because that of the filters
    is computed on another stream.

    Args:
        g: the gradient of the result, [1, B, H', W', C'].
        x: [1, B, H, W, C].
        filters: [1, C', k, k, C], with as many input channels as x.
        stride: of the convolution.
        of_input: whether the gradient of x is asked for.
    """
    margin = filters.shape[2] // 2
    of_x, of_filters, _ = torch.ops.aten.convolution_backward(
        *map(_channels_first, (g, x, filters)),
        bias_sizes=None,
        stride=[stride] * 2,
        padding=[margin] * 2,
        dilation=[1, 1],
        transposed=False,
        output_padding=[0, 0],
        groups=1,
        output_mask=[of_input, not of_input, False],
    )
    if of_input:
        return _channels_last(of_x)
    return _channels_last(of_filters)


def _sums(y: Tensor) -> Tensor:
    """Return the sums of every channel and of its square, part by part: [1, 2, C', parts].

    As `conv_norm.convolve` does with `statistics`, so that `norm_kernel` takes either.
    """
    channels = y.shape[4]
    pixels = y[0, ..., 0].numel()
    tile = max(1, 4096 // channels)
    blocks = triton.cdiv(pixels, tile * SUMMED_TILES)
    partial = torch.empty(1, 2, channels, blocks, device=y.device)
    kernels.statistics_kernel[(blocks, 1)](
        y, partial, pixels, blocks, CHANNELS=channels, PIXELS=tile, TILES=SUMMED_TILES, num_warps=4
    )
    return partial


def _normalized(
    y: Tensor, scale: Tensor, shift: Tensor, residual: Tensor | None, *, relu: bool
) -> Tensor:
    """Return ``relu(y * scale + shift + residual)`` of y [1, B, H, W, C]; for evaluation.

    Args:
        y: the result of a convolution.
        scale, shift: [1, C], batch norm by its running statistics.
        residual: of the shape of y, or None.
        relu: whether to take max(0, ...) in the end.
    """
    out = torch.empty_like(y)
    channels = y.shape[4]
    pixels = y[0, ..., 0].numel()
    tile = max(1, 4096 // channels)
    kernels.apply_kernel[(triton.cdiv(pixels, tile), 1)](
        y, scale, shift, y if residual is None else residual, out, pixels,
        CHANNELS=channels, PIXELS=tile, RESIDUAL=residual is not None, RELU=relu, num_warps=4,
    )  # fmt: skip
    return out


def _padded(filters: Tensor, inputs: int) -> Tensor:
    """Return the filters with zeros for the channels that images were padded with.

    cuDNN needs as many channels in the filters as in x; the kernels of `conv_norm` do not.
    """
    spare = inputs - filters.shape[4]
    return F.pad(filters, (0, spare)) if spare else filters


def _channels_first(x: Tensor) -> Tensor:
    """Return [1, B, H, W, C] as torch names it, [B, C, H, W], with the same memory."""
    return x[0].permute(0, 3, 1, 2)


def _channels_last(x: Tensor) -> Tensor:
    """Return torch's [B, C, H, W] as [1, B, H, W, C], contiguous, as the kernels read it."""
    return x.permute(0, 2, 3, 1).contiguous()[None]
