"""What tests of heads share."""

import pytest
import torch


@pytest.fixture
def x():
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
