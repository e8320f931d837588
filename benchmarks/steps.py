"""Training steps of the examples' two large models, of an LSTM and of a U-Net, on any device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from models import gpt2_small, resnet50

# Makes, for a device, a function that trains one step and returns the loss, a tensor on the device.
Maker = Callable[[str], Callable[[], torch.Tensor]]


def trainer(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, clip: float = 0
) -> Callable[[], torch.Tensor]:
    """A step of cross entropy on one batch: images or pixels to a class, tokens to the next ones."""
    tokens = not x.is_floating_point()

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten()) if tokens else F.cross_entropy(logits, y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss.detach()

    return step


def resnet50_step(device: str, batch: int = 8, size: int = 224) -> Callable[[], torch.Tensor]:
    """SGD with momentum on contiguous images [batch, 3, size, size].  The rate is small: a larger one
    makes fresh weights chaotic, and then two correct devices differ after a step."""
    torch.manual_seed(0)
    model = resnet50().to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(batch, 3, size, size).to(device)
    labels = torch.randint(0, 1000, (batch,)).to(device)

    return trainer(model, optimizer, images, labels)


def gpt2_step(device: str, batch: int = 2, length: int = 128) -> Callable[[], torch.Tensor]:
    """AdamW on tokens [batch, length]."""
    torch.manual_seed(0)
    model = gpt2_small().to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 50257, (batch, length + 1)).to(device)

    return trainer(model, optimizer, tokens[:, :-1], tokens[:, 1:])


class LanguageLSTM(nn.Module):
    """Tokens [batch, length] to logits [batch, length, vocabulary]."""

    def __init__(self, vocabulary: int, width: int, layers: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])


def lstm_step(device: str, batch: int = 20, length: int = 35) -> Callable[[], torch.Tensor]:
    """SGD with clipped gradients, at the sizes of PyTorch's word_language_model example."""
    torch.manual_seed(0)
    model = LanguageLSTM(10_000, 200, 2).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    tokens = torch.randint(0, 10_000, (batch, length + 1)).to(device)

    return trainer(model, optimizer, tokens[:, :-1], tokens[:, 1:], clip=0.25)


def two_convolutions(before: int, after: int) -> nn.Sequential:
    layers = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Images [batch, 3, height, width] to logits [batch, classes, height, width]; sides divide by 8.

    The shape of Ronneberger, Fischer and Brox, "U-Net" (2015), with three levels and padded convolutions.
    """

    def __init__(self, classes: int, width: int):
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(two_convolutions(b, a) for b, a in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[2::-1])
        self.merge = nn.ModuleList(two_convolutions(2 * w, w) for w in widths[2::-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, down in enumerate(self.down):
            x = down(x if level == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, kept[2::-1], strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


def unet_step(device: str, batch: int = 4, size: int = 128) -> Callable[[], torch.Tensor]:
    """AdamW on contiguous images [batch, 3, size, size] and a class for each pixel."""
    torch.manual_seed(0)
    model = UNet(4, 32).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    images = torch.randn(batch, 3, size, size).to(device)
    labels = torch.randint(0, 4, (batch, size, size)).to(device)

    return trainer(model, optimizer, images, labels)
