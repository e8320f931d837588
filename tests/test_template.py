"""The template chip, mandatory entries alone, beside sim in one process: a GPT trains on it with the right losses."""

from pathlib import Path

from child import run_beside_template

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_gpt_trains_on_mandatory_entries_alone():
    code = f"""
        import sys, torch
        sys.path.insert(0, {str(EXAMPLES)!r})
        from models import GPT
        from torch.nn import functional as F

        def losses(device, steps=4):
            torch.manual_seed(0)
            model = GPT(letters=30, context=16, width=32, heads=2, layers=2).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            text = torch.randint(0, 30, (4, 17)).to(device)
            seen = []
            for _ in range(steps):
                loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
            return seen

        torch.fl.config.fallback = "error"
        want = losses("cpu")
        for device in ("template:0", "sim:0"):
            got = losses(device)
            assert all(abs(g - w) < 1e-4 * abs(w) for g, w in zip(got, want)), (device, got, want)
        assert want[-1] < want[0]

        # Tensors of the two chips: copied both ways, refused when mixed.
        a, b = torch.ones(3, device="template:0"), torch.full((3,), 2.0, device="sim:0")
        assert (a.to("sim:0") + b).tolist() == [3] * 3 and (a + b.to(a.device)).tolist() == [3] * 3
        try:
            a + b
        except RuntimeError as e:
            assert "same device" in str(e), e
        else:
            raise SystemExit("no error")
    """
    run_beside_template(code, timeout=200)


def test_order_and_selection_are_composed():
    code = """
        import torch

        torch.fl.config.fallback = "error"
        torch.manual_seed(0)

        def run(device):
            x = torch.randint(-9, 10, (3, 37), generator=torch.Generator().manual_seed(1)).float().to(device)
            x[0, 3] = x[1, 5] = x[0, 30] = float("nan")
            i, m = x.nan_to_num(0).int().abs(), x > 0
            rows = i[:, :12].t().contiguous() % 2
            return [
                x.cumsum(1), i.cumsum(0), x.bfloat16().cumsum(1), x.nan_to_num(1).sign().cumprod(1), *x.cummax(1), *x.cummin(0),
                x.logcumsumexp(1), *x.sort(dim=1, stable=True), *x.sort(dim=0, descending=True, stable=True),
                *i.sort(dim=1, stable=True), *m.sort(dim=1, stable=True), x.topk(5).values, *x.median(1), *x.nanmedian(1),
                *i.kthvalue(3)[:1], i.mode(1).values, x.median(), x.nonzero(), x[m], torch.nonzero_static(m, size=200),
                x.masked_scatter(m, x.flip(0)), *i.unique(return_inverse=True, return_counts=True),
                *i.unique_consecutive(return_inverse=True, return_counts=True),
                *rows.unique(dim=0, return_inverse=True, return_counts=True),
                torch.searchsorted(i.sort(1).values, i, right=True), torch.isin(i, i[0]), torch.isin(i, i[0, :3]),
                torch.repeat_interleave(i[0]), i.trace(),
            ]

        for n, (got, want) in enumerate(zip(run("template:0"), run("cpu"))):
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got.cpu(), want, equal_nan=True, msg=lambda m: f"result {n}: {m}")
    """
    run_beside_template(code, timeout=200)


def test_windows_and_interpolation_on_mandatory_entries_alone():
    code = """
        import torch
        from torch.nn import functional as F

        torch.fl.config.fallback = "error"
        x, grid = torch.randn(2, 4, 8, 9), torch.randn(2, 5, 6, 2) * 0.6
        functions = {
            "reflect": lambda t: F.pad(t, (2, 1, 3, 0), mode="reflect"),
            "replicate": lambda t: F.pad(t, (2, 1, 3, -1), mode="replicate"),
            "unfold": lambda t: F.unfold(t, 3, padding=1),
            "nearest": lambda t: F.interpolate(t, size=(5, 13)),
            "bilinear": lambda t: F.interpolate(t, size=(5, 13), mode="bilinear"),
            "antialias": lambda t: F.interpolate(t, size=(5, 13), mode="bicubic", antialias=True),
            "grid": lambda t: F.grid_sample(t, grid.to(t.device), "bicubic", "reflection", align_corners=False),
            "max": lambda t: F.max_pool2d(t, 3, 2, 1, ceil_mode=True),
            "dilated": lambda t: F.max_pool2d(t, 3, 1, 1, dilation=2),
            "average": lambda t: F.avg_pool2d(t, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            "adaptive average": lambda t: F.adaptive_avg_pool2d(t, (3, 5)),
            "adaptive max": lambda t: F.adaptive_max_pool2d(t, (3, 5)),
            "unpool": lambda t: F.max_unpool2d(*F.max_pool2d(t[..., :8], 2, return_indices=True), 2),
        }
        for name, f in functions.items():
            here, there = x.clone().requires_grad_(), x.to("template:0").requires_grad_()
            want, got = f(here), f(there)
            torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4, msg=lambda m: f"{name}: {m}")
            seed = torch.randn(want.shape)
            want.backward(seed)
            got.backward(seed.to(got.device))
            torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-4, atol=1e-4, msg=lambda m: f"{name}: {m}")
    """
    run_beside_template(code, timeout=200)


def test_optional_opcodes_are_formulas():
    code = """
        import math, torch

        torch.fl.config.fallback = "error"
        line = torch.linspace(-10, 12, 1201)
        sizes = torch.logspace(-30, 30, 301)
        ends = torch.tensor([0.0, -0.0, 1, 2, -1, math.inf, -math.inf, math.nan])
        x = torch.cat([line, sizes, ends])
        unit = torch.cat([torch.linspace(-1, 1, 801), torch.logspace(-30, -0.01, 200), 1 - torch.logspace(-6, -1, 99), ends])
        functions = {
            "lgamma": x, "digamma": x, "erfinv": unit, "i0": line * 3, "special.i0e": x, "special.i1": line * 3,
            "special.i1e": x, "special.ndtri": unit, "special.log_ndtr": x.clamp(-1e15, 1e15), "special.erfcx": x,
        }
        for name, values in functions.items():
            f = torch
            for part in name.split("."):
                f = getattr(f, part)
            want, got = f(values.double()).float(), f(values.to("template:0")).cpu()
            # A root of the function is found to the precision of its neighbours.
            torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-6, equal_nan=True, msg=lambda m: f"{name}: {m}")
        positive = torch.cat([torch.linspace(0.05, 12, 300), torch.logspace(-3, 6, 100)])
        between = line[line.frac().abs() > 0.02]
        for n in (1, 2, 3, 6):
            for values in (positive, between)[: 1 + n % 2]:  # of even order it has roots left of 0
                want, got = torch.polygamma(n, values.double()).float(), torch.polygamma(n, values.to("template:0")).cpu()
                torch.testing.assert_close(got, want, rtol=2e-5, atol=1e-6, msg=lambda m: f"polygamma {n}: {m}")
            if n % 2 == 0:  # there, to the precision of the two terms that cancel
                terms = (between.frac().abs().clamp_max(0.5) ** -(n + 1.0)) * math.factorial(n)
                want, got = torch.polygamma(n, between.double()), torch.polygamma(n, between.to("template:0")).cpu()
                assert ((got - want).abs() < 4e-7 * terms.double() + 2e-5 * want.abs()).all(), n
            if n > 1:  # at its ends as PyTorch's kernel
                want, got = torch.polygamma(n, ends), torch.polygamma(n, ends.to("template:0")).cpu()
                torch.testing.assert_close(got, want, equal_nan=True, msg=lambda m: f"polygamma {n}: {m}")
        for s in (1.5, 3.0, 20.0):
            want = torch.special.zeta(torch.tensor(s).double(), positive.double()).float()
            got = torch.special.zeta(torch.tensor(s).to("template:0"), positive.to("template:0")).cpu()
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-37)
        normal = torch.cat([line, sizes, -sizes, ends])
        there = normal.to("template:0")
        for got, want in zip(torch.frexp(there), torch.frexp(normal)):
            finite = normal.isfinite()
            assert torch.equal(got.cpu()[finite], want[finite])
        other = normal.flip(0)
        got, want = torch.nextafter(there, other.to("template:0")).cpu(), torch.nextafter(normal, other)
        assert torch.equal(got.nan_to_num(7), want.nan_to_num(7))
    """
    run_beside_template(code, timeout=200)


def test_dtypes_that_the_chip_lacks_move_and_convert():
    code = """
        import math, torch

        torch.fl.config.fallback = "error"
        generator = torch.Generator().manual_seed(2)
        floats = torch.cat([
            torch.randn(2000, generator=generator) * torch.logspace(-37, 37, 2000),
            torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 65504, 65519.9, 65520, 6e-8, 2.9e-8, 6.1e-5, 2049]),
        ])
        halves = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.half)
        doubles = torch.cat([
            torch.randn(2000, generator=generator).double() * torch.logspace(-37, 300, 2000, dtype=torch.double),
            floats.double(), torch.tensor([1 + 2**-24, 1 + 3 * 2**-24, 1e39, -(2.0**63), 12345678901234.7]).double(),
        ])
        wholes = torch.cat([
            torch.randint(-(2**63), 2**63 - 1, (2000,), generator=generator),
            torch.tensor([-(2**63), 2**63 - 1, 2**53 + 1, 2**53 + 3, 2**54 + 2, 0, 1, -1]),
        ])

        def same(got, want, what):
            got = got.cpu()
            assert got.dtype == want.dtype, what
            if want.is_complex():
                got, want = torch.view_as_real(got), torch.view_as_real(want)
            both = got.isnan() & want.isnan()
            wrong = ~(both | ((got == want) & (got.signbit() == want.signbit())))
            assert not wrong.any(), (what, got[wrong][:4], want[wrong][:4])

        for source, targets in {
            floats: (torch.half, torch.double, torch.cfloat, torch.cdouble, torch.complex32),
            halves: (torch.float, torch.double, torch.cfloat),
            doubles: (torch.float, torch.cfloat, torch.bool),
            doubles[doubles.abs() < 2.0**63]: (torch.long,),
            wholes: (torch.double, torch.cdouble),
        }.items():
            there = source.to("template:0")
            for target in targets:
                same(there.to(target), source.to(target), (source.dtype, target))
            assert there.clone().dtype == source.dtype
            same(there.view(-1, 2)[: , 1].clone() if len(source) % 2 == 0 else there[1::2].clone(),
                 source.view(-1, 2)[:, 1] if len(source) % 2 == 0 else source[1::2], "strided")
        same((halves.to("template:0") + 1.5) * 3, (halves + 1.5) * 3, "half arithmetic")
        for dtype, value in ((torch.half, 1.1), (torch.double, 0.1), (torch.cfloat, 1 - 2j), (torch.cdouble, 0.1j)):
            same(torch.full((3, 2), value, dtype=dtype, device="template:0"), torch.full((3, 2), value, dtype=dtype), dtype)
    """
    run_beside_template(code, timeout=200)


def test_complex_numbers_are_pairs():
    code = """
        import torch

        torch.fl.config.fallback = "error"
        generator = torch.Generator().manual_seed(3)
        z, w = torch.randn(2, 6, 7, dtype=torch.cfloat, generator=generator)
        functions = {name: getattr(torch, name) for name in '''
            abs angle conj_physical cos cosh exp exp2 log log10 log2 neg reciprocal rsqrt sgn sigmoid sin sinh sqrt square
            tan tanh'''.split()}
        for name, f in functions.items():
            torch.testing.assert_close(f(z.to("template:0")).cpu(), f(z), rtol=2e-5, atol=1e-6, msg=lambda m: f"{name}: {m}")
        both = {
            "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow, "eq": torch.eq,
            "where": lambda a, b: torch.where(a.real > 0, a, b), "number": lambda a, b: a * (2 - 1j) + 3,
            "real": lambda a, b: torch.complex(a.real, b.imag) * b.real, "polar": lambda a, b: torch.polar(a.abs(), b.real),
            "in place": lambda a, b: a.clone().t().mul_(b.t()), "lazy": lambda a, b: a.conj() * b.mT.mH.imag,
            "fft": lambda a, b: torch.fft.ifftn(torch.fft.fft2(a) * b), "hfft": lambda a, b: torch.fft.hfft(a),
        }
        for name, f in both.items():
            got, want = f(z.to("template:0"), w.to("template:0")).cpu(), f(z, w)
            torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-6, msg=lambda m: f"{name}: {m}")
        # What a pair cannot do runs on the CPU, and says so.
        try:
            torch.asin(z.to("template:0"))
        except NotImplementedError as error:
            assert "asin" in str(error)
        else:
            raise SystemExit("no error")
    """
    run_beside_template(code, timeout=200)


def test_scatter_with_modes_that_the_chip_lacks():
    code = """
        import torch

        torch.fl.config.fallback = "error"
        generator = torch.Generator().manual_seed(4)
        self, source = torch.randn(9, 5, generator=generator), torch.randn(40, 6, generator=generator)
        source[3, 2] = float("nan")
        index = torch.randint(0, 9, (33, 4), generator=generator)
        whole = (self * 5).int(), (source.nan_to_num(0) * 5).int()
        for reduce in ("prod", "amin", "amax", "mean", "sum"):
            for include in (True, False):
                for a, b in ((self, source), whole, (self.half(), source.half()), tuple(t.to(torch.uint8) for t in whole)):
                    def run(device):
                        return a.to(device).scatter_reduce(0, index.to(device), b.to(device), reduce, include_self=include)
                    exact = not a.is_floating_point()
                    tolerance = dict(rtol=0, atol=0) if exact else dict(rtol=2e-3 if a.dtype == torch.half else 1e-5, atol=1e-5)
                    torch.testing.assert_close(
                        run("template:0").cpu(), run("cpu"), equal_nan=True, **tolerance,
                        msg=lambda m: f"{reduce} {include} {a.dtype}: {m}")
        x = self.to("template:0")
        got = x.clone().scatter_(0, index.to(x.device), source.to(x.device), reduce="multiply").cpu()
        torch.testing.assert_close(got, self.clone().scatter_(0, index, source, reduce="multiply"), equal_nan=True)
        got = x.index_reduce(1, torch.tensor([3, 3, 0]).to(x.device), source[:9, :3].to(x.device), "amax").cpu()
        torch.testing.assert_close(got, self.index_reduce(1, torch.tensor([3, 3, 0]), source[:9, :3], "amax"), equal_nan=True)
        try:
            x.scatter_reduce(0, torch.full((1, 1), 9).to(x.device), x, "prod").cpu()
        except (IndexError, RuntimeError) as error:
            assert "out of range" in str(error) or "out of bounds" in str(error), error
        else:
            raise SystemExit("no error")
    """
    run_beside_template(code, timeout=200)
