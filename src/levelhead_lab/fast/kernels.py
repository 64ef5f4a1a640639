"""The GPU kernels of stacked training: convolution and batch norm of R networks at once, in Triton.

Activations are [R, B, H, W, C] in memory, one network (a *run*) after the other. Every kernel has
the run as its last grid axis and reads the weights of that run. cuDNN has no fast kernel for 16 to
64 channels, and none for R sets of weights.

A convolution is an implicit matrix product, one filter row at a time. With few channels, SPAN = 2
neighboring pixels are computed as one pixel with twice the outputs. The 4 pixels of a row that they
depend on are adjacent in memory and read once, as [TILE, 4 * inputs]; the weights [4 * inputs, 2 *
outputs] hold the filter at two places, and zeros elsewhere. PADDED is the number of input channels,
padded to a power of two. Sums are float32 and added in a fixed order: the same inputs give the same
bits. PRODUCTS says how float32 activations are multiplied: "tf32x3" makes a product that is float32
too of three tf32 products, "tf32" takes one.

`conv_norm` launches them, for a layer ``out = relu(norm(conv(x)) + residual)``, in this order:

- forward: `convolve_kernel` (y, and the sums of each channel), `norm_kernel` (mean, scale and shift
  of each channel), `apply_kernel` (out). In evaluation the first does all of it.
- backward: `gradient_sums_kernel`, `norm_gradient_kernel` and `apply_gradient_kernel` (from the
  gradient of out to that of y, gamma and beta), `weight_gradient_kernel` and `sum_splits_kernel`
  (of the filters), `convolve_kernel` with BACKWARD (of x).

In the kernels p are pixels or groups of SPAN pixels, n outputs, k inputs, o and c a channel of
them, i and j row and column of the filter. `pixels` are those of one run, B H W. Capitals are
constants for which a kernel is compiled; sizes that depend on the batch are not among them
(`do_not_specialize`), so that the last, partial batch of an epoch runs the same kernel. Every
address begins with the run as int64: R runs together may have more than 2^31 numbers.
"""

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]


@triton.jit
def _load_inputs(
    x, p, inside, i, j0,
    INPUTS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, GROUPS: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Load the inputs of filter row i from column j0 on, zeros outside the image: [groups, COLUMNS * PADDED].

    p are groups of SPAN pixels of the result, counted over all images of the run; a row has GROUPS.
    `inside` says which of them there are. A tile may reach past the end of the run: what it loads for
    those groups is 0, too.
    """
    # Each k is a column of the window and a channel in it.
    k = tl.arange(0, COLUMNS * PADDED)
    margin: tl.constexpr = (SIDE - 1) // 2
    # Where in the image the window of each group lies; partly outside of it on the border.
    row = (p // GROUPS) % OUT_HEIGHT * STRIDE + i - margin
    column = (p % GROUPS * (SPAN * STRIDE))[:, None] + (j0 + k // PADDED - margin)[None, :]
    mask = ((row >= 0) & (row < HEIGHT) & inside)[:, None] & (column >= 0) & (column < WIDTH)
    # Channels that are not there, and columns past the window, are zeros, too.
    if INPUTS < PADDED:
        mask = mask & (k % PADDED < INPUTS)[None, :]
    if (SIDE + SPAN - 1) % COLUMNS != 0:
        mask = mask & (j0 + k // PADDED < SIDE + SPAN - 1)[None, :]
    at = ((p // (GROUPS * OUT_HEIGHT) * HEIGHT + row) * WIDTH)[:, None] + column
    return tl.load(x + at * INPUTS + (k % PADDED)[None, :], mask=mask, other=0.0)


@triton.jit
def _load_filter(
    w, i, j0,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr, BACKWARD: tl.constexpr,
    COLUMNS: tl.constexpr, PADDED: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Load row i of the filter at SPAN places, zeros elsewhere: [COLUMNS * PADDED, SPAN * OUTPUTS].

    Input column j0 + (k // PADDED) meets pixel n // OUTPUTS of the group at the difference of the
    two. For a 3x3 filter and SPAN = 2, input columns 0 to 3 meet the first pixel at taps 0, 1, 2 and
    none, and the second at none, 0, 1 and 2.
    """
    n, k = tl.arange(0, SPAN * OUTPUTS), tl.arange(0, COLUMNS * PADDED)
    o, c = n % OUTPUTS, k % PADDED
    j = (
        j0 + (k // PADDED)[:, None] - (n // OUTPUTS)[None, :]
    )  # the filter column that takes input k to output n
    used = (j >= 0) & (j < SIDE) & (c < INPUTS)[:, None]
    if BACKWARD:  # weights [SIDE, SIDE, outputs, inputs] of this product; the filter is rotated by 180 degrees
        tap = i * SIDE + j if STRIDE == 2 else (SIDE - 1 - i) * SIDE + SIDE - 1 - j
        where = tap * (INPUTS * OUTPUTS) + o[None, :] * INPUTS + c[:, None]
    else:
        where = (i * SIDE + j) * (INPUTS * OUTPUTS) + c[:, None] * OUTPUTS + o[None, :]
    return tl.load(w + where, mask=used, other=0.0)


@triton.jit
def _load_step(
    x, p, inside, step,
    INPUTS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, BACKWARD: tl.constexpr,
    COLUMNS: tl.constexpr, PADDED: tl.constexpr, SPAN: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Load the inputs of one step of a product; a row of the filter has STEPS of them.

    The gradient of x is itself a convolution, with the filter rotated, of the gradient g. At stride
    2 it is one of a g with zeros between its pixels, which are not stored but masked: at a pixel of
    x, only the taps count whose distance to it is even.
    """
    if BACKWARD and STRIDE == 2:  # only where this weight of the filter met a pixel of x
        margin: tl.constexpr = (SIDE - 1) // 2
        row = (p // OUT_WIDTH) % OUT_HEIGHT + (margin - step // STEPS)
        column = p % OUT_WIDTH + (margin - step % STEPS)
        mask = inside & (row % 2 == 0) & (column % 2 == 0) & (row >= 0) & (column >= 0)
        row, column = row // 2, column // 2
        mask = mask & (row < HEIGHT) & (column < WIDTH)
        at = (p // (OUT_WIDTH * OUT_HEIGHT) * HEIGHT + row) * WIDTH + column
        k = tl.arange(0, COLUMNS * PADDED)
        return tl.load(x + (at * INPUTS)[:, None] + k[None, :], mask=mask[:, None], other=0.0)
    else:
        return _load_inputs(x, p, inside, step // STEPS, step % STEPS * COLUMNS, INPUTS, HEIGHT, WIDTH,
                            OUT_HEIGHT, OUT_WIDTH // SPAN, SIDE, STRIDE, COLUMNS, PADDED, SPAN)  # fmt: skip


@triton.jit(do_not_specialize=["pixels", "blocks"])
def convolve_kernel(
    x, w, y, partial, scale, shift, residual, pixels, w_stride, blocks,
    INPUTS: tl.constexpr, FILTER_INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, BACKWARD: tl.constexpr,
    COLUMNS: tl.constexpr, PADDED: tl.constexpr, SPAN: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
    STATISTICS: tl.constexpr, AFFINE: tl.constexpr, RESIDUAL: tl.constexpr, RELU: tl.constexpr, PRODUCTS: tl.constexpr,
    KEEP_FILTER: tl.constexpr,
):  # fmt: skip
    """Store y = conv(x, w), or with BACKWARD the gradient of its input, after the steps that the flags ask for.

    A program computes TILES tiles of TILE groups, one after the other, with a filter that it loads
    once (KEEP_FILTER), or step by step. The grid is [blocks, R].

    STATISTICS: store the sums of each channel and of its square over the program's pixels, in `partial`
        [R, 2, OUTPUTS, blocks].
    AFFINE, RESIDUAL and RELU: store relu(y * scale + shift + residual) in place of y.
    INPUTS are the channels of x, FILTER_INPUTS those of w, which may be fewer (padded images).
    """
    run = tl.program_id(1).to(tl.int64)
    count = pixels // SPAN  # groups of pixels of a run
    n = tl.arange(0, SPAN * OUTPUTS)
    o = n % OUTPUTS
    # To the images and the filter of this run.
    x += run * (pixels // (OUT_HEIGHT * OUT_WIDTH)) * (HEIGHT * WIDTH * INPUTS)
    w += run * w_stride
    STEPS: tl.constexpr = (SIDE + SPAN - 1 + COLUMNS - 1) // COLUMNS  # in a row of the filter
    # The whole filter in registers, as a tuple of its steps: loaded once for all tiles.
    filters = ()
    if KEEP_FILTER:
        for step in tl.static_range(SIDE * STEPS):
            filters = filters + (
                _load_filter(w, step // STEPS, step % STEPS * COLUMNS,
                             FILTER_INPUTS, OUTPUTS, SIDE, STRIDE, BACKWARD, COLUMNS, PADDED, SPAN),
            )  # fmt: skip
    sums, squares = (
        tl.zeros((TILE, SPAN * OUTPUTS), tl.float32),
        tl.zeros((TILE, SPAN * OUTPUTS), tl.float32),
    )
    for number in range(TILES):
        p = (tl.program_id(0) * TILES + number) * TILE + tl.arange(0, TILE)
        inside = p < count
        total = tl.zeros((TILE, SPAN * OUTPUTS), tl.float32)
        if KEEP_FILTER:
            for step in tl.static_range(SIDE * STEPS):
                tile = _load_step(x, p, inside, step, INPUTS, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH,
                                  SIDE, STRIDE, BACKWARD, COLUMNS, PADDED, SPAN, STEPS)  # fmt: skip
                total = tl.dot(tile, filters[step], total, input_precision=PRODUCTS)
        else:  # a loop that is not unrolled: the parts of all factors at once are more than there are registers
            for step in range(SIDE * STEPS):
                tile = _load_step(x, p, inside, step, INPUTS, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH,
                                  SIDE, STRIDE, BACKWARD, COLUMNS, PADDED, SPAN, STEPS)  # fmt: skip
                part = _load_filter(w, step // STEPS, step % STEPS * COLUMNS,
                                    FILTER_INPUTS, OUTPUTS, SIDE, STRIDE, BACKWARD, COLUMNS, PADDED, SPAN)  # fmt: skip
                total = tl.dot(tile, part, total, input_precision=PRODUCTS)
        # A group of SPAN pixels with OUTPUTS channels each lies in memory as one row of SPAN *
        # OUTPUTS.
        at = (run * count + p)[:, None] * (SPAN * OUTPUTS) + n[None, :]
        # Of the numbers as they are stored, rounded: these are what is normalized.
        if STATISTICS:
            stored = tl.where(inside[:, None], total.to(y.dtype.element_ty).to(tl.float32), 0.0)
            sums += stored
            squares += stored * stored
        if AFFINE:
            total = (
                total * tl.load(scale + run * OUTPUTS + o)[None, :]
                + tl.load(shift + run * OUTPUTS + o)[None, :]
            )
        if RESIDUAL:
            total += tl.load(residual + at, mask=inside[:, None], other=0.0).to(tl.float32)
        if RELU:
            total = tl.maximum(total, 0.0)
        tl.store(y + at, total.to(y.dtype.element_ty), mask=inside[:, None])
    # A column of `partial` for each program: added up later, in a fixed order, without atomics.
    if STATISTICS:
        block = (run * 2 * OUTPUTS + tl.arange(0, OUTPUTS)) * blocks + tl.program_id(0)
        tl.store(partial + block, tl.sum(tl.reshape(tl.sum(sums, 0), (SPAN, OUTPUTS)), 0))
        square = tl.sum(tl.reshape(tl.sum(squares, 0), (SPAN, OUTPUTS)), 0)
        tl.store(partial + block + OUTPUTS * blocks, square)


@triton.jit(do_not_specialize=["pixels", "splits", "per_split"])
def weight_gradient_kernel(
    x, g, partial, pixels, splits, per_split,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr,
    COLUMNS: tl.constexpr, PADDED: tl.constexpr, SPAN: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr,
    PRODUCTS: tl.constexpr,
):  # fmt: skip
    """Store x^T g over one split of the pixels, for ROWS filter rows: [COLUMNS * INPUTS, SPAN * OUTPUTS] each.

    A product with few rows and columns but all pixels between them: it is cut into `splits`, so
    that there is work for the whole GPU, and `sum_splits_kernel` adds what they find. With ROWS = 3
    a program reads g once for all rows of the filter. The grid is [splits * SIDE / ROWS, R].
    """
    split, first = tl.program_id(0) // (SIDE // ROWS), tl.program_id(0) % (SIDE // ROWS)
    run = tl.program_id(1).to(tl.int64)
    GROUPS: tl.constexpr = OUT_WIDTH // SPAN
    n, k, count = tl.arange(0, SPAN * OUTPUTS), tl.arange(0, COLUMNS * PADDED), pixels // SPAN
    x += run * (pixels // (OUT_HEIGHT * OUT_WIDTH)) * (HEIGHT * WIDTH * INPUTS)
    g += run * pixels * OUTPUTS
    # The sums of the first, second and third row of the filter; with ROWS = 1 only one is used.
    total = tl.zeros((COLUMNS * PADDED, SPAN * OUTPUTS), tl.float32)
    second, third = total, total
    for start in range(split * per_split, min((split + 1) * per_split, count), TILE):
        p = start + tl.arange(0, TILE)
        inside = p < count
        gradient = tl.load(
            g + p[:, None] * (SPAN * OUTPUTS) + n[None, :], mask=inside[:, None], other=0.0
        )
        tile = _load_inputs(x, p, inside, first, 0, INPUTS, HEIGHT, WIDTH, OUT_HEIGHT, GROUPS,
                            SIDE, STRIDE, COLUMNS, PADDED, SPAN)  # fmt: skip
        total = tl.dot(tl.trans(tile), gradient, total, input_precision=PRODUCTS)
        if ROWS == 3:
            tile = _load_inputs(x, p, inside, 1, 0, INPUTS, HEIGHT, WIDTH, OUT_HEIGHT, GROUPS,
                                SIDE, STRIDE, COLUMNS, PADDED, SPAN)  # fmt: skip
            second = tl.dot(tl.trans(tile), gradient, second, input_precision=PRODUCTS)
            tile = _load_inputs(x, p, inside, 2, 0, INPUTS, HEIGHT, WIDTH, OUT_HEIGHT, GROUPS,
                                SIDE, STRIDE, COLUMNS, PADDED, SPAN)  # fmt: skip
            third = tl.dot(tl.trans(tile), gradient, third, input_precision=PRODUCTS)
    # Stored without the padding of channels.
    row: tl.constexpr = COLUMNS * INPUTS * SPAN * OUTPUTS
    where = (k // PADDED * INPUTS + k % PADDED)[:, None] * (SPAN * OUTPUTS) + n[None, :]
    at = partial + ((run * splits + split) * SIDE + first) * row + where
    used = (k % PADDED < INPUTS)[:, None]
    tl.store(at, total, mask=used)
    if ROWS == 3:
        tl.store(at + row, second, mask=used)
        tl.store(at + 2 * row, third, mask=used)


@triton.jit(do_not_specialize=["splits"])
def sum_splits_kernel(
    partial, gradient, splits,
    INPUTS: tl.constexpr, FILTER_INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, SIDE: tl.constexpr,
    COLUMNS: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the gradient of a weight, [SIDE, SIDE, FILTER_INPUTS, OUTPUTS], from what each split found.

    `partial` is [R, splits, SIDE, COLUMNS, INPUTS, SPAN, OUTPUTS]. Column j of the inputs meets
    column j - q of the filter at pixel q of a group; so a weight's gradient is a sum over q, too.
    """
    run = tl.program_id(1).to(tl.int64)
    size: tl.constexpr = SIDE * SIDE * FILTER_INPUTS * OUTPUTS
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    o, c, tap = n % OUTPUTS, n // OUTPUTS % FILTER_INPUTS, n // (OUTPUTS * FILTER_INPUTS)
    # At pixel 0 of a group; pixel q has the same weight a column and a pixel further, for each q.
    place = ((tap // SIDE * COLUMNS + tap % SIDE) * INPUTS + c) * (SPAN * OUTPUTS) + o
    total = tl.zeros((BLOCK,), tl.float32)
    for split in range(splits):
        at = partial + (run * splits + split) * (SIDE * COLUMNS * INPUTS * SPAN * OUTPUTS) + place
        for q in tl.static_range(SPAN):
            total += tl.load(at + q * (INPUTS * SPAN + 1) * OUTPUTS, mask=n < size, other=0.0)
    tl.store(gradient + run * size + n, total, mask=n < size)


@triton.jit(do_not_specialize=["pixels", "blocks"])
def statistics_kernel(
    y, partial, pixels, blocks, CHANNELS: tl.constexpr, PIXELS: tl.constexpr, TILES: tl.constexpr
):  # fmt: skip
    """Store the sums per channel of y and of its squares, for `norm_kernel`: [R, 2, CHANNELS, blocks].

    For convolutions of cuDNN, which do not sum on the way as `convolve_kernel` does. A program adds
    TILES tiles of PIXELS pixels; the grid is [blocks, R].
    """
    run = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, CHANNELS)
    total = tl.zeros((PIXELS, CHANNELS), tl.float32)
    square = tl.zeros((PIXELS, CHANNELS), tl.float32)
    for tile in tl.static_range(TILES):
        p = (tl.program_id(0) * TILES + tile) * PIXELS + tl.arange(0, PIXELS)
        at = (run * pixels + p)[:, None] * CHANNELS + c[None, :]
        value = tl.load(y + at, mask=(p < pixels)[:, None], other=0.0).to(tl.float32)
        total += value
        square += value * value
    block = (run * 2 * CHANNELS + c) * blocks + tl.program_id(0)
    tl.store(partial + block, tl.sum(total, 0))
    tl.store(partial + block + CHANNELS * blocks, tl.sum(square, 0))


@triton.jit(do_not_specialize=["n", "blocks"])
def norm_kernel(
    partial, gamma, beta, running_mean, running_var, mean, inverse, scale, shift,
    n, blocks, rows_stride, statistics_stride, eps, momentum,
    CHANNELS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Store the batch-norm statistics of one channel of one run, from the sums that the convolution stored.

    scale and shift, [R, CHANNELS], are such that
    ``gamma (y - mean) / std + beta = y scale + shift``. mean and inverse = 1 / std are kept for the
    backward pass. n is the number of pixels. The running variance is the unbiased one, of n - 1, as
    torch's is.
    """
    c, run = tl.program_id(0), tl.program_id(1).to(tl.int64)
    total, square = tl.zeros((BLOCKS,), tl.float32), tl.zeros((BLOCKS,), tl.float32)
    base = partial + (run * 2 * CHANNELS + c) * blocks
    for start in range(0, blocks, BLOCKS):
        b = start + tl.arange(0, BLOCKS)
        total += tl.load(base + b, mask=b < blocks, other=0.0)
        square += tl.load(base + CHANNELS * blocks + b, mask=b < blocks, other=0.0)
    # Var = E[y^2] - E[y]^2, which rounding could make negative.
    mu = tl.sum(total, 0) / n
    variance = tl.maximum(tl.sum(square, 0) / n - mu * mu, 0.0)
    inv = 1.0 / tl.sqrt(variance + eps)
    a = tl.load(gamma + run * rows_stride + c) * inv
    at = run * CHANNELS + c
    tl.store(mean + at, mu)
    tl.store(inverse + at, inv)
    tl.store(scale + at, a)
    tl.store(shift + at, tl.load(beta + run * rows_stride + c) - mu * a)
    # The running statistics lie in the rows of `NetRows.statistics`, and are updated there.
    old = run * statistics_stride + c
    tl.store(running_mean + old, (1 - momentum) * tl.load(running_mean + old) + momentum * mu)
    tl.store(
        running_var + old,
        (1 - momentum) * tl.load(running_var + old) + momentum * variance * (n / (n - 1)),
    )


@triton.jit(do_not_specialize=["pixels"])
def apply_kernel(
    y, scale, shift, residual, out, pixels,
    CHANNELS: tl.constexpr, PIXELS: tl.constexpr, RESIDUAL: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Store out = relu(y * scale + shift + residual), computed in float32.

    y, residual and out are [R, pixels, CHANNELS], scale and shift [R, CHANNELS]. A program has PIXELS
    pixels; the grid is [pixels / PIXELS, R].
    """
    run = tl.program_id(1).to(tl.int64)
    p, c = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS), tl.arange(0, CHANNELS)
    at = (run * pixels + p)[:, None] * CHANNELS + c[None, :]
    inside = (p < pixels)[:, None]
    value = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    value = (
        value * tl.load(scale + run * CHANNELS + c)[None, :]
        + tl.load(shift + run * CHANNELS + c)[None, :]
    )
    if RESIDUAL:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["pixels", "blocks"])
def gradient_sums_kernel(
    g, other, out, y, mean, scale, shift, masked, partial, pixels, blocks,
    CHANNELS: tl.constexpr, PIXELS: tl.constexpr, TILES: tl.constexpr, RELU: tl.constexpr, OTHER: tl.constexpr,
    RESIDUAL: tl.constexpr,
):  # fmt: skip
    """Store the sums per channel of g' and of g' (y - mean), where g' is g where relu was above 0, and 0 elsewhere.

    OTHER adds the gradient of a second reader to g. Without a RESIDUAL, y tells where relu was
    above 0, so `out` need not be read. With either of them, g' is stored in `masked`, too: with the
    residual it is also the gradient of that, and a sum of two is not to be computed again.
    """
    run = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, CHANNELS)
    per = run * CHANNELS + c
    mu, factor, offset = (
        tl.load(mean + per)[None, :],
        tl.load(scale + per)[None, :],
        tl.load(shift + per)[None, :],
    )
    total, product = (
        tl.zeros((PIXELS, CHANNELS), tl.float32),
        tl.zeros((PIXELS, CHANNELS), tl.float32),
    )
    for tile in tl.static_range(TILES):
        p = (tl.program_id(0) * TILES + tile) * PIXELS + tl.arange(0, PIXELS)
        at = (run * pixels + p)[:, None] * CHANNELS + c[None, :]
        inside = (p < pixels)[:, None]
        gradient = tl.load(g + at, mask=inside, other=0.0)
        before = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
        if OTHER:
            more = tl.load(other + at, mask=inside, other=0.0)
            gradient = (gradient.to(tl.float32) + more.to(tl.float32)).to(masked.dtype.element_ty)
        if RELU:
            if RESIDUAL:
                above = tl.load(out + at, mask=inside, other=0.0) > 0
            else:
                above = before * factor + offset > 0
            gradient = tl.where(above, gradient, 0.0)
        if OTHER or RESIDUAL:
            tl.store(masked + at, gradient, mask=inside)
        gradient = gradient.to(tl.float32)
        total += gradient
        product += gradient * (before - mu)
    block = (run * 2 * CHANNELS + c) * blocks + tl.program_id(0)
    tl.store(partial + block, tl.sum(total, 0))
    tl.store(partial + block + CHANNELS * blocks, tl.sum(product, 0))


@triton.jit(do_not_specialize=["n", "blocks"])
def norm_gradient_kernel(
    partial, mean, inverse, scale, gamma_gradient, beta_gradient, a, b, n, blocks,
    CHANNELS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Store the gradients of gamma and beta, and a and b such that the gradient of y is scale g' + a y + b.

    With h = (y - mean) / std, that of y is ``scale (g' - mean(g') - h mean(g' h))``; a and b
    collect what y and the constant are multiplied by.
    """
    c, run = tl.program_id(0), tl.program_id(1).to(tl.int64)
    total, product = tl.zeros((BLOCKS,), tl.float32), tl.zeros((BLOCKS,), tl.float32)
    base = partial + (run * 2 * CHANNELS + c) * blocks
    for start in range(0, blocks, BLOCKS):
        block = start + tl.arange(0, BLOCKS)
        total += tl.load(base + block, mask=block < blocks, other=0.0)
        product += tl.load(base + CHANNELS * blocks + block, mask=block < blocks, other=0.0)
    at = run * CHANNELS + c
    inv, factor = tl.load(inverse + at), tl.load(scale + at)
    sum_g, sum_gy = tl.sum(total, 0), tl.sum(product, 0)
    slope = -factor * inv * inv * sum_gy / n
    tl.store(beta_gradient + at, sum_g)
    tl.store(gamma_gradient + at, sum_gy * inv)
    tl.store(a + at, slope)
    tl.store(b + at, -factor * sum_g / n - slope * tl.load(mean + at))


@triton.jit(do_not_specialize=["pixels"])
def apply_gradient_kernel(
    g, y, scale, shift, a, b, gradient, pixels,
    CHANNELS: tl.constexpr, PIXELS: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Store the gradient of y: scale g' + a y + b; with RELU, g' is made of g here.

    g, y and gradient are [R, pixels, CHANNELS]; scale, shift, a and b [R, CHANNELS], of which shift is
    read with RELU alone. The grid is that of `apply_kernel`.
    """
    run = tl.program_id(1).to(tl.int64)
    p, c = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS), tl.arange(0, CHANNELS)
    at = (run * pixels + p)[:, None] * CHANNELS + c[None, :]
    inside = (p < pixels)[:, None]
    per = run * CHANNELS + c
    value = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    before, factor = (
        tl.load(y + at, mask=inside, other=0.0).to(tl.float32),
        tl.load(scale + per)[None, :],
    )
    if RELU:
        value = tl.where(before * factor + tl.load(shift + per)[None, :] > 0, value, 0.0)
    value = value * factor + before * tl.load(a + per)[None, :] + tl.load(b + per)[None, :]
    tl.store(gradient + at, value.to(gradient.dtype.element_ty), mask=inside)
