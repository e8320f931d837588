"""Training that is resumed, numbers that are the same on every chip, checkpoints that load everywhere."""


import pytest
from child import run_beside_template, run_child

TRAINING = """
import sys, torch
from torch import nn

def make(device):
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(32), nn.Linear(32, 4))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    return model, optimizer, schedule, torch.amp.GradScaler("cuda", init_scale=1024.0)

def steps(n, device, model, optimizer, schedule, scaler):
    for _ in range(n):
        x = torch.randn(16, 8, device=device)
        y = torch.randint(0, 4, (16,), device=device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    return loss.item()

def state(model, optimizer, schedule, scaler):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
            "scaler": scaler.state_dict(), "cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}

def load(path, parts, device, **how):
    saved = torch.load(path, **how)
    for part, key in zip(parts, ("model", "optimizer", "schedule", "scaler")):
        part.load_state_dict(saved[key])
    torch.set_rng_state(saved["cpu"].cpu())  # map_location moves these too
    torch.cuda.set_rng_state_all([s.cpu() for s in saved["cuda"]])
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A run of 6 steps, saved after 3: the file, and what the whole run ends with."""
    folder = tmp_path_factory.mktemp("resume")
    code = (
        TRAINING
        + f"""
device = "cuda"
parts = make(device)
steps(3, device, *parts)
torch.save(state(*parts), {str(folder / "half.pt")!r})
print(steps(3, device, *parts))
torch.save(state(*parts), {str(folder / "whole.pt")!r})
"""
    )
    run_child(code, FL_CUDA_VIEW="1", FL_SIM_DEVICES="2")
    return folder


EQUAL = """
def equal(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b
"""


@pytest.mark.parametrize("where", [None, "cpu", "cuda:0"])
def test_resumed_training_goes_on_bit_for_bit(checkpoint, where):
    code = (
        TRAINING
        + EQUAL
        + f"""
parts = make("cuda")
steps(2, "cuda", *parts)  # numbers drawn and states reached that the file must undo
load({str(checkpoint / "half.pt")!r}, parts, "cuda", map_location={where!r})
steps(3, "cuda", *parts)
whole = torch.load({str(checkpoint / "whole.pt")!r}, map_location="cpu")
now = state(*parts)
for key in whole:
    assert equal(now[key], whole[key]), key
assert parts[1].state_dict()["state"][0]["exp_avg"].is_cuda
"""
    )
    run_child(code, FL_CUDA_VIEW="1", FL_SIM_DEVICES="2")


@pytest.mark.parametrize("view", ["1", "0"])
def test_checkpoints_load_without_torch_fl(tmp_path, view):
    path = str(tmp_path / "x.pt")
    name = "cuda" if view == "1" else "fl"
    run_child(f"""
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to("{name}")
        optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)
        model(torch.ones(4, 3, device="{name}")).sum().backward()
        optimizer.step()
        torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "rng": torch.fl.get_rng_state_all(), "whole": model}}, {path!r})
        print(model[0].weight.sum().item())
    """, FL_CUDA_VIEW=view)  # fmt: skip
    code = f"""
        import torch
        assert not hasattr(torch, "fl")
        for how in (dict(), dict(weights_only=False)):
            try:
                saved = torch.load({path!r}, map_location="cpu", weights_only=False)
            except RuntimeError as error:
                raise SystemExit(str(error))
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        model.load_state_dict(saved["model"])
        optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)
        optimizer.load_state_dict(saved["optimizer"])
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        assert saved["whole"](torch.ones(4, 3)).shape == (4, 2) and saved["rng"][0].numel() == 16
        try:
            torch.load({path!r}, weights_only=False)
        except RuntimeError as error:
            print(error)
    """
    done = run_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    if view == "1":  # as for a file from an NVIDIA machine
        assert "map_location=torch.device('cpu')" in done.stdout


def test_checkpoints_load_without_a_device(checkpoint):
    code = f"""
        import torch
        assert torch.fl.device_count() == 0
        saved = torch.load({str(checkpoint / "half.pt")!r}, map_location="cpu")
        assert saved["model"]["0.weight"].device.type == "cpu"
    """
    for view in ("0", "1", "auto"):
        run_child(code, FL_SIM_DEVICES="0", FL_CUDA_VIEW=view)


def test_checkpoints_load_on_another_chip(checkpoint):
    code = (
        TRAINING
        + f"""
parts = make("cuda")
assert torch.cuda.get_device_properties(0).chip == "template:0"
path = {str(checkpoint / "half.pt")!r}
saved = torch.load(path)
assert saved["model"]["0.weight"].device == torch.device("cuda:0")
reference = torch.load(path, map_location="cpu")
for key, value in saved["model"].items():
    assert torch.equal(value.cpu(), reference["model"][key])
load(path, parts, "cuda")
assert abs(steps(3, "cuda", *parts)) < 10
"""
    )
    run_beside_template(code, FL_DEVICE="template:0", FL_CUDA_VIEW="1", FL_SIM_DEVICES="1")


def test_the_same_seed_gives_the_same_numbers_on_every_chip():
    code = """
        import torch
        def numbers(device):
            torch.manual_seed(123)
            torch.fl.manual_seed_all(123)
            x = torch.ones(1000, device=device, requires_grad=True)
            y = torch.nn.functional.dropout(x, 0.3)
            z = torch.utils.checkpoint.checkpoint(lambda t: torch.nn.functional.dropout(t, 0.5), y, use_reentrant=False)
            z.sum().backward()
            drawn = [torch.rand(7, device=device), torch.randn(1001, device=device), torch.randn(3, 5, device=device),
                     torch.randint(0, 1000, (300,), device=device), torch.randperm(100, device=device),
                     torch.bernoulli(torch.full((50,), 0.4, device=device)), torch.empty(9, device=device).uniform_(-2, 3),
                     torch.randint(-2**62, 2**62, (20,), device=device, dtype=torch.int64), torch.empty(40, device=device).exponential_(),
                     torch.rand(33, device=device, dtype=torch.bfloat16), torch.multinomial(torch.ones(10, device=device), 4)]
            return [t.detach().cpu() for t in (y, z, x.grad, *drawn)], torch.fl.get_rng_state(device)
        (a, s), (b, t) = numbers("sim:0"), numbers("template:0")
        assert torch.equal(s, t)
        for i, (x, y) in enumerate(zip(a, b)):
            if x.dtype.is_floating_point and i in (4, 5, 11):
                torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)  # logarithms and cosines: the chips' own
            else:
                assert torch.equal(x, y), (i, x, y)
    """
    run_beside_template(code)
