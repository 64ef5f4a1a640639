"""Small torch models with a head, and whether it was scaled."""

import torch
from torch import nn

COUNTS = [100, 25, 4]
FACTORS = torch.tensor([1.0, 2.0, 5.0])  # (100 / n)^0.5


class Net(nn.Module):
    """Features and a head under a name of choice, the head's output passed on as `after` says."""

    def __init__(self, name="fc", head=None, after=lambda z: z):
        super().__init__()
        self.body = nn.Linear(6, 8)
        setattr(self, name, nn.Linear(8, 3) if head is None else head)
        self.name, self.after = name, after

    def forward(self, x):
        return self.after(getattr(self, self.name)(self.body(x).relu()))


class Teacher(nn.Module):
    """Two heads whose logits are averaged, under names that nobody knows."""

    def __init__(self, one="one", two="two"):
        super().__init__()
        self.one_name, self.two_name = one, two
        setattr(self, one, nn.Linear(6, 3))
        setattr(self, two, nn.Linear(6, 3))

    def forward(self, x):
        return (getattr(self, self.one_name)(x) + getattr(self, self.two_name)(x)) / 2


def bits(model):
    return {name: p.detach().clone() for name, p in model.state_dict().items()}


def unchanged(model, before):
    return all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def scaled(model, x, before, atol=1e-5):
    return torch.allclose(model(x), before * FACTORS, atol=atol)
