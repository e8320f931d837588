"""Makers by family; importing this registers all of them."""

from . import (
    complexes,
    elementwise,
    gradients,
    indexing,
    linear,
    losses,
    movement,
    networks,
    reductions,
    storage,
)

__all__ = [
    "complexes",
    "elementwise",
    "gradients",
    "indexing",
    "linear",
    "losses",
    "movement",
    "networks",
    "reductions",
    "storage",
]
