"""The kernels of stacked convolution and batch norm against torch in float64; run by test_fit_many.py.

check_kernels.py [PRECISION ...]: all of them if none is named
"""

import itertools
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

import torch
import torch.nn.functional as F

from levelhead_lab.fast import conv_norm, stacked
from levelhead_lab.fast.precision import PRECISIONS
from levelhead_lab.lab import nets

torch.backends.cudnn.allow_tf32 = False  # what torch finds is the truth here
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"  # the interpreter is slow
FARTHEST = {"float32": 2e-6, "tf32": 2e-3, "float16": 2e-3} | (
    {"bfloat16": 1.5e-2} if LARGE else {}
)  # or has none


def reference(x, residual, w, gamma, beta, mean, var, stride, relu):
    outs = []
    for run in range(len(x)):
        y = F.conv2d(
            x[run].permute(0, 3, 1, 2),
            w[run].permute(3, 2, 0, 1),
            stride=stride,
            padding=w.shape[1] // 2,
        )
        y = F.batch_norm(y, mean[run], var[run], gamma[run], beta[run], True, 0.1, 1e-5).permute(
            0, 2, 3, 1
        )
        y = y if residual is None else y + residual[run]
        outs.append(y.relu() if relu else y)
    return torch.stack(outs)


def difference(values, expected):
    return ((values.double() - expected).norm() / expected.norm()).item()


def check(runs, batch, size, inputs, outputs, side, stride, residual, relu, precision):
    """Return relative differences: of the result, running statistics, the form for evaluation, and every gradient."""
    dtype, products = precision.storage, precision.products
    make = lambda *shape: torch.randn(*shape, device=DEVICE)  # noqa: E731
    half = -(-size // stride)
    x = make(runs, batch, size, size, inputs).to(dtype)
    w = (make(runs, side, side, inputs, outputs) / (side * inputs**0.5)).to(dtype)
    extra = make(runs, batch, half, half, outputs).to(dtype) if residual else None
    gamma, beta = make(runs, outputs).abs() + 0.5, make(runs, outputs)
    learned = inputs > 3  # the first layer's input is an image
    seen = F.pad(x, (0, 1)) if inputs == 3 else x  # as `StackedNets` gives it to the kernels
    ours = [
        None if t is None else t.clone().requires_grad_()
        for t in (seen, extra, w.float(), gamma, beta)
    ]
    theirs = [
        None if t is None else t.double().requires_grad_() for t in (x, extra, w, gamma, beta)
    ]
    for leaves in (ours, theirs):
        leaves[0].requires_grad_(learned)
    mean, var = torch.zeros(2, runs, outputs, device=DEVICE)
    var += 1
    mean64, var64 = mean.double(), var.double()
    side_stream = stacked.SideStream(x.device)
    out, again = conv_norm.FusedConvNorm.apply(
        *ours, mean, var, w, stride, relu, 1e-5, 0.1, products, side_stream, conv_norm
    )
    expected = reference(*theirs, mean64, var64, stride, relu)
    towards, also = make(*out.shape).to(dtype), make(*out.shape).to(dtype)
    # where the two signs differ, so do the gradients of relu: compare on the same mask
    sure = (
        torch.ones_like(out)
        if precision.name == "float32"
        else ((expected > 0) == (out > 0)).to(dtype)
    )
    pick = lambda leaves: [t for t in leaves if t is not None and t.requires_grad]  # noqa: E731
    towards, also = towards * sure, also * sure
    readers = 1 + learned  # of a block's result there are two
    gradients = torch.autograd.grad([out, again][:readers], pick(ours), [towards, also][:readers])
    side_stream.join()
    total = towards.double() + also.double() if learned else towards.double()
    want = torch.autograd.grad((expected * total).sum(), pick(theirs))
    how = {"stride": stride, "products": products}
    plain, _ = conv_norm.convolve(seen, w, affine=(gamma, beta), residual=extra, relu=relu, **how)
    y = torch.stack(
        [
            F.conv2d(a.permute(0, 3, 1, 2), b.permute(3, 2, 0, 1), stride=stride, padding=side // 2)
            for a, b in zip(x.double(), w.double(), strict=True)
        ]
    ).permute(0, 1, 3, 4, 2)
    y = y * gamma.double()[:, None, None, None] + beta.double()[:, None, None, None]
    y = y if extra is None else y + extra.double()
    pairs = [(out, expected), (mean, mean64), (var, var64), (plain, y.relu() if relu else y)]
    return [difference(a, b) for a, b in [*pairs, *zip(gradients, want, strict=True)]]


def check_network(shortcut):
    """Return the largest difference of a gradient, of two small networks by the kernels and by plain torch."""
    stem = nets._convolution(3, 16)
    body = nets._residual_body(stem, [16, 32], 2, shortcut)
    net = nets.Net(body, torch.nn.Linear(32, 5, bias=False))
    x = torch.randn(2, 3, 6, 6, 3, device=DEVICE)
    gradients = []
    for kernels in (True, False):
        both = stacked.StackedNets(net, 2, torch.device(DEVICE), torch.float32, kernels=kernels)
        for run in range(2):
            both.load(run, net)
        both.rows.mul_(torch.linspace(0.9, 1.1, both.rows.shape[1], device=DEVICE))
        both.refresh()
        loss = both.logits(both.features(x, training=True)).square().sum()
        gradients.append(both.gradient_rows(torch.autograd.grad(loss, both.leaves)))
    views = [stacked.NetRows._views(both, each, each, both.statistics)[0] for each in gradients]
    return max(difference(views[0][name], views[1][name].double()) for name in views[0])


def check_wide_network():
    """Return how far a wide network, by cuDNN and the kernels, is from plain torch in float64.

    These are differences of its features in training and in evaluation, and of every gradient and statistic.
    """
    stem = nets._convolution(3, 64)
    body = nets._residual_body(stem, [64, 128], 2 if LARGE else 1, "B")
    net = nets.Net(body, torch.nn.Linear(128, 5)).to(DEVICE)
    x = torch.randn(1, 16 if LARGE else 4, 6, 6, 3, device=DEVICE)
    outcomes = []
    for name, kernels in (("float32", True), ("float64", False)):
        precision = PRECISIONS[name]
        rows = stacked.StackedNets(net, 1, torch.device(DEVICE), precision, kernels=kernels)
        assert rows.wide is kernels
        rows.load(0, net)
        rows.refresh()
        features = rows.features(x.to(precision.storage), training=True)
        gradients = torch.autograd.grad(rows.logits(features).square().sum(), rows.leaves)
        again = rows.features(x.to(precision.storage), training=False)
        rows.momentum.copy_(rows.gradient_rows(gradients))
        kept = rows.run_tensors(0, rows.rows, rows.momentum, rows.statistics)
        outcomes.append({"features": features, "evaluated": again, **kept[1], **kept[2]})
    ours, theirs = outcomes
    return {name: difference(ours[name], theirs[name].double()) for name in theirs}


def check_named(task):
    """Return a task, a precision with a layer and a size of images, and its differences."""
    name, layer, size = task
    torch.manual_seed(0)
    return task, check(2, 9 if LARGE else 2, size, *layer, PRECISIONS[name])


def main():
    torch.manual_seed(0)
    names = sys.argv[1:] or list(FARTHEST)
    for shortcut in ("A", "B") if "float32" in names else ():
        far = check_network(shortcut)
        print(f"network with shortcut {shortcut}: {far:.1e}", flush=True)
        if not far < 1e-4:
            sys.exit("the gradients of a network are too far from torch")
    if "float32" in names:
        far = check_wide_network()
        print(f"wide network: {max(far.values()):.1e}", flush=True)
        if not max(far.values()) < 1e-4:
            sys.exit(f"a wide network is too far from torch: {far}")
    layers = [
        (16, 16, 3, 1, True, True),
        (16, 32, 3, 2, False, True),
        (32, 32, 3, 1, False, True),
        (64, 64, 3, 1, True, True),
        (3, 16, 3, 1, False, True),
        (1, 16, 3, 1, False, True),
        (16, 32, 1, 2, False, False),
    ]
    sizes = (31, 32) if LARGE else (5, 6)  # with an even size, pixels are computed in pairs
    tasks = list(itertools.product(names, layers, sizes))
    worst = {}
    with ExitStack() as stack:
        each = map(check_named, tasks)
        if LARGE:  # most of the time goes to compiling
            workers = min(len(tasks), max(1, (os.cpu_count() or 2) - 2))
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(workers, mp_context=spawn))
            each = pool.map(check_named, tasks)
        for (name, layer, size), far in each:
            print(name, *layer, size, " ".join(f"{value:.1e}" for value in far), flush=True)
            if not max(far) < FARTHEST[name]:
                worst[name, *layer, size] = max(far)
    sys.exit(f"too far from torch: {worst}" if worst else 0)


if __name__ == "__main__":
    main()
