"""Forward and backward of ResNet-18 in a process of its own: benchmarks/opencl.py runs it for two backends.

    python benchmarks/resnet18.py DEVICE STEPS [MODULE]

MODULE makes the device known, where PyTorch does not find it by itself. Operators that only some backends
have are left out: the gradient of the result is given, and there is no loss and no optimizer. Prints seconds
of each step but the first, and the norm of the first weight's gradient, by which two backends are compared.
"""

from __future__ import annotations

import importlib
import sys
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out))
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


def resnet18() -> nn.Sequential:
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for out in (64, 128, 256, 512):
        layers += [Block(channels, out, 1 if out == 64 else 2), Block(out, out, 1)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def main() -> None:
    device, steps = sys.argv[1], int(sys.argv[2])
    for module in sys.argv[3:]:
        importlib.import_module(module)
    torch.manual_seed(0)
    model = resnet18().to(device).train()
    images, gradient = torch.randn(8, 3, 224, 224).to(device), torch.randn(8, 1000).div(1000).to(device)
    times = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        model(images).backward(gradient)
        norm = model[0].weight.grad.cpu().norm().item()  # waits for all of it
        times.append(time.perf_counter() - start)
        for parameter in model.parameters():
            parameter.grad = None
    print(*times[1:], norm)


if __name__ == "__main__":
    main()
