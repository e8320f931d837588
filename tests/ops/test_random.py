
import pytest
import torch
from child import run_beside_template
from family import no_fallback

DEVICE = "fl:0"


def empty(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device=DEVICE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_uniform_and_normal(dtype):
    torch.manual_seed(3)
    with no_fallback():
        u, n = empty(40000, dtype=dtype).uniform_(-2, 3), empty(40000, dtype=dtype).normal_(1, 2)
    u, n = u.double().cpu(), n.double().cpu()
    assert u.min() >= -2 and u.max() < 3 and abs(u.mean() - 0.5) < 0.05 and abs(u.std() - 5 / 12**0.5) < 0.05
    assert abs(n.mean() - 1) < 0.05 and abs(n.std() - 2) < 0.05
    assert u.unique().numel() > 100


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(1001, device=DEVICE),
        lambda: torch.randn(1001, device=DEVICE),
        lambda: torch.randint(0, 99, (1001,), device=DEVICE),
        lambda: empty(1001).exponential_(),
        lambda: torch.bernoulli(torch.full((1001,), 0.5, device=DEVICE)),
        lambda: torch.randperm(101, device=DEVICE),
        lambda: torch.nn.functional.dropout(torch.ones(1001, device=DEVICE)),
    ],
)
def test_seeds(draw):
    torch.manual_seed(11)
    a, b = draw(), draw()
    torch.manual_seed(11)
    assert torch.equal(draw(), a) and torch.equal(draw(), b) and not torch.equal(a, b)


def test_explicit_generator():
    g = torch.Generator(device=DEVICE).manual_seed(5)
    a = torch.rand(100, device=DEVICE, generator=g)
    state = torch.get_rng_state()
    g.manual_seed(5)
    assert torch.equal(torch.rand(100, device=DEVICE, generator=g), a)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(RuntimeError):
        torch.rand(100, device=DEVICE, generator=torch.Generator())


def test_strided_outputs_get_the_same_numbers():
    torch.manual_seed(1)
    plain = torch.rand(6, 8, device=DEVICE)
    torch.manual_seed(1)
    gappy = torch.zeros(6, 16, device=DEVICE)
    gappy[:, ::2].uniform_()
    assert torch.equal(gappy[:, ::2], plain) and gappy[:, 1::2].abs().sum() == 0
    torch.manual_seed(1)
    assert torch.equal(torch.zeros(8, 6, device=DEVICE).t().uniform_(), plain)


def test_integers():
    torch.manual_seed(0)
    with no_fallback():
        for low, high in [(0, 2), (-5, 17), (-(2**40), 2**50), (0, 2**62)]:
            x = torch.randint(low, high, (20000,), device=DEVICE)
            assert x.min() >= low and x.max() < high
            assert abs(x.double().mean().item() - (low + high - 1) / 2) < (high - low) * 0.02
        for dtype in (
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float32,
            torch.bool,
        ):
            x = empty(2000, dtype=dtype).random_()
            assert x.double().min() >= 0 and x.double().max() > 0
        x = empty(2000, dtype=torch.int64).random_(-(2**63), None)
        assert x.min() < 0 < x.max()


def test_bernoulli():
    torch.manual_seed(0)
    with no_fallback():
        assert abs(empty(20000).bernoulli_(0.3).mean().item() - 0.3) < 0.02
        assert abs(empty(20000, dtype=torch.int64).bernoulli_(0.3).double().mean().item() - 0.3) < 0.02
        p = torch.linspace(0, 1, 20000, device=DEVICE)
        x = torch.bernoulli(p)
    assert abs(x.mean().item() - 0.5) < 0.02 and x[:10].sum() < 3 and x[-10:].sum() > 7
    assert empty(100).bernoulli_(0).sum() == 0 and empty(100).bernoulli_(1).sum() == 100


def test_other_distributions():
    torch.manual_seed(0)
    with no_fallback():
        assert abs(empty(40000).exponential_(2).mean().item() - 0.5) < 0.02
        assert abs(empty(40000).log_normal_(0, 0.5).log().mean().item()) < 0.02
        g = empty(40000).geometric_(0.25)
        assert g.min() >= 1 and abs(g.mean().item() - 4) < 0.1
        assert (
            abs(
                torch.normal(torch.ones(20000, device=DEVICE), torch.full((20000,), 2.0, device=DEVICE))
                .std()
                .item()
                - 2
            )
            < 0.1
        )
    assert abs(empty(40000).cauchy_(1, 2).median().item() - 1) < 0.1


def test_multinomial():
    torch.manual_seed(0)
    w = torch.tensor([[1.0, 0, 3], [0, 1, 1]], device=DEVICE)
    one = torch.multinomial(w, 1)
    assert one.shape == (2, 1) and one[0].item() != 1 and one[1].item() != 0
    many = torch.multinomial(w, 20000, replacement=True)
    assert abs((many[0] == 2).float().mean().item() - 0.75) < 0.02 and (many[0] == 1).sum() == 0
    assert torch.multinomial(w[0], 2).sort().values.tolist() == [0, 2]


NUMBERS = {"nan": r"\bnan\b", "inf": r"\binf\b", "-0.5": r"-0\.5", "1.5": r"\b1\.5\b"}


@pytest.mark.parametrize(
    ("name", "wrong", "draw"),
    [
        ("multinomial", ("-0.5", "nan", "inf"), lambda p: torch.multinomial(p, 4, replacement=True)),
        ("multinomial", ("-0.5", "nan", "inf"), lambda p: torch.multinomial(p[None], 4, replacement=True)),
        ("poisson", ("-0.5", "nan"), torch.poisson),
        ("bernoulli", ("-0.5", "nan", "inf", "1.5"), torch.bernoulli),
        ("bernoulli", ("-0.5", "1.5"), lambda p: torch.empty(2, 3, device=p.device).bernoulli_(p)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_parameters_that_no_distribution_has(name, wrong, draw, dtype):
    for value in wrong:
        p = torch.tensor([0.25, 0.5, float(value)], dtype=dtype)
        with pytest.raises(RuntimeError):
            draw(p)
        with no_fallback(), pytest.raises(RuntimeError, match=f"{name}.*{NUMBERS[value]}"):
            draw(p.to(DEVICE))
    assert draw(torch.tensor([0.25, 0.5, 0], dtype=dtype, device=DEVICE)).shape[-1] in (3, 4)


def test_multinomial_without_weight():
    for w in (torch.zeros(3), torch.tensor([[1.0, 0], [0, 0]])):
        for device in ("cpu", DEVICE):
            with pytest.raises(RuntimeError, match="sum of probabilities <= 0"):
                torch.multinomial(w.to(device), 2, replacement=True)


@pytest.mark.parametrize(
    "fill",
    [
        lambda t: t.uniform_(),
        lambda t: t.normal_(),
        lambda t: t.random_(),
        lambda t: t.random_(5),
        lambda t: t.random_(-5, 5),
        lambda t: t.exponential_(),
        lambda t: t.cauchy_(),
        lambda t: t.log_normal_(),
        lambda t: t.geometric_(0.5),
        lambda t: t.bernoulli_(0.5),
        lambda t: t.bernoulli_(torch.full(t.shape, 0.5, device=t.device)),
        lambda t: torch.rand(t.shape, out=t),
        lambda t: torch.randn(t.shape, out=t),
        lambda t: torch.normal(0.0, torch.ones(t.shape, device=t.device), out=t),
        lambda t: torch.bernoulli(torch.full(t.shape, 0.5, device=t.device), out=t),
    ],
)
def test_memory_that_overlaps_itself_is_refused(fill):
    for device in ("cpu", DEVICE):
        one = torch.empty(1, device=device)
        for t in (one.expand(20), one.expand(4, 5), torch.empty(4, 1, device=device).expand(4, 5)):
            with pytest.raises(RuntimeError, match="single memory location"):
                fill(t)


def test_out_on_another_device_is_refused():
    p = torch.full((3,), 0.5)
    for a, b in ((DEVICE, "cpu"), ("cpu", DEVICE), (DEVICE, "fl:1")):
        with pytest.raises(RuntimeError, match="same device"):
            torch.bernoulli(p.to(a), out=torch.empty(3, device=b))


def test_randperm():
    assert torch.randperm(1000, device=DEVICE).sort().values.tolist() == list(range(1000))
    assert torch.randperm(0, device=DEVICE).numel() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_dropout(dtype):
    torch.manual_seed(0)
    x = torch.ones(200, 100, dtype=dtype, device=DEVICE, requires_grad=True)
    with no_fallback():
        y = torch.nn.functional.dropout(x, 0.25)
        y.sum().backward()
    kept = y != 0
    assert abs(kept.float().mean().item() - 0.75) < 0.02
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / 0.75))
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(torch.nn.functional.dropout(x, 0.5, training=False), x)


def ks(sample, cdf):
    """Kolmogorov and Smirnov's distance, times the root of the number of samples: above 1.95 once in 1000."""
    x = sample.double().cpu().flatten().sort().values
    n = x.numel()
    at = cdf(x)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    return max((at - steps[:-1]).max().item(), (steps[1:] - at).max().item()) * n**0.5


def chi_square(sample, log_prob, low, high):
    """Pearson's statistic over the counts low..high and both tails, as a normal deviate (Wilson and Hilferty)."""
    x = sample.double().cpu().flatten()
    k = torch.arange(0, high * 4 + 50, dtype=torch.float64)
    p = log_prob(k).exp()
    bins = torch.cat([p[:low].sum()[None], p[low : high + 1], p[high + 1 :].sum()[None]])
    seen = torch.cat([
        (x < low).sum()[None], torch.stack([(x == v).sum() for v in range(low, high + 1)]), (x > high).sum()[None]
    ])  # fmt: skip
    keep = bins * x.numel() > 5
    d = int(keep.sum()) - 1
    chi = ((seen - bins * x.numel())[keep] ** 2 / (bins * x.numel())[keep]).sum().item()
    return ((chi / d) ** (1 / 3) - (1 - 2 / (9 * d))) / (2 / (9 * d)) ** 0.5


N = 100_000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_continuous_distributions(dtype):
    torch.manual_seed(6)
    with no_fallback():
        drawn = {
            "uniform": empty(N, dtype=dtype).uniform_(-1, 3), "normal": empty(N, dtype=dtype).normal_(1, 2),
            "exponential": empty(N, dtype=dtype).exponential_(0.5), "cauchy": empty(N, dtype=dtype).cauchy_(1, 2),
            "log_normal": empty(N, dtype=dtype).log_normal_(0.5, 0.7),
        }  # fmt: skip
    cdf = {
        "uniform": lambda x: (x + 1) / 4, "normal": lambda x: torch.special.ndtr((x - 1) / 2),
        "exponential": lambda x: -torch.expm1(-0.5 * x), "cauchy": lambda x: torch.atan((x - 1) / 2) / torch.pi + 0.5,
        "log_normal": lambda x: torch.special.ndtr((x.log() - 0.5) / 0.7),
    }  # fmt: skip
    for name, x in drawn.items():
        assert ks(x, cdf[name]) < 1.95, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gamma(dtype):
    torch.manual_seed(7)
    for alpha in (0.05, 0.7, 1.0, 2.5, 40.0, 3000.0):
        with no_fallback():
            x = torch._standard_gamma(torch.full((N,), alpha, dtype=dtype, device=DEVICE))
        assert x.dtype == dtype and x.isfinite().all() and (x > 0).all()
        a = torch.tensor(alpha, dtype=dtype).double()
        if dtype != torch.bfloat16:
            # Below the smallest number of the dtype everything is that number.
            small = x.double().cpu() <= 1e-37
            assert small.double().mean() < 0.02
            assert ks(x, lambda v, a=a: torch.special.gammainc(a.expand_as(v), v)) < (
                1.95 if alpha > 0.1 else 7
            ), alpha
        else:
            assert abs(x.double().mean() / a - 1) < 0.02
    assert torch._standard_gamma(torch.tensor([torch.nan], device=DEVICE)).isnan().all()
    x = torch.distributions.Gamma(torch.tensor([2.0, 5.0], device=DEVICE), 3.0).sample((1000,))
    assert x.shape == (1000, 2) and abs(x[:, 1].mean().item() - 5 / 3) < 0.1


def test_dirichlet():
    torch.manual_seed(3)
    alpha = torch.tensor([0.5, 1.0, 3.5], device=DEVICE)
    with no_fallback():
        x = torch._sample_dirichlet(alpha.expand(N, 3))
    torch.testing.assert_close(x.sum(-1), torch.ones(N, device=DEVICE))
    torch.testing.assert_close(x.mean(0).cpu(), torch.tensor([0.1, 0.2, 0.7]), rtol=0, atol=4e-3)
    torch.testing.assert_close(x.var(0).cpu(), torch.tensor([0.09, 0.16, 0.21]) / 6, rtol=0.03, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_poisson(dtype):
    torch.manual_seed(9)
    for rate, low, high in (
        (0.0, 0, 1),
        (0.3, 0, 6),
        (4.0, 0, 14),
        (9.9, 1, 24),
        (10.0, 1, 24),
        (60.0, 35, 90),
        (1500.0, 1400, 1600),
    ):
        with no_fallback():
            x = torch.poisson(torch.full((N,), rate, dtype=dtype, device=DEVICE))
        assert x.dtype == dtype and torch.equal(x, x.round())
        if rate == 0:
            assert x.sum() == 0
            continue
        rate = torch.tensor(rate, dtype=dtype).double()
        assert chi_square(x, torch.distributions.Poisson(rate).log_prob, low, high) < 3.3, rate
    x = torch.poisson(torch.tensor([1e6], device=DEVICE).expand(N)).double()
    assert abs(x.mean().item() - 1e6) < 15 and abs(x.std().item() / 1e3 - 1) < 0.02
    assert torch.poisson(torch.tensor([0.0, 3.0], device=DEVICE)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_binomial(dtype):
    torch.manual_seed(13)
    cases = (
        (1, 0.3, 0, 1),
        (10, 0.5, 0, 10),
        (40, 0.1, 0, 14),
        (40, 0.95, 30, 40),
        (60, 0.4, 10, 38),
        (1000, 0.7, 650, 750),
        (20000, 0.0005, 1, 24),
    )
    for n, p, low, high in cases:
        count, prob = torch.full((N,), float(n), dtype=dtype), torch.tensor(p, dtype=dtype)
        with no_fallback():
            x = torch.binomial(count.to(DEVICE), prob.to(DEVICE))
        assert x.dtype == dtype and x.min() >= 0 and x.max() <= n and torch.equal(x, x.round())
        log_prob = torch.distributions.Binomial(n, prob.double(), validate_args=False).log_prob
        valid = lambda k, f=log_prob, n=n: torch.where(k <= n, f(k.clamp(max=n)), -torch.inf)  # noqa: E731
        assert chi_square(x, valid, low, high) < 3.3, (n, p)
    n = torch.tensor([5.0, 5, 0, torch.nan], device=DEVICE)
    p = torch.tensor([0.0, 1, 0.5, 0.5], device=DEVICE)
    x = torch.binomial(n, p)
    assert x[:3].tolist() == [0, 5, 0] and x[3].isnan()


@pytest.mark.parametrize("draw", [
    lambda g: torch.poisson(torch.linspace(0, 30, 301, device=DEVICE), generator=g),
    lambda g: torch._standard_gamma(torch.linspace(0.1, 30, 301, device=DEVICE), generator=g),
    lambda g: torch._sample_dirichlet(torch.ones(100, 3, device=DEVICE), generator=g),
    lambda g: torch.binomial(torch.full((301,), 50.0, device=DEVICE), torch.full((301,), 0.3, device=DEVICE), generator=g),
])  # fmt: skip
def test_generators_and_restored_states(draw):
    g = torch.Generator(device=DEVICE).manual_seed(5)
    before = torch.fl.get_rng_state()
    a = draw(g)
    state = g.get_state()
    b = draw(g)
    g.set_state(state)
    assert torch.equal(draw(g), b) and not torch.equal(a, b)
    g.manual_seed(5)
    assert torch.equal(draw(g), a) and torch.equal(torch.fl.get_rng_state(), before)


def test_the_same_on_every_chip():
    code = """
        import torch
        def drawn(device, dtype):
            e = lambda: torch.empty(501, dtype=dtype, device=device)
            spread = torch.linspace(0.1, 30, 501).to(device, dtype)
            yield "uniform", e().uniform_(-1, 2)
            yield "normal", e().normal_(1, 2)
            yield "exponential", e().exponential_()
            yield "cauchy", e().cauchy_().clamp(-9, 9)
            yield "log_normal", e().log_normal_()
            yield "geometric", e().geometric_(0.2)
            yield "bernoulli", e().bernoulli_(0.3)
            yield "bernoulli of probabilities", torch.bernoulli(spread / 30)
            yield "random", e().random_(0, 1000)
            yield "gamma", torch._standard_gamma(spread)
            yield "dirichlet", torch._sample_dirichlet(spread)
            yield "poisson", torch.poisson(spread)
            yield "binomial", torch.binomial(torch.full_like(spread, 50), spread / 30)
            yield "dropout", torch.nn.functional.dropout(spread, 0.3)
            yield "integers", torch.randint(0, 2**40, (501,), device=device)
            yield "permutation", torch.randperm(501, device=device)
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            torch.manual_seed(1)
            for (name, a), (_, b) in zip(drawn("sim:0", dtype), drawn("template:0", dtype), strict=True):
                a, b = a.cpu().double(), b.cpu().double()
                # What a sampler accepts may turn on the last bit of a logarithm.
                same = torch.isclose(a, b, rtol=1e-4, atol=1e-4) if dtype != torch.bfloat16 else (a - b).abs() <= 0.02 * b.abs() + 1e-3
                assert same.double().mean() > 0.99, (name, dtype, same.double().mean(), a[:5], b[:5])
        get = lambda d: torch.fl.get_rng_state(d)[8:].tolist()
        assert get("sim:0") == get("template:0"), "the generators moved on differently"
    """
    run_beside_template(code, timeout=100)
