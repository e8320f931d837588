"""The third tier: announced once with the user's line, counted, refused by the policy before any work."""

import warnings

import pytest
import torch
from child import run_child

import torch_fl

UNSUPPORTED = "linalg_qr"  # has no formula: always PyTorch's CPU kernel


def test_first_fallback_warns_with_the_line_and_is_counted():
    code = """
        import warnings, torch
        x = torch.rand(3, device="fl:0") + 1
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            a = torch.linalg.eigvalsh(torch.eye(3, device="fl:0"))
            a = torch.linalg.eigvalsh(torch.eye(3, device="fl:0"))
        texts = [str(w.message) for w in said]
        assert len(texts) == len(set(texts)) and "linalg" in texts[0] and "<string>:6" in texts[0], texts
        report = torch.fl.op_report()
        ran = {op: c for op, c in report.items() if c["fallback"]}
        assert sum(c["fallback"] for c in ran.values()) >= 2, report
        op, counts = next(iter(ran.items()))
        assert counts["seconds"] > 0 and "<string>" in counts.first_call_site, (op, counts, counts.first_call_site)
        assert a.tolist() == [1, 1, 1]
    """
    run_child(code)


def test_policy_error_raises_before_any_work():
    torch.fl.config.fallback = "error"
    try:
        x = torch.eye(3, device="fl:0")
        with pytest.raises(NotImplementedError, match="FL_FALLBACK"):
            torch.linalg.eigvalsh(x)
        with pytest.raises(NotImplementedError, match="linalg_qr"):
            torch.linalg.qr(x)
        torch.fl.config.fallback_allow = "linalg_qr"
        torch.linalg.qr(x)
    finally:
        torch.fl.config.fallback = "warn"
        torch.fl.config.fallback_allow = ""


def test_policy_from_the_environment_and_deny():
    run_child("""
        import torch
        x = torch.eye(3, device="fl:0")
        try:
            torch.linalg.eigvalsh(x)
        except NotImplementedError as e:
            assert "linalg" in str(e)
        else:
            raise SystemExit("no error")
    """, FL_FALLBACK="error")  # fmt: skip
    torch.fl.config.fallback_deny = "linalg_qr"
    try:
        with pytest.raises(NotImplementedError):
            torch.linalg.qr(torch.eye(3, device="fl:0"))
    finally:
        torch.fl.config.fallback_deny = ""


@pytest.fixture
def quiet():
    torch.fl.config.fallback = "quiet"
    yield
    torch.fl.config.fallback = "warn"


def test_in_place_out_and_lists_are_written_back(quiet):
    x = torch.rand(4, 4)
    spd = x @ x.T + torch.eye(4)
    for f in (
        lambda t: torch.linalg.cholesky(t),
        lambda t: torch.linalg.cholesky_ex(t, out=(torch.empty(0, device=t.device), torch.empty(0, dtype=torch.int32, device=t.device))),
        lambda t: torch.special.bessel_y1(t, out=torch.empty(4, 8, device=t.device)[:, ::2]),
        lambda t: torch.logcumsumexp(t, 0),
        lambda t: t.clone().cumsum_(1),
        lambda t: torch.cummax(t, 0),
    ):  # fmt: skip
        got, want = f(spd.to("fl:0")), f(spd)
        for g, w in zip(*(torch.utils._pytree.tree_leaves(v) for v in (got, want)), strict=True):
            torch.testing.assert_close(g.cpu(), w)
            assert g.device.type == "fl" or torch_fl.cuda_view.is_enabled()


def test_strided_in_place_fallback_touches_only_its_elements(quiet):
    base = torch.rand(6, 6)
    there = base.to("fl:0")
    base[::2, 1:4].cumsum_(0)
    there[::2, 1:4].cumsum_(0)
    torch.testing.assert_close(there.cpu(), base)


def test_mixed_devices_raise_as_on_cuda(quiet):
    x = torch.eye(3, device="fl:0")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.linalg.solve(x, torch.ones(3, 1))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.searchsorted(torch.arange(3.0, device="fl:0"), torch.ones(2))


def test_random_fallbacks_follow_the_devices_seed(quiet):
    def draw():
        torch.fl.manual_seed(5)
        return torch.poisson(torch.full((100,), 4.0, device="fl:0")).cpu()

    first = draw()
    assert torch.equal(first, draw())
    torch.fl.manual_seed(6)
    assert not torch.equal(first, torch.poisson(torch.full((100,), 4.0, device="fl:0")).cpu())


def test_batch_norm_statistics_survive_every_tier():
    bn = torch.nn.BatchNorm2d(3)
    there = torch.nn.BatchNorm2d(3).to("fl:0")
    x = torch.randn(4, 3, 5, 5)
    bn(x), there(x.to("fl:0"))
    for a, b in ((there.running_mean, bn.running_mean), (there.running_var, bn.running_var)):
        torch.testing.assert_close(a.cpu(), b)


def test_views_do_not_fall_back():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.arange(24.0, device="fl:0").view(2, 3, 4)
        for v in (x.transpose(0, 2), x[..., ::2], x.unfold(2, 2, 1), x.diagonal(), x.permute(2, 0, 1), x.select(0, 1),
                  torch.view_as_complex(x.view(2, 6, 2)), x.unsqueeze(0).expand(3, 2, 3, 4), x.movedim(0, 1),
                  x.as_strided((2, 2), (1, 3)), *x.split(1), *x.unbind(1), x.flatten(), x.detach(), x.real):  # fmt: skip
            assert v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_out_in_any_strides_and_resized_strides():
    torch.fl.config.fallback = "quiet"
    try:
        x, tau = torch.geqrf(torch.rand(5, 5))
        want = torch.ormqr(x, tau, x)
        for out in (torch.empty(0), torch.empty(5, 5), torch.empty(5, 5).t(), torch.empty(5, 5, 2)[..., 0]):
            there = torch.empty_strided(out.shape, out.stride(), device="fl:0")
            y, factors = x.to("fl:0"), tau.to("fl:0")
            result, here = torch.ormqr(y, factors, y, out=there), torch.ormqr(x, tau, x, out=out)
            assert result is there and there.stride() == here.stride(), (there.stride(), here.stride())
            torch.testing.assert_close(there.cpu(), want)
        # A part of what the kernel worked on: columns with gaps behind them.
        a, b = torch.rand(6, 3), torch.rand(6, 2)
        for shapes in ([(0,)] * 4, [(3, 2), (2,), (), (0,)]):
            outs = [
                [torch.empty(s, dtype=torch.int64 if i == 2 else torch.float32, device=d) for i, s in enumerate(shapes)]
                for d in ("cpu", "fl:0")
            ]  # fmt: skip
            here = torch.linalg.lstsq(a, b, driver="gels", out=tuple(outs[0]))
            there = torch.linalg.lstsq(a.to("fl:0"), b.to("fl:0"), driver="gels", out=tuple(outs[1]))
            for h, t in zip(here, there, strict=True):
                assert t.shape == h.shape and (t.stride() == h.stride() or not h.numel())
            torch.testing.assert_close(there[0].cpu(), here[0])
        assert torch.linalg.lstsq(a.to("fl:0"), b.to("fl:0"))[0].stride() == (1, 6)
        with pytest.raises(RuntimeError, match="same device"):
            torch.linalg.eigvals(x.to("fl:0"), out=torch.empty((), dtype=torch.complex64))
    finally:
        torch.fl.config.fallback = "warn"
