"""Random numbers: a Philox generator a device, the same numbers on every chip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from . import _native
from ._utils import Device, device_index

__all__ = [
    "default_generators",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


class _Generators(Sequence):
    """The devices' default generators; a sequence that asks for devices when it is looked at."""

    def __len__(self) -> int:
        return _native.device_count()

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no device {index}; there are {len(self)}")
        return _native.default_generator(index % len(self))

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[i] for i in range(len(self)))


default_generators = _Generators()


def _get_generator(device: torch.device) -> torch.Generator:
    return default_generators[device_index(device)]


def get_rng_state(device: Device = "fl") -> torch.Tensor:
    """Seed and offset of a device's generator: 16 bytes on the CPU."""
    return default_generators[device_index(device)].get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = "fl") -> None:
    """Set what get_rng_state returned."""
    default_generators[device_index(device)].set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set what get_rng_state_all returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _set_rng_state_offset(offset: int, device: Device = "fl") -> None:
    default_generators[device_index(device)].set_offset(offset)


def _get_rng_state_offset(device: Device = "fl") -> int:
    return default_generators[device_index(device)].get_offset()


def manual_seed(seed: int) -> None:
    """Seed the current device's generator; without a device, nothing."""
    if _native.device_count():
        default_generators[_native.current_device()].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator with a random number."""
    if _native.device_count():
        default_generators[_native.current_device()].seed()


def seed_all() -> None:
    """Seed all generators with one random number."""
    numbers = iter(default_generators)
    first = next(numbers, None)
    if first is not None:
        number = first.seed()
        for generator in numbers:
            generator.manual_seed(number)


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return default_generators[_native.current_device()].initial_seed()
