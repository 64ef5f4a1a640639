"""The networks: each is a body that gives features, and a head. None of them knows about imbalance."""

import math
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelhead.core.head import Head, unit
from levelhead.support.errors import LevelheadError, check_choice

HeadKind = Literal["linear", "cosine"]
Shortcut = Literal["A", "B", "pool"]
Bias = Literal["none", "zero", "rare"]
Stem = Literal["small", "half", "imagenet"]


class Net(nn.Module):
    """A classifier in two parts: ``logits = head(features(x))``."""

    def __init__(self, body: nn.Module, head: nn.Module):
        super().__init__()
        self.body, self.head = body, head

    def features(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to features [B, d]."""
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class CosineHead(nn.Module):
    """A head whose logits are cosines: ``l_i = <w_i / ||w_i||, f / ||f||>``. Its scale belongs to the loss."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.weight = nn.Parameter(unit(torch.rand(classes, width) * 2 - 1))

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features), F.normalize(self.weight))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: ``relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))``."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: Shortcut):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        if stride == 1 and inputs == outputs:
            self.shortcut = nn.Identity()
        elif shortcut == "B":
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        else:
            self.shortcut = PadShortcut(inputs, outputs, stride, pool=shortcut == "pool")

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class PadShortcut(nn.Module):
    """Every second pixel (A), or the mean of the pixels (pool), and zeros as the new channels, half on each side."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, pool: bool = False):
        super().__init__()
        more = outputs - inputs
        self.stride = stride
        self.before = more // 2
        self.after = more - more // 2
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        return self.channels_last(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def channels_last(self, x: Tensor) -> Tensor:
        """Map [..., H, W, C]."""
        if self.pool:
            x = (
                x.unflatten(-2, (-1, self.stride))
                .unflatten(-4, (-1, self.stride))
                .mean(dim=(-4, -2))
            )
        else:
            x = x[..., :: self.stride, :: self.stride, :]
        return F.pad(x, (self.before, self.after))


class GlobalMean(nn.Module):
    """Global average pooling: [B, C, H, W] -> [B, C]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


def build(
    net: str,  # `resnet32`, `resnet18-64`, `digits`, or `timm:NAME` for any timm model
    classes: int,
    *,
    head: HeadKind = "linear",
    shape: tuple[int, int, int] = (3, 32, 32),  # (C, H, W) of an image
    shortcut: Shortcut = "B",  # a 1x1 convolution and batch norm; without parameters `A` or `pool`
    stem: Stem = "small",  # a 3x3 convolution; `half` has stride 2, `imagenet` 7x7, stride 2 and pooling
    bias: Bias = "none",  # of a linear head, see `Recipe`; the paper's networks have none
    init: Literal["fan-out", "fan-in"] = "fan-out",  # see `Recipe`
    seed: int = 0,
) -> Net:
    """Build a freshly initialized network; the same arguments give the same weights. The stem is resnet18-64's."""
    for parameter, value, kind in (
        ("head", head, HeadKind),
        ("shortcut", shortcut, Shortcut),
        ("stem", stem, Stem),
    ):
        check_choice(parameter, value, get_args(kind))
    if classes < 2:
        raise LevelheadError(f"expected at least 2, got {classes}", parameter="classes")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body, width = _body(net, shape, shortcut, stem)
        if head == "cosine":
            return Net(body, CosineHead(width, classes))
        linear = nn.Linear(width, classes, bias=bias != "none")
        if linear.bias is not None:
            nn.init.constant_(linear.bias, -math.log(classes - 1) if bias == "rare" else 0.0)
        if init == "fan-in":
            for module in (*body.modules(), linear):
                if isinstance(module, nn.Conv2d | nn.Linear):
                    nn.init.kaiming_normal_(module.weight)
        return Net(body, linear)


def parameter_count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def head_of(net: Net) -> Head:
    """Return the head as a value: ``head_of(net).logits(head_inputs(net, x)) == net(x)`` for either kind of head."""
    head: Any = net.head
    if isinstance(head, CosineHead):
        return Head(unit(head.weight.detach()))
    return Head(head.weight.detach(), None if head.bias is None else head.bias.detach())


def head_inputs(net: Net, x: Tensor) -> Tensor:
    """Return the features that `head_of` multiplies, [B, d]; for a cosine head they have unit length."""
    features = net.features(x)
    if isinstance(net.head, CosineHead):
        return F.normalize(features)
    return features


def _body(
    net: str, shape: tuple[int, int, int], shortcut: Shortcut, stem: Stem
) -> tuple[nn.Module, int]:
    if net.startswith("timm:"):
        return _timm(net.removeprefix("timm:"), shape)
    channels = shape[0]
    if net == "resnet32":
        body = _residual_body(_convolution(channels, 16), [16, 32, 64], 5, shortcut)
        width = 64
    elif net == "resnet18-64":
        entry = _convolution(
            channels, 64, 7 if stem == "imagenet" else 3, 1 if stem == "small" else 2
        )
        pool = [nn.MaxPool2d(3, 2, 1)] if stem == "imagenet" else []
        body = _residual_body([*entry, *pool], [64, 128, 256, 512], 2, shortcut)
        width = 512
    elif net == "digits":
        layers = [
            *_convolution(channels, 16),
            *_convolution(16, 32, 3, 2),
            *_convolution(32, 64, 3, 2),
        ]
        body = nn.Sequential(*layers, GlobalMean())
        width = 64
    else:
        raise LevelheadError(
            f"expected resnet32, resnet18-64, digits or timm:NAME, got {net!r}", parameter="net"
        )
    for module in body.modules():
        if isinstance(module, nn.Conv2d):  # N(0, 2 / (k k out))
            nn.init.normal_(
                module.weight,
                0,
                math.sqrt(2 / (math.prod(module.kernel_size) * module.out_channels)),
            )
    return body, width


def _residual_body(
    stem: list[nn.Module], widths: list[int], blocks: int, shortcut: Shortcut
) -> nn.Sequential:
    layers, inputs = stem, widths[0]
    for stage, width in enumerate(widths):
        for i in range(blocks):
            layers.append(ResidualBlock(inputs, width, 2 if stage and not i else 1, shortcut))
            inputs = width
    return nn.Sequential(*layers, GlobalMean())


def _convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]


def _timm(name: str, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    try:
        import timm
    except ImportError as error:
        raise ImportError(f"timm:{name} needs timm; pip install timm ({error})") from None
    except RuntimeError as error:  # the compiled operators of torchvision do not load
        raise ImportError(
            f"timm:{name} needs timm, which cannot be imported here ({error}); install a torchvision "
            "built for this torch"
        ) from None
    if not timm.is_model(name):
        near = ", ".join(timm.list_models(f"*{name.split('.')[0][:6]}*")[:5])
        raise LevelheadError(
            f"timm {timm.__version__} has no model {name!r}"
            + (f"; similar ones are {near}" if near else ""),
            parameter="net",
        )
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    size: dict[str, Any] = (
        {"img_size": shape[1:]} if config is not None and config.fixed_input_size else {}
    )
    body = timm.create_model(name, num_classes=0, in_chans=shape[0], **size)
    with torch.no_grad():  # timm's num_features is not always the width before the classifier
        width = body.eval()(torch.zeros(1, *shape)).shape[1]
    return body.train(), width
