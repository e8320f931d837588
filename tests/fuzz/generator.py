"""Writing a fuzzed program line by line while it runs on the CPU."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from program import LAYOUTS, Program, Step, environment, finite

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPLEX = (torch.complex64,)
MANY = 1 << 13  # elements of a result that is kept


def lacks_dtype(error: Exception) -> bool:
    """Whether the CPU lacks a kernel for the dtypes, which the device may have."""
    words = (
        "not implemented for",
        "support",
        "must be either",
        "to be Half, Float or Double",
        "memory descriptor",
    )
    return isinstance(error, NotImplementedError) or any(w in str(error) for w in words)


class Generator:
    """Writes a program line by line while it runs on the CPU, so that shapes and dtypes are known."""

    def __init__(self, seed: int, devices: int):
        self.rng = random.Random(seed)
        self.program = Program(seed, devices)
        self.environment = environment(False, devices)
        self.device_of: dict[str, int] = {}
        self.count = 0

    # ------------------------------------------------------------------ choosing
    def tensor(self, name: str) -> torch.Tensor:
        return self.environment[name]

    def pick(self, *conditions: Callable[[torch.Tensor], bool], device: int | None = None) -> str | None:
        names = [
            n
            for n in self.device_of
            if (device is None or self.device_of[n] == device) and all(c(self.tensor(n)) for c in conditions)
        ]
        # The newest are the likeliest, so that chains grow.
        return self.rng.choice(names[-self.rng.choice((2, 4, 100)) :]) if names else None

    def like(self, name: str, *conditions) -> str | None:
        """An operand on the same device that broadcasts with `name`."""
        shape = self.tensor(name).shape

        def fits(t):
            return all(
                a == b or 1 in (a, b) for a, b in zip(reversed(t.shape), reversed(shape), strict=False)
            )

        return self.pick(fits, *conditions, device=self.device_of[name])

    def new(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def axis(self, name: str) -> int:
        dims = self.tensor(name).dim()
        return self.rng.randrange(-dims, dims) if dims else 0

    def number(self) -> str:
        return self.rng.choice(["0", "1", "-1", "2", "0.5", "-1.5", "3", "1e-3"])

    # ------------------------------------------------------------------ writing
    def add(
        self, expression: str, *uses: str, writes=(), kind="exact", terms=1, factors=1, makes=True
    ) -> bool:
        """One more line, if the CPU takes it; what it refuses has to be refused by the device too."""
        device = self.device_of[uses[0]] if uses else 0
        name = self.new() if makes else None
        line = f"{name} = {expression}" if makes else expression
        if uses and self.rng.random() < 0.08:
            line = f"with side({device}, {self.rng.randrange(2)}): {line}"
        sure = tuple(used for used in uses if finite(self.tensor(used)))
        step = Step(line, (name,) if makes else (), tuple(uses), tuple(writes), kind, terms, factors, sure)
        try:
            exec(line, self.environment)
        except Exception as error:
            # An internal assertion is a bug of the CPU's, which may have changed its operands by then.
            told = not lacks_dtype(error) and "INTERNAL ASSERT FAILED" not in str(error)
            if told and self.rng.random() < 0.25:
                self.program.steps.append(Step(line, (), tuple(uses), (), "raises"))
            return False
        if makes:
            made = self.environment[name]
            if not isinstance(made, torch.Tensor) or made.numel() > MANY:
                if isinstance(made, torch.Tensor) and made.numel() <= 1 << 17 and not made._is_view():
                    self.program.steps.append(step)  # compared, but not used further
                    return True
                return False
            self.device_of[name] = device
        self.program.steps.append(step)
        return True

    def refused(self, line: str, *uses: str) -> bool:
        """A line that both sides have to refuse; nothing where the CPU takes it."""
        try:
            exec(line, self.environment)
        except Exception:
            self.program.steps.append(Step(line, (), tuple(uses), (), "raises"))
            return True
        return False

    def source(self) -> None:
        rng = self.rng
        shape = tuple(rng.choice((1, 2, 3, 4, 5, 7, 8)) for _ in range(rng.choice((0, 1, 2, 2, 3, 3, 4))))
        if rng.random() < 0.06:
            shape = (*shape[:1], 0, *shape[1:])[:4]
        if rng.random() < 0.04:
            shape = (rng.choice((1025, 4099)),)
        dtype = rng.choice((*(torch.float32,) * 8, *FLOATS, *INTEGERS, torch.int64, torch.bool, *COMPLEX))
        layout = rng.choice(("contiguous", *LAYOUTS))
        name, device = self.new(), rng.randrange(self.program.devices)
        line = f"{name} = make({shape}, {dtype}, {rng.randrange(10**6)}, {layout!r}, dev({device}))"
        exec(line, self.environment)
        self.device_of[name] = device
        self.program.steps.append(Step(line, (name,)))


# ---------------------------------------------------------- what an operand may have to be
def is_float(t):
    return t.dtype.is_floating_point


def is_real(t):
    return not t.dtype.is_complex


def is_integer(t):
    return not t.dtype.is_floating_point and not t.dtype.is_complex and t.dtype != torch.bool


def is_bool(t):
    return t.dtype == torch.bool


def is_number(t):
    return t.dtype != torch.bool


def has_dims(t):
    return t.dim() > 0


def filled(t):
    return t.numel() > 0


def writable(t):
    """Whether no two elements share memory: PyTorch refuses only the plain cases of that."""
    offsets = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(t.shape, t.stride(), strict=True):
        offsets = (offsets.unsqueeze(-1) + torch.arange(size) * stride).flatten()
    return offsets.unique().numel() == t.numel()


def index_line(g, size: int, count: int, device: int, low: int = 0) -> str:
    return f"torch.tensor({[g.rng.randrange(low, size) for _ in range(count)]}, device=dev({device}))"
