"""The template chip, mandatory entries alone, beside sim in one process: a GPT trains on it with the right losses."""

import os
from pathlib import Path

from child import run_child

BUILD = Path(os.environ.get("FL_BUILD_DIR", Path(__file__).parent.parent / "build"))
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
    run_child(code, timeout=200, FL_CHIP_PATH=str(BUILD / "chips" / "libfl_template.so"))


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
    run_child(code, timeout=200, FL_CHIP_PATH=str(BUILD / "chips" / "libfl_template.so"))


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
    run_child(code, timeout=200, FL_CHIP_PATH=str(BUILD / "chips" / "libfl_template.so"))
