"""Training steps of the examples' two large models, on any device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from models import gpt2_small, resnet50

# Makes, for a device, a function that trains one step and returns the loss, a tensor on the device.
Maker = Callable[[str], Callable[[], torch.Tensor]]


def resnet50_step(device: str, batch: int = 8, size: int = 224) -> Callable[[], torch.Tensor]:
    """SGD with momentum on contiguous images [batch, 3, size, size].  The rate is small: a larger one
    makes fresh weights chaotic, and then two correct devices differ after a step."""
    torch.manual_seed(0)
    model = resnet50().to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(batch, 3, size, size).to(device)
    labels = torch.randint(0, 1000, (batch,)).to(device)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def gpt2_step(device: str, batch: int = 2, length: int = 128) -> Callable[[], torch.Tensor]:
    """AdamW on tokens [batch, length]."""
    torch.manual_seed(0)
    model = gpt2_small().to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 50257, (batch, length + 1)).to(device)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
