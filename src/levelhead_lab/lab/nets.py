"""The networks: each is a body that gives features, and a head. None of them knows about imbalance.

`build` makes one by its name and seed: `_body` the layers up to the features, then a linear or a
cosine head. `head_of` and `head_inputs` read a trained network as what adjustments need: a `Head`,
and the features that it multiplies.

ResNet-32 is that of He et al., Deep Residual Learning for Image Recognition, 2016, for CIFAR: a 3x3
convolution, three stages of five blocks with 16, 32 and 64 channels, global average pooling.
`resnet18-64` has the four stages of ResNet-18 with a stem for images of 64x64. `digits` is three
convolutions, for 8x8 images and tests.

Bodies are plain `nn.Sequential` of `nn.Conv2d`, `nn.BatchNorm2d`, `nn.ReLU`, `ResidualBlock` and
`GlobalMean`, because `fast.stacked` reads them layer by layer to stack several networks into one.
"""

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelhead.core.head import Head, unit
from levelhead.support.errors import LevelheadError, check_choice

HeadKind = Literal["linear", "cosine"]
Shortcut = Literal["A", "B", "pool"]
Bias = Literal["none", "zero", "rare"]
Stem = Literal["small", "half", "imagenet"]
STEM_CONVOLUTIONS: dict[Stem, tuple[int, int]] = {  # side of the kernel, stride
    "small": (3, 1),
    "half": (3, 2),
    "imagenet": (7, 2),
}


class Net(nn.Module):
    """A classifier in two parts: ``logits = head(features(x))``.

    Args:
        body: from images [B, C, H, W] to features [B, d].
        head: from features to logits [B, K]; its `weight` is [K, d].
    """

    def __init__(self, body: nn.Module, head: nn.Module):
        super().__init__()
        # In this order: the head's parameters are the last, on which `fast.net_rows` relies.
        self.body = body
        self.head = head

    def features(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to features [B, d]."""
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, K]."""
        return self.head(self.features(x))


class CosineHead(nn.Module):
    """A head whose logits are cosines: ``l_i = <w_i / ||w_i||, f / ||f||>``.

    The scale by which a softmax of them can be sure belongs to the loss (see `methods.ldam`). So
    predictions are right as they are, and probabilities need that scale.
    """

    def __init__(self, width: int, classes: int):
        super().__init__()
        # Uniform from -1 to 1, then of unit length, as in the code of Cao et al., 2019.
        self.weight = nn.Parameter(unit(torch.rand(classes, width) * 2 - 1))

    def forward(self, features: Tensor) -> Tensor:
        """Map features [B, d] to cosines [B, K], from -1 to 1."""
        return F.linear(F.normalize(features), F.normalize(self.weight))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: ``relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))``.

    Args:
        inputs, outputs: channels.
        stride: of the first convolution; 2 halves the image.
        shortcut: what to do where size or channels change. `B` is a 1x1 convolution with batch
            norm; `A` (every second pixel) and `pool` (their mean) have no parameters, see
            `PadShortcut`. Elsewhere the shortcut is the identity.
    """

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
        """Map activations [B, C, H, W] to [B, C', H / stride, W / stride]."""
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class PadShortcut(nn.Module):
    """A shortcut without parameters: fewer pixels; zeros as the new channels, half on each side.

    Of each square of stride x stride pixels it keeps the first (option A of He et al., 2016) or,
    with `pool`, the mean.

    >>> shortcut = PadShortcut(2, 4, stride=2)
    >>> shortcut(torch.ones(1, 2, 4, 4)).shape, shortcut(torch.ones(1, 2, 4, 4))[0, :, 0, 0].tolist()
    (torch.Size([1, 4, 2, 2]), [0.0, 1.0, 1.0, 0.0])
    """

    def __init__(self, inputs: int, outputs: int, stride: int, *, pool: bool = False):
        super().__init__()
        added = outputs - inputs
        self.stride = stride
        self.before = added // 2
        self.after = added - added // 2
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        return self.channels_last(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def channels_last(self, x: Tensor) -> Tensor:
        """Map [..., H, W, C] to [..., H / stride, W / stride, C']; stacked networks use it, too."""
        if self.pool:
            # [..., H, W, C] -> [..., H / stride, stride, W / stride, stride, C]
            squares = x.unflatten(-2, (-1, self.stride)).unflatten(-4, (-1, self.stride))
            x = squares.mean(dim=(-4, -2))
        else:
            x = x[..., :: self.stride, :: self.stride, :]
        return F.pad(x, (self.before, self.after))


class GlobalMean(nn.Module):
    """Global average pooling: [B, C, H, W] -> [B, C]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


def build(
    net: str,
    classes: int,
    *,
    head: HeadKind = "linear",
    shape: tuple[int, int, int] = (3, 32, 32),
    shortcut: Shortcut = "B",
    stem: Stem = "small",
    bias: Bias = "none",
    init: Literal["fan-out", "fan-in"] = "fan-out",
    seed: int = 0,
) -> Net:
    """Build a freshly initialized network; the same arguments give the same weights.

    Args:
        net: `resnet32`, `resnet18-64`, `digits`, or `timm:NAME` for any timm model, without its
            pretrained weights.
        classes: K, at least 2.
        head: `linear`, or `cosine` for LDAM; see `CosineHead`.
        shape: (C, H, W) of an image.
        shortcut: of residual blocks, see there.
        stem: of resnet18-64: `small` is a 3x3 convolution, `half` has stride 2, `imagenet` is 7x7
            with stride 2 and then pools. Images of 64x64 reach the blocks as 64x64, 32x32 or 16x16.
        bias: of a linear head, see `Recipe`; the paper's networks have none.
        init: see `Recipe`.
        seed: of the initial weights. The generator of torch is left as it was.

    Raises:
        LevelheadError: if a word is none of those above, there are fewer than 2 classes, or timm
            has no model of that name.
        ImportError: if timm is asked for and cannot be imported.

    >>> parameter_count(build("resnet32", 10))
    466896
    """
    check_choice("head", head, get_args(HeadKind))
    check_choice("shortcut", shortcut, get_args(Shortcut))
    check_choice("stem", stem, get_args(Stem))
    if classes < 2:
        raise LevelheadError(f"expected at least 2, got {classes}", parameter="classes")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body, width = _body(net, shape, shortcut, stem)
        if head == "cosine":
            return Net(body, CosineHead(width, classes))
        linear = nn.Linear(width, classes, bias=bias != "none")
        if bias == "rare":  # log(p / (1 - p)) at p = 1/K: as if every class were one of K
            nn.init.constant_(linear.bias, -math.log(classes - 1))
        elif bias == "zero":
            nn.init.zeros_(linear.bias)
        if init == "fan-in":
            # Drawn again over what the modules had, in the order of the layers.
            for module in (*body.modules(), linear):
                if isinstance(module, nn.Conv2d | nn.Linear):
                    nn.init.kaiming_normal_(module.weight)
        return Net(body, linear)


def parameter_count(net: nn.Module) -> int:
    """Return how many numbers a network learns."""
    return sum(p.numel() for p in net.parameters())


def head_of(net: Net) -> Head:
    """Return the head as a value, which shares the memory of a linear one.

    For either kind of head, ``head_of(net).logits(head_inputs(net, x)) == net(x)``: of a cosine
    head the weight vectors have unit length.

    >>> net = build("digits", 3, head="cosine", shape=(1, 8, 8)).eval()
    >>> x = torch.linspace(-1, 1, 2 * 64).view(2, 1, 8, 8)
    >>> head_of(net).logits(head_inputs(net, x)).allclose(net(x))
    True
    """
    parameters = dict(net.head.named_parameters())
    weight = parameters["weight"].detach()
    if isinstance(net.head, CosineHead):
        return Head(unit(weight))
    if "bias" not in parameters:
        return Head(weight)
    return Head(weight, parameters["bias"].detach())


def head_inputs(net: Net, x: Tensor) -> Tensor:
    """Return the features that `head_of` multiplies, [B, d]; of unit length for a cosine head.

    Args:
        net: in training or evaluation mode, as the features are wanted.
        x: images [B, C, H, W], as `preprocess` gives them.
    """
    features = net.features(x)
    if isinstance(net.head, CosineHead):
        return F.normalize(features)
    return features


def _body(
    net: str, shape: tuple[int, int, int], shortcut: Shortcut, stem: Stem
) -> tuple[nn.Module, int]:
    """Return the layers up to the features, and d, the length of these.

    Args:
        net: its name, as of `build`.
        shape: (C, H, W) of an image; of these only timm's transformers need the size.
        shortcut, stem: as of `build`.

    Raises:
        LevelheadError: if the name is not known.
    """
    if net.startswith("timm:"):
        return _timm(net.removeprefix("timm:"), shape)
    channels = shape[0]
    if net == "resnet32":
        body = _residual_body(_convolution(channels, 16), [16, 32, 64], 5, shortcut)
        width = 64
    elif net == "resnet18-64":
        side, stride = STEM_CONVOLUTIONS[stem]
        entry = _convolution(channels, 64, side, stride)
        if stem == "imagenet":
            entry.append(nn.MaxPool2d(3, 2, 1))
        body = _residual_body(entry, [64, 128, 256, 512], 2, shortcut)
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
    # N(0, 2 / (k k out)), as in He et al., 2015, with the size of what goes out (fan-out).
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = math.prod(module.kernel_size) * module.out_channels
            nn.init.normal_(module.weight, 0, math.sqrt(2 / fan_out))
    return body, width


def _residual_body(
    stem: list[nn.Module], widths: list[int], blocks: int, shortcut: Shortcut
) -> nn.Sequential:
    """Return a stem, a stage of so many blocks for each width, and global average pooling.

    Args:
        stem: the layers before the first block, whose result has widths[0] channels.
        widths: channels of each stage; every stage but the first halves the image.
        blocks: in each stage, of two convolutions each: 5 in three stages are ResNet-32, with the stem
            and the head.
        shortcut: of blocks that change size or channels.
    """
    layers = list(stem)
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            # The first block of every stage but the first halves the image.
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(ResidualBlock(inputs, width, stride, shortcut))
            inputs = width
    return nn.Sequential(*layers, GlobalMean())


def _convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    """Return a convolution, batch norm, which would take out a bias of the former, and relu.

    Args:
        inputs, outputs: channels.
        kernel: side of the filter; images are padded by half of it, so that their size stays.
        stride: 2 halves the image.
    """
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]


def _timm(name: str, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    """Return a model of timm without its classifier, and the length of its features.

    Args:
        name: as `timm.list_models` has it.
        shape: (C, H, W) of an image.

    Raises:
        ImportError: if timm is not installed, or does not load.
        LevelheadError: if it has no such model; the message names similar ones.
    """
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
        message = f"timm {timm.__version__} has no model {name!r}"
        similar = timm.list_models(f"*{name.split('.')[0][:6]}*")[:5]
        if similar:
            message += f"; similar ones are {', '.join(similar)}"
        raise LevelheadError(message, parameter="net")
    # Transformers have a fixed size of images, which they must be told; others do not take the
    # word.
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    size = {}
    if config is not None and config.fixed_input_size:
        size["img_size"] = shape[1:]
    body = timm.create_model(name, num_classes=0, in_chans=shape[0], **size)
    with torch.no_grad():  # timm's num_features is not always the width before the classifier
        width = body.eval()(torch.zeros(1, *shape)).shape[1]
    return body.train(), width
