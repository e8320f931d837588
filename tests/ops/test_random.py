import pytest
import torch
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
