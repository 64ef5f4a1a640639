"""EMA and SWA copies of a model that WVN trains: the average of unit vectors is shorter than one."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import levelhead as lh
from levelhead.hosts.torch import normalize_

DRAW = torch.Generator().manual_seed(0)
Y = torch.arange(60) % 3
X = torch.randn(60, 8, generator=DRAW) + nn.functional.one_hot(Y, 8)


def trained(average, *, before_wvn=0, steps=60):
    """Train with WVN and an average that starts `before_wvn` steps earlier; return model, average, each step's head."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    copied, heads = average(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for step in range(before_wvn + steps):
        if step == before_wvn:
            lh.WVN(optimizer, model[2])
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X), Y).backward()
        optimizer.step()
        copied.update_parameters(model)
        heads.append(model[2].weight.detach().clone())
    return model, copied, heads


def swa(model):
    return AveragedModel(model)


def ema(model):
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


@pytest.mark.parametrize("average", [swa, ema])
def test_average_is_short_until_it_is_normalized(average):
    model, copied, heads = trained(average)
    lengths = copied.module[2].weight.norm(dim=1)
    assert lengths.max() < 0.999
    if average is swa:
        torch.testing.assert_close(
            copied.module[2].weight, torch.stack(heads).mean(0), rtol=1e-5, atol=1e-6
        )
    bias, body = copied.module[2].bias.clone(), copied.module[0].weight.clone()
    direction = copied.module[2].weight / lengths[:, None]
    assert normalize_(copied) == {"2": copied.module[2].weight}
    torch.testing.assert_close(copied.module[2].weight, direction)
    assert torch.equal(copied.module[2].bias, bias)
    assert torch.equal(copied.module[0].weight, body)
    assert torch.allclose(model[2].weight.norm(dim=1), torch.ones(3))


def test_average_that_began_before_wvn_is_normalized_too():
    _, copied, _ = trained(swa, before_wvn=60)
    assert (copied.module[2].weight.norm(dim=1) - 1).abs().max() > 0.05
    normalize_(copied, layer="2")
    assert torch.allclose(copied.module[2].weight.norm(dim=1), torch.ones(3))


def test_average_can_be_adjusted_as_the_model_can():
    model, copied, _ = trained(ema)
    normalize_(copied)
    before = copied(X).detach()
    bias = copied.module[2].bias.detach()
    assert lh.rescale_(copied, [100, 25, 4], gamma=0.5, bias="keep").layers == ("2",)
    factors = torch.tensor([1.0, 2.0, 5.0])
    torch.testing.assert_close(copied(X), (before - bias) * factors + bias, rtol=1e-4, atol=1e-5)
    assert torch.allclose(model[2].weight.norm(dim=1), torch.ones(3))


@pytest.mark.slow  # timm takes seconds to import
def test_timms_average_is_looked_through():
    timm = pytest.importorskip("timm.utils")
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    for kind in (timm.ModelEmaV2, timm.ModelEmaV3):
        copied = kind(model)
        normalize_(copied, layer="1")
        assert torch.allclose(copied.module[1].weight.norm(dim=1), torch.ones(3))


def test_row_with_no_direction_is_refused_and_nothing_changed():
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight[1] = 0
    before = model.weight.clone()
    with pytest.raises(ValueError, match=r"cannot normalize weight: .*class 1"):
        normalize_(model)
    assert torch.equal(model.weight, before)
