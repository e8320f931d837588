"""The program of a seed, from the makers of all families."""

from __future__ import annotations

import families  # noqa: F401 (registers the makers)
import torch
from generator import Generator
from makers import MAKERS

from program import Program


def generate(seed: int, devices: int) -> Program:
    """The program of a seed: 5 to 50 operators over a few tensors."""
    torch.manual_seed(seed)
    g = Generator(seed, devices)
    for _ in range(g.rng.randrange(2, 5)):
        g.source()
    wanted = g.rng.randrange(5, 51)
    weights = [weight for weight, _ in MAKERS]
    for _ in range(4 * wanted):
        if len(g.program.steps) >= wanted + 3:
            break
        if g.rng.random() < 0.08:
            g.source()
        g.rng.choices(MAKERS, weights)[0][1](g)
    return g.program
