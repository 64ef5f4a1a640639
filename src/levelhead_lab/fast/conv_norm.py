"""Convolution and batch norm of R networks at once, forward and backward: the kernels' launches.

`convolve`, `input_gradient` and `weight_gradient` are the three products of a convolution, each for
all runs; `CudnnConvolutions` has the same three for one wide network. `FusedConvNorm` puts them
together with batch norm, residual and relu as one node of autograd, so that nothing between them is
stored twice. How large a tile of the result a program computes is measured, for every number of
channels, and listed in the tables below.
"""

# pyright: reportIndexIssue=false, reportCallIssue=false
from functools import partial as bind
from typing import NamedTuple

import torch
import triton  # type: ignore[import-not-found]
from torch import Tensor

from . import kernels


class Tile(NamedTuple):
    """The work of one program of a kernel; all of it changes the time, none of it the result.

    (But for the order in which sums are added, and so their last bits.)
    """

    size: int  # groups of pixels in a tile
    span: int  # pixels in a group, computed as one pixel with more outputs
    warps: int
    tiles: int = 1  # of a convolution, one after the other
    rows: int = 1  # of the filter, of a weight gradient
    stages: int = 1  # of the pipeline of loads
    keep: bool = True  # whether a convolution keeps its whole filter, or loads it step by step


class Tiles(NamedTuple):
    """The tiles of the three products of a layer, by input channels of the product.

    4 are those of images: RGB, and a channel of zeros. The gradient of images is not needed.
    """

    forward: dict[int, Tile]
    backward: dict[int, Tile]  # whose inputs are the outputs of the layer
    weight: dict[int, Tile]


# The fastest on an H200 (bench/paper/tiles.py), but for a second where it needs half the memory.
TILES = Tiles(
    forward={
        4: Tile(128, 2, 4, tiles=4, stages=2),
        16: Tile(64, 2, 4, tiles=4),
        32: Tile(64, 2, 4, tiles=4),
        64: Tile(128, 1, 4, tiles=4),
    },
    backward={
        16: Tile(128, 2, 8, tiles=4),
        32: Tile(128, 2, 8, tiles=4),
        64: Tile(128, 1, 8, tiles=4),
    },
    weight={
        4: Tile(128, 2, 4, rows=3, stages=3),
        16: Tile(64, 2, 4, rows=3, stages=3),
        32: Tile(32, 1, 4, rows=3, stages=3),
        64: Tile(128, 1, 4),
    },
)
# Numbers of float32 take twice the memory: more warps, and pixels one by one.
TF32_TILES = Tiles(
    forward={
        4: Tile(128, 2, 4, tiles=4),
        16: Tile(128, 2, 8, tiles=4),
        32: Tile(128, 1, 8, tiles=4),
        64: Tile(128, 1, 8, stages=3, keep=False),
    },
    backward={
        16: Tile(128, 2, 8, tiles=4),
        32: Tile(128, 1, 8, tiles=4),
        64: Tile(128, 1, 8, stages=3, keep=False),
    },
    weight={
        4: Tile(64, 2, 4, rows=3),
        16: Tile(64, 2, 4, rows=3),
        32: Tile(32, 1, 4, rows=3),
        64: Tile(64, 1, 8),
    },
)
# Three products for one split each factor in two, which takes twice the registers.
FLOAT32_TILES = Tiles(
    forward={
        4: Tile(128, 2, 8, keep=False),
        16: Tile(128, 2, 8, stages=3, keep=False),
        32: Tile(128, 1, 8, stages=3, keep=False),
        64: Tile(128, 1, 8, stages=3, keep=False),
    },
    backward={
        16: Tile(128, 2, 8, stages=3, keep=False),
        32: Tile(128, 1, 8, stages=3, keep=False),
        64: Tile(128, 1, 8, stages=3, keep=False),
    },
    weight={
        4: Tile(64, 2, 4, rows=3),
        16: Tile(32, 2, 4, rows=3),
        32: Tile(32, 1, 8, rows=3),
        64: Tile(32, 1, 8),
    },
)
# Programs that share the pixels of a weight gradient, over all runs: 132 multiprocessors of an
# H200, times two or four.
PROGRAMS = {4: 528, 16: 264, 32: 264, 64: 264}


def convolve(
    x: Tensor, weight: Tensor, *, stride: int, products: str = "tf32x3", statistics: bool = False,
    affine: tuple[Tensor, Tensor] | None = None, residual: Tensor | None = None, relu: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Convolve x of each run with its own weights, padded to keep the size (divided by the stride).

    Args:
        x: [R, B, H, W, C], contiguous. It may have more channels than the weight, if they are 0: 4
            are read faster than 3.
        weight: [R, k, k, C, C'], contiguous except for its first stride: a view of the rows of
            `NetRows`, which is not copied.
        stride: 1 or 2.
        products: how float32 is multiplied, see `Precision`.
        statistics: also sum every channel and its square, tile by tile.
        affine: (scale, shift), each [R, C'], applied to the result before it is stored.
        residual: [R, B, H', W', C'], added after that.
        relu: whether to take max(0, ...) in the end.

    Returns:
        The result [R, B, H', W', C'], in the dtype of x; and the sums [R, 2, C', tiles], which are
        empty without `statistics`.
    """
    runs, batch, height, width, inputs = x.shape
    side = weight.shape[1]
    outputs = weight.shape[4]
    y = x.new_empty(runs, batch, -(-height // stride), -(-width // stride), outputs)
    tile = _fit(_tiles(x.dtype, products).forward[_kind(inputs)], side, stride, width)
    pixels = y[0, ..., 0].numel()
    blocks = triton.cdiv(pixels, tile.size * tile.span * tile.tiles)
    partial = torch.empty(runs, 2, outputs, blocks if statistics else 0, device=x.device)
    scale, shift = affine or (partial, partial)
    kernels.convolve_kernel[(blocks, runs)](
        x, weight, y, partial, scale, shift, y if residual is None else residual, pixels, weight.stride(0), blocks,
        INPUTS=inputs, FILTER_INPUTS=weight.shape[3], OUTPUTS=outputs,
        HEIGHT=height, WIDTH=width, OUT_HEIGHT=y.shape[2], OUT_WIDTH=y.shape[3],
        SIDE=side, STRIDE=stride, BACKWARD=False, COLUMNS=2 * tile.span if tile.span > 1 else 1,
        PADDED=_padded(inputs, tile.span), SPAN=tile.span, TILE=tile.size, TILES=tile.tiles, STATISTICS=statistics,
        AFFINE=affine is not None, RESIDUAL=residual is not None, RELU=relu, PRODUCTS=products,
        KEEP_FILTER=tile.keep, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return y, partial


def input_gradient(
    g: Tensor, weight: Tensor, shape: torch.Size, *, stride: int, products: str = "tf32x3"
) -> Tensor:
    """Return the gradient of `convolve`'s x, of that shape, from g [R, B, H', W', C'].

    The same kernel, with the roles of the channels changed: the inputs of this product are the
    outputs of the layer. What the flags would read is given as `out`, which nobody reads.

    Args:
        g: the gradient of `convolve`'s result, contiguous.
        weight: as of `convolve`; the kernel rotates it by itself.
        shape: [R, B, H, W, C], of x.
        stride, products: as of `convolve`.
    """
    runs, _, height, width, inputs = g.shape
    side = weight.shape[1]
    outputs = weight.shape[3]
    out = g.new_empty(shape)
    tile = _fit(_tiles(g.dtype, products).backward[inputs], side, stride, shape[3])
    pixels = out[0, ..., 0].numel()
    blocks = triton.cdiv(pixels, tile.size * tile.span * tile.tiles)
    kernels.convolve_kernel[(blocks, runs)](
        g, weight, out, out, out, out, out, pixels, weight.stride(0), blocks,
        INPUTS=inputs, FILTER_INPUTS=inputs, OUTPUTS=outputs,
        HEIGHT=height, WIDTH=width, OUT_HEIGHT=shape[2], OUT_WIDTH=shape[3],
        SIDE=side, STRIDE=stride, BACKWARD=True, COLUMNS=2 * tile.span if tile.span > 1 else 1,
        PADDED=_padded(inputs, tile.span), SPAN=tile.span, TILE=tile.size, TILES=tile.tiles,
        STATISTICS=False, AFFINE=False, RESIDUAL=False, RELU=False, PRODUCTS=products,
        KEEP_FILTER=tile.keep, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def weight_gradient(
    x: Tensor, g: Tensor, *, shape: torch.Size, stride: int, products: str = "tf32x3"
) -> Tensor:
    """Return the gradient of `convolve`'s weight, of that shape, [R, k, k, C, C'], in float32.

    Pixels are shared by as many programs as the GPU runs at once (`PROGRAMS`), but none has fewer
    than four tiles; their sums are added in a second kernel, in a fixed order.

    Args:
        x: what was convolved, [R, B, H, W, C].
        g: the gradient of the result, [R, B, H', W', C'].
        shape: of the weight; it may have fewer input channels than x, if those of x are 0.
        stride, products: as of `convolve`.
    """
    runs, _, height, width, inputs = x.shape
    side = shape[1]
    outputs = shape[4]
    kind = _kind(inputs)
    pixels = g[0, ..., 0].numel()
    tile = _fit(_tiles(x.dtype, products).weight[kind], side, stride, width)
    columns = 4 if side == 3 else 1
    rows = tile.rows if side == 3 else 1
    count = pixels // tile.span
    splits = max(1, min(triton.cdiv(count, 4 * tile.size), PROGRAMS[kind] * rows // (runs * side)))
    per_split = triton.cdiv(triton.cdiv(count, splits), tile.size) * tile.size
    splits = triton.cdiv(count, per_split)
    partial = torch.empty(runs, splits, side, columns, inputs, tile.span, outputs, device=x.device)
    kernels.weight_gradient_kernel[(splits * (side // rows), runs)](
        x, g, partial, pixels, splits, per_split,
        INPUTS=inputs, OUTPUTS=outputs, HEIGHT=height, WIDTH=width, OUT_HEIGHT=g.shape[2], OUT_WIDTH=g.shape[3],
        SIDE=side, STRIDE=stride, COLUMNS=columns, PADDED=_padded(inputs, columns // 2),
        SPAN=tile.span, TILE=tile.size, ROWS=rows, PRODUCTS=products, num_warps=tile.warps,
        num_stages=tile.stages,
    )  # fmt: skip
    gradient = torch.empty(shape, device=x.device)
    kernels.sum_splits_kernel[(triton.cdiv(gradient[0].numel(), 256), runs)](
        partial, gradient, splits, INPUTS=inputs, FILTER_INPUTS=shape[3], OUTPUTS=outputs, SIDE=side,
        COLUMNS=columns, SPAN=tile.span, BLOCK=256, num_warps=4,
    )  # fmt: skip
    return gradient


def _tiles(dtype: torch.dtype, products: str) -> Tiles:
    """Return the tiles for activations of a dtype; products matter for float32 alone.

    Args:
        dtype: of activations, of at most 32 bits.
        products: `tf32` or `tf32x3`, see `Precision`.
    """
    if dtype == torch.float32:
        return {"tf32": TF32_TILES, "tf32x3": FLOAT32_TILES}[products]
    return TILES


def _fit(tile: Tile, side: int, stride: int, width: int) -> Tile:
    """Return a tile that fits: groups of 2 pixels need even rows and 3x3 filters of stride 1.

    Elsewhere a program has one tile, of as many pixels, one by one.

    Args:
        tile: as the tables have it.
        side: of the filter.
        stride: of the convolution.
        width: of an image, in pixels.
    """
    fits = side == 3 and stride == 1 and width % 2 == 0
    if fits:
        return tile
    return tile._replace(size=tile.size * tile.span, span=1, tiles=1)


def _kind(inputs: int) -> int:
    """Return the number of channels whose tiles are taken: those of 16 for one without its own."""
    return inputs if inputs in TILES.forward else 16


def _padded(inputs: int, span: int) -> int:
    """Return the input channels that a product takes: a power of two, at least 16 with the pixels beside.

    `tl.dot` takes no less than 16. A group of 2 pixels reads 4 columns of inputs, so that 4 channels
    of each are enough.
    """
    return max(4 if span == 2 else 16, triton.next_power_of_2(inputs))


class FusedConvNorm(torch.autograd.Function):
    """``out = relu(norm(conv(x)) + residual)`` in training, twice: the gradients of two readers are added here.

    A residual block reads its input twice, by its first convolution and by its shortcut. Autograd
    would add the two gradients in a pass of its own; here they come one by one, and the kernel that
    reads them anyway adds them. So `forward` returns the same tensor twice, and `backward` gets g
    and other.

    Arguments that no gradient is returned for: `cast_filters` is `weight` in the format of
    activations, which is what is convolved; `side_stream` runs the gradient of the filters beside
    the rest; `convolutions` are the functions of this module, or `CudnnConvolutions`. The running
    statistics are updated in place.
    """

    @staticmethod
    def forward(
        ctx, x, residual, weight, gamma, beta, running_mean, running_var, cast_filters, stride, relu, eps, momentum,
        products, side_stream, convolutions,
    ):  # fmt: skip
        """Return relu(norm(conv(x)) + residual), [R, B, H', W', C'], twice.

        x, residual and weight are as of `convolve`; gamma, beta and the running statistics are [R, C'],
        each a view of the rows, `eps` and `momentum` those of batch norm.
        """
        y, partial = convolutions.convolve(
            x, cast_filters, stride=stride, products=products, statistics=True
        )
        runs = len(y)
        channels = y.shape[4]
        pixels = y[0, ..., 0].numel()
        blocks = partial.shape[3]
        # Batch norm as a scale and a shift of each channel, from the sums of the convolution.
        mean, inverse, scale, shift = torch.empty(4, runs, channels, device=x.device)
        kernels.norm_kernel[(channels, runs)](
            partial, gamma, beta, running_mean, running_var, mean, inverse, scale, shift,
            pixels, blocks, gamma.stride(0), running_mean.stride(0), eps, momentum,
            CHANNELS=channels, BLOCKS=min(1024, triton.next_power_of_2(blocks)), num_warps=4,
        )  # fmt: skip
        out = torch.empty_like(y)
        tile = 4096 // channels
        kernels.apply_kernel[(triton.cdiv(pixels, tile), runs)](
            y, scale, shift, y if residual is None else residual, out, pixels,
            CHANNELS=channels, PIXELS=tile, RESIDUAL=residual is not None, RELU=relu, num_warps=4,
        )  # fmt: skip
        # Where relu was above 0 is told by y, unless a residual was added: then `out` is kept, too.
        ctx.save_for_backward(
            x, cast_filters, y, out if residual is not None else None, mean, inverse, scale, shift
        )
        ctx.stride = stride
        ctx.relu = relu
        ctx.residual = residual is not None
        ctx.side_stream = side_stream
        ctx.products = products
        ctx.convolutions = convolutions
        ctx.set_materialize_grads(False)
        return out, out.view_as(out)

    @staticmethod
    def backward(ctx, g, other):  # type: ignore[override]
        """Return the gradients of x, residual, weight, gamma and beta, then None for every other argument.

        g and other are those of the two results, each [R, B, H', W', C'] or None where nobody read it.
        Batch norm takes three passes: sums over the pixels of each channel, from these a few numbers per
        channel, and with them the gradient of y.
        """
        x, cast_filters, y, out, mean, inverse, scale, shift = ctx.saved_tensors
        if g is None:  # only the second was read
            g, other = other, None
        g = g.contiguous()
        other = None if other is None else other.contiguous()
        runs = len(y)
        channels = y.shape[4]
        pixels = y[0, ..., 0].numel()
        relu = ctx.relu
        # Whether g, masked by relu, is written to memory; else both kernels mask it as they read
        # it.
        stored = ctx.residual or other is not None
        tile = 2048 // channels
        tiles = 4
        blocks = triton.cdiv(pixels, tile * tiles)
        partial = torch.empty(runs, 2, channels, blocks, device=g.device)
        masked = torch.empty_like(g) if stored else g
        kernels.gradient_sums_kernel[(blocks, runs)](
            g, g if other is None else other, out if ctx.residual else g, y, mean, scale, shift, masked, partial,
            pixels, blocks, CHANNELS=channels, PIXELS=tile, TILES=tiles, RELU=relu, OTHER=other is not None,
            RESIDUAL=ctx.residual, num_warps=4,
        )  # fmt: skip
        # From the sums, what the gradient of y is made of: scale g' + a y + b.
        gamma_gradient, beta_gradient, a, b = torch.empty(4, runs, channels, device=g.device)
        kernels.norm_gradient_kernel[(channels, runs)](
            partial, mean, inverse, scale, gamma_gradient, beta_gradient, a, b, pixels, blocks,
            CHANNELS=channels, BLOCKS=min(1024, triton.next_power_of_2(blocks)), num_warps=4,
        )  # fmt: skip
        gradient = torch.empty_like(y)
        tile = 4096 // channels
        kernels.apply_gradient_kernel[(triton.cdiv(pixels, tile), runs)](
            masked, y, scale, shift, a, b, gradient, pixels,
            CHANNELS=channels, PIXELS=tile, RELU=relu and not stored, num_warps=4,
        )  # fmt: skip
        # The gradient of the filters is not needed before the end of the step: it goes beside the
        # rest.
        how = {"stride": ctx.stride, "products": ctx.products}
        weight_grad = ctx.side_stream(
            bind(ctx.convolutions.weight_gradient, shape=cast_filters.shape, **how), x, gradient
        )
        x_grad = None
        if ctx.needs_input_grad[0]:
            x_grad = ctx.convolutions.input_gradient(gradient, cast_filters, x.shape, **how)
        return (
            x_grad,
            masked if ctx.residual else None,
            weight_grad,
            gamma_gradient,
            beta_gradient,
            *[None] * 10,
        )
