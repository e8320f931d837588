"""A fuzzed program: lines of Python over tensors, run on the CPU and on a device and compared after every line.

A line is what a person would write (`v3 = torch.add(v1, v2)`), so a failure's script is the lines themselves.
The CPU's tensors take the device's values after each comparison: what is compared is always one operator's
rounding, and what depends on a value's last bit (sort, floor, a comparison) can be compared exactly.
"""

from __future__ import annotations

import math
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Step:
    line: str
    makes: tuple[str, ...] = ()  # the names that it binds
    uses: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()  # of `uses`: changed in place
    kind: str = "exact"  # how results are compared: exact, rounded, accumulated; raises: both sides refuse
    terms: int = 1  # accumulated: how many products or sums meet in one element
    factors: int = 1  # accumulated: how many meet in one product; of equal ones every rounding goes one way
    finite: tuple[str, ...] = ()  # of `uses`: had finite values when the step was made


@dataclass
class Program:
    seed: int
    devices: int
    steps: list[Step] = field(default_factory=list)


class Difference(Exception):
    """The device does something else than the CPU: at which step, and what."""

    def __init__(self, step: int, text: str):
        super().__init__(text)
        self.step, self.text = step, text


LAYOUTS = ("contiguous", "transposed", "gaps", "offset", "flipped", "expanded", "channels_last")


def make(shape: tuple[int, ...], dtype: torch.dtype, seed: int, layout: str, device) -> torch.Tensor:
    """A tensor of small values in one of LAYOUTS; the same values on every device."""
    generator = torch.Generator().manual_seed(seed)

    def values(sizes):
        if dtype == torch.bool:
            return torch.randint(0, 2, sizes, generator=generator).bool()
        if dtype.is_complex:
            return torch.view_as_complex(values_real((*sizes, 2))).to(dtype)
        if not dtype.is_floating_point:
            low = 0 if dtype == torch.uint8 else -9
            return torch.randint(low, 10, sizes, generator=generator).to(dtype)
        return values_real(sizes).to(dtype)

    def values_real(sizes):
        x = torch.randn(sizes, generator=generator)
        # Ties, both zeros and, now and then, what is not finite.
        x = torch.where(torch.rand(sizes, generator=generator) < 0.2, x.round(), x)
        if seed % 8 == 0 and x.numel() > 3:
            x.view(-1)[torch.randperm(x.numel(), generator=generator)[:3]] = torch.tensor(
                [math.nan, math.inf, -math.inf]
            )
        return x

    if layout == "transposed":
        return values(shape[::-1]).to(device).permute(list(range(len(shape) - 1, -1, -1)))
    if layout == "gaps":
        return values((*shape, 2)).to(device)[..., 0]
    if layout == "offset":
        count = math.prod(shape)
        return values((count + 3,)).to(device)[3:].view(shape)
    if layout == "flipped":
        x = values(shape).to(device)
        return x.flip(0) if shape else x
    if layout == "channels_last" and len(shape) == 4:
        return values(shape).to(device).contiguous(memory_format=torch.channels_last)
    if layout == "expanded" and shape:
        return values((1, *shape[1:])).to(device).expand(shape)
    return values(shape).to(device)


def grad(function, x: torch.Tensor) -> torch.Tensor:
    """The gradient of Σ w·function(x), w being uneven."""
    x = x.detach().clone().requires_grad_()
    y = function(x)
    weight = (torch.arange(y.numel(), device=y.device) % 7 - 3).to(y.dtype).view(y.shape)
    y.backward(weight)
    return torch.zeros_like(x) if x.grad is None else x.grad


def environment(on_device: bool, devices: int) -> dict:
    """The names that lines may use besides their variables."""
    streams = {}

    def dev(index: int):
        return torch.device("fl", index) if on_device else torch.device("cpu")

    @contextmanager
    def side(index: int, number: int):
        """A side stream: it waits for what was queued, and what is queued later waits for it."""
        if (index, number) not in streams:
            streams[index, number] = torch.Stream(dev(index))
        stream, here = streams[index, number], torch.accelerator.current_stream(index)
        stream.wait_stream(here)
        with stream:
            yield
        here.wait_stream(stream)

    return {
        "torch": torch,
        "F": F,
        "dev": dev,
        "grad": grad,
        "make": make,
        "side": side if on_device else lambda index, number: nullcontext(),
        "inf": math.inf,
        "nan": math.nan,
    }


TOLERANCE = {  # about eight units in the last place
    torch.float64: 1e-14,
    torch.float32: 2e-6,
    torch.float16: 6e-3,
    torch.bfloat16: 5e-2,
    torch.complex32: 1.2e-2,
    torch.complex64: 4e-6,
    torch.complex128: 1e-14,
}


def compare(name: str, ours: torch.Tensor, cpu: torch.Tensor, step: Step, largest: float) -> None:
    """Raise ValueError when the two differ beyond the step's kind."""
    for what in ("shape", "dtype"):
        if getattr(ours, what) != getattr(cpu, what):
            raise ValueError(f"{name}.{what} is {getattr(ours, what)}, the CPU's {getattr(cpu, what)}")
    other = [n > 1 and a != b for a, b, n in zip(ours.stride(), cpu.stride(), cpu.shape, strict=True)]
    if cpu._is_view() and step.kind == "exact" and cpu.numel() and any(other):
        raise ValueError(f"{name}'s strides are {ours.stride()}, the CPU's {cpu.stride()}")
    got = ours.cpu()
    if step.kind == "exact" or cpu.dtype not in TOLERANCE:
        wrong = ~((got == cpu) | ((got != got) & (cpu != cpu)))
    else:
        eps = TOLERANCE[cpu.dtype]
        wide = torch.complex128 if cpu.is_complex() else torch.float64
        a, b = got.to(wide), cpu.to(wide)
        allowed = eps * b.abs()
        if step.kind == "accumulated":
            allowed = allowed * max(1.0, step.factors / 8) + eps * max(1.0, largest) * math.sqrt(step.terms)
        else:
            allowed = allowed + eps * 1e-2
        wrong = ~(((a - b).abs() <= allowed) | (a == b) | ((a != a) & (b != b)))
        if cpu.is_complex() or step.kind == "accumulated":
            # What becomes of an infinity within a sum, or of an infinite part, is the formula's accident.
            wrong &= b.isfinite()
        if step.kind == "accumulated" and largest >= min(torch.finfo(cpu.dtype).max, LARGEST):
            # The CPU has room for squares that the dtype cannot hold: it adds in float64.
            wrong &= a.isfinite()
    if bool(wrong.any()):
        where = tuple(wrong.nonzero()[0].tolist())
        raise ValueError(
            f"{name}{list(where)} is {got[where].item()!r}, the CPU's {cpu[where].item()!r} "
            f"({int(wrong.sum())} of {cpu.numel()} differ; {cpu.dtype}, shape {tuple(cpu.shape)})"
        )


LARGEST = 1e30


def largest_of(tensors) -> float:
    """A bound of the products that can meet in one element."""
    found = 1.0
    for x in tensors:
        if x.numel() and (x.dtype.is_floating_point or x.dtype.is_complex):
            size = x.detach().abs().double()
            size = size[size.isfinite()]
            found *= max(1.0, float(size.max()) if size.numel() else 1.0)
    return min(found * found, max(found, LARGEST))


def ordered(t: torch.Tensor) -> list[int]:
    """The strides that say where elements lie.  Of size 1, an operator goes by one that another chose freely: in
    channels-last, or not."""
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]


class Pair:
    """The state of a program on both sides."""

    def __init__(self, devices: int):
        self.devices = devices
        self.cpu, self.device = environment(False, devices), environment(True, devices)
        self.names: list[str] = []
        self.missing: set[str] = set()  # what steps would have made that both sides refused

    def run_cpu(self, step: Step) -> Exception | None:
        try:
            exec(step.line, self.cpu)
        except Exception as error:
            return error
        return None

    def run_device(self, number: int, step: Step, cpu_error: Exception | None) -> None:
        """Run the step on the device and compare; raises Difference."""
        if "INTERNAL ASSERT FAILED" in str(cpu_error):  # a bug of the CPU's, which says nothing
            self.missing.update(step.makes)
            return
        # Before the step: in-place operators change their operands.
        try:
            exec(step.line, self.device)
            if cpu_error is not None:  # a wrong index is found by the device
                for index in range(self.devices):
                    torch.accelerator.synchronize(index)
        except Exception as error:
            raised = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            if cpu_error is None:
                raise Difference(number, raised) from error
            if type(error) is not type(cpu_error):
                kind = type(cpu_error).__name__
                raise Difference(number, f"raises {raised}; the CPU {kind}: {cpu_error}") from error
            self.missing.update(step.makes)
            return
        if cpu_error is not None:
            raise Difference(
                number,
                f"does not raise; the CPU: {type(cpu_error).__name__}: {str(cpu_error).splitlines()[0]}",
            )
        self.names += [n for n in step.makes if n not in self.names]
        self.check(number, step, self.touched(step))

    def touched(self, step: Step) -> list[str]:
        """What the step made, and all that shares memory with what it changed."""
        memory = {self.cpu[name].untyped_storage().data_ptr() for name in step.writes}
        shared = [n for n in self.names if self.cpu[n].untyped_storage().data_ptr() in memory]
        return list(dict.fromkeys([*step.makes, *shared]))

    def check(self, number: int, step: Step, names: list[str]) -> None:
        largest = largest_of([self.cpu[n] for n in step.uses]) if step.kind == "accumulated" else 1.0
        for name in names:
            try:
                compare(name, self.device[name], self.cpu[name], step, largest)
            except ValueError as error:
                raise Difference(number, str(error)) from None
            except RuntimeError as error:  # a fault of the device that shows here
                raise Difference(number, f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
        mixed = len({self.cpu[n].dtype for n in step.uses}) > 1 or "torch._foreach" in step.line
        for name in step.makes:
            if mixed or ordered(self.cpu[name]) == ordered(self.device[name]):
                self.lay_out(name)
        if step.kind != "exact":
            for name in names:
                self.take(name)

    def lay_out(self, name: str) -> None:
        """The CPU's tensor takes the device's strides.

        Of operands of several dtypes the CPU makes converted copies, contiguous where an operand has gaps or is
        expanded, and the result takes the copies' order; the device converts as it reads, as CUDA does.  A foreach
        operator is on the CPU one operator a tensor; its results on the device, as on CUDA, are like its operands.
        """
        cpu, ours = self.cpu[name], self.device[name]
        if not cpu._is_view() and ours.stride() != cpu.stride():
            self.cpu[name] = torch.empty_strided(cpu.shape, ours.stride(), dtype=cpu.dtype).copy_(cpu)

    def take(self, name: str) -> None:
        """The CPU's tensor takes the device's values, whole storage: views of it follow."""
        cpu, ours = self.cpu[name], self.device[name]
        flat = torch.empty(0, dtype=cpu.dtype).set_(cpu.untyped_storage())
        theirs = torch.empty(0, dtype=ours.dtype, device=ours.device).set_(ours.untyped_storage())
        alike = flat.numel() == theirs.numel() and ours.stride() == cpu.stride()
        with torch.no_grad():
            if alike and ours.storage_offset() == cpu.storage_offset():
                flat.copy_(theirs)
            else:  # of what is expanded, one element in each place
                once = tuple(slice(0, 1) if s == 0 else slice(None) for s in cpu.stride())
                cpu[once].copy_(ours[once])


def finite(t):
    return bool(t.isfinite().all())


def replay(program: Program) -> None:
    """Run a program on both sides; raises Difference."""
    torch.manual_seed(program.seed)
    pair = Pair(program.devices)
    for number, step in enumerate(program.steps):
        # A shape may depend on values (unique, nonzero), which here are the device's: what the CPU took when
        # the program was made, it may refuse now.  The device has to as well, and what needs it is left out.
        # Nor may a step that was made for finite values still have them: what was rounded to 0 then is 0 / 0 now.
        if pair.missing.intersection(step.uses) or not all(
            finite(pair.cpu[name]) for name in step.finite
        ):
            pair.missing.update(step.makes)
        else:
            pair.run_device(number, step, pair.run_cpu(step))
    # A stray write shows in a tensor that no line touched.
    last = Step("", kind="exact")
    pair.check(len(program.steps), last, [n for n in pair.names if pair.cpu[n].numel()])
