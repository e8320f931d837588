"""The OpenCL chip under PyTorch. Each test is a process of its own, with the settings that it is about.

Needs torch-fl and this package installed, and an OpenCL driver.
"""

import os
import subprocess
import sys
import textwrap
import time

import pytest
import torch_fl_opencl

CHIP = {"FL_CHIP_PATH": ":".join(torch_fl_opencl.libraries()), "FL_VISIBLE_DEVICES": "opencl"}


def run(code, check=True, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **CHIP, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


TRAINING = """
    import torch, torch.nn.functional as F
    from torch import nn
    def losses(device):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(8 * 16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 10),
        ).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        x, y = torch.randn(16, 3, 8, 8).to(device), torch.randint(0, 10, (16,)).to(device)
        out = []
        for _ in range(8):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            out.append(loss.item())
        return out
"""


@pytest.mark.parametrize("style", ["processor", "gpu"])
def test_trains_as_the_cpu(style):
    run(
        TRAINING
        + """
    ours, theirs = losses("opencl"), losses("cpu")
    assert theirs[-1] < theirs[0] / 2
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert not any(c["fallback"] for c in torch.fl.op_report().values())
    """,
        FL_OPENCL_STYLE=style,
    )


@pytest.mark.parametrize("style", ["processor", "gpu"])
def test_padding_takes_no_part_in_a_convolution(style):
    """Zeros in its place would make infinite weights and gradients NaN."""
    run(
        """
        import math, torch, torch.nn.functional as F
        def results(device, weight, gradient):
            x = torch.linspace(-1, 1, 2 * 4 * 11 * 9).view(2, 4, 11, 9).to(device).requires_grad_()
            w, g = weight.to(device).requires_grad_(), gradient.to(device)
            y = F.conv2d(x, w, padding=1)
            return [t.cpu() for t in (y.detach(), *torch.autograd.grad(y, (x, w), g))]
        torch.manual_seed(0)
        plain = torch.randn(5, 4, 3, 3), torch.randn(2, 5, 11, 9)
        weight, gradient = (t.clone() for t in plain)
        weight[1, 0, 0, 0], weight[2, 3, 2, 0] = math.inf, -math.inf
        gradient[0, 1, 0, 0], gradient[1, 2, 10, 8] = math.inf, -math.inf
        for operands in (plain, (weight, plain[1]), (plain[0], gradient), (weight, gradient)):
            for ours, theirs in zip(results("opencl", *operands), results("cpu", *operands)):
                torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=1e-4)
        """,
        FL_OPENCL_STYLE=style,
    )


def test_beside_another_chip():
    run(
        """
        import torch
        a = torch.arange(6.0).view(2, 3)
        assert torch.equal(a.to("opencl").to("sim").to("opencl:0").t().cpu(), a.t())
        assert (a.to("sim") + 1).device != (a.to("opencl") + 1).device
        try:
            a.to("sim") + a.to("opencl")
        except RuntimeError as error:
            assert "cuda:0" in str(error) and "cuda:1" in str(error), error
        else:
            raise SystemExit("no error")
        """,
        FL_VISIBLE_DEVICES="opencl,sim",
    )


TWO = {"POCL_DEVICES": "pthread pthread"}


def test_two_devices():
    run(
        """
        import torch
        from torch import nn
        assert torch.cuda.device_count() == 2
        first, second = torch.arange(6.0, device="opencl:0").view(2, 3), torch.ones(3, 4, device="opencl:1")
        assert torch.equal(first.to("opencl:1").t().to("opencl:0").cpu(), first.cpu().t())
        try:
            first @ second
        except RuntimeError as error:
            assert "cuda:0" in str(error) and "cuda:1" in str(error), error
        else:
            raise SystemExit("no error")

        # A model with a half on each, and its gradients.
        torch.manual_seed(0)
        halves = [nn.Linear(16, 32), nn.Linear(32, 4)]
        x = torch.randn(8, 16)
        (halves[1](halves[0](x).relu()) ** 2).sum().backward()
        wanted = [p.grad.clone() for h in halves for p in h.parameters()]
        for half, device in zip(halves, ("opencl:0", "opencl:1")):
            half.zero_grad()
            half.to(device)
        out = halves[1](halves[0](x.to("opencl:0")).relu().to("opencl:1"))
        assert out.device.index == 1
        (out ** 2).sum().backward()
        for p, w in zip((p for h in halves for p in h.parameters()), wanted):
            torch.testing.assert_close(p.grad.cpu(), w)

        # A stream of one waits for an event of the other; each has memory of its own.
        streams = [torch.cuda.Stream(f"cuda:{i}") for i in (0, 1)]
        with torch.cuda.stream(streams[0]):
            big = torch.full((1 << 22,), 2.0, device="opencl:0")
            big = big.cumsum(0)
            there = big[-1:].to("opencl:1", non_blocking=True)
        streams[1].wait_stream(streams[0])
        with torch.cuda.stream(streams[1]):
            assert (there * 2).item() == 2 * 2 * (1 << 22)
        before = torch.cuda.memory_allocated(1)
        kept = torch.empty(1 << 20, device="opencl:0")
        assert torch.cuda.memory_allocated(1) == before
        """,
        **TWO,
    )


@pytest.mark.parametrize("device", [0, 1])
def test_each_of_two_devices_reports_its_faults(device):
    run(
        f"""
        import torch
        x, other = torch.arange(4.0, device="opencl:{device}"), torch.ones(3, device="opencl:{1 - device}")
        try:
            x[torch.tensor([7], device="opencl:{device}")].cpu()
        except IndexError as error:
            assert "7" in str(error), error
        else:
            raise SystemExit("no error")
        assert (other + 1).tolist() == [2, 2, 2] and (x + 1).tolist() == [1, 2, 3, 4]
        """,
        **TWO,
    )


def test_host_code_cannot_touch_its_memory():
    code = "import ctypes, torch; print(ctypes.string_at(torch.ones(4, device='opencl').data_ptr(), 4))"
    assert run(code, check=False).returncode == -11


def test_exhaustion():
    run(
        """
        import torch
        kept = torch.ones(1 << 20, device="opencl")
        for _ in range(2):
            try:
                torch.empty(1 << 30, dtype=torch.uint8, device="opencl")
            except torch.OutOfMemoryError:
                pass
            else:
                raise SystemExit("no error")
            assert (kept + torch.ones(1 << 20, device="opencl")).sum().item() == 2 << 20
        # A batch that does not fit, and half of it.
        model = torch.nn.Linear(4096, 4096, device="opencl")
        def step(batch):
            model.zero_grad()
            model(torch.ones(batch, 4096, device="opencl")).sum().backward()
            return model.bias.grad[0].item()
        try:
            step(8192)
        except torch.OutOfMemoryError:
            pass
        else:
            raise SystemExit("no error")
        assert step(512) == 512
        """,
        FL_OPENCL_MEMORY=str(256 << 20),
    )


def test_rounds_and_converts_as_the_cpu():
    run("""
        import math, torch
        values = [3e9, -3e9, 1e20, -1e20, 300.7, -300.7, 70000.2, -70000.2, 2.0**31, -2.0**31]
        values += [math.inf, -math.inf, math.nan]
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            x = torch.tensor(values * 9, dtype=dtype)
            for to in (torch.int8, torch.int16, torch.int32, torch.int64):
                assert torch.equal(x.to("opencl").to(to).cpu(), x.to(to)), (dtype, to)
        # Products and sums rounded once where the CPU rounds them once.
        x = torch.rand(1 << 16) * 18 - 9
        for f in (torch.special.hermite_polynomial_h, torch.special.hermite_polynomial_he):
            assert torch.equal(f(x.to("opencl"), 5).cpu(), f(x, 5)), f
    """)


def test_an_index_out_of_range_is_told_and_the_process_goes_on():
    run("""
        import torch
        x = torch.arange(4.0, device="opencl")
        try:
            x[torch.tensor([7], device="opencl")].cpu()
        except IndexError as error:
            assert "7" in str(error) and "4" in str(error), error
        else:
            raise SystemExit("no error")
        assert (x + 1).tolist() == [1, 2, 3, 4]
    """)


def test_counting_devices_leaves_the_process_able_to_fork():
    run("""
        import os, torch
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        child = os.fork()
        if not child:
            os._exit(0 if (torch.ones(3, device="opencl") + 1).tolist() == [2, 2, 2] else 1)
        assert os.waitpid(child, 0)[1] == 0
    """)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_cache_is_compiled_again(tmp_path, damage):
    code = "import torch; print((torch.ones(3, device='opencl') * 2).tolist())"
    assert run(code, FL_OPENCL_CACHE=str(tmp_path)).stdout == "[2.0, 2.0, 2.0]\n"
    files = list(tmp_path.iterdir())
    assert files and not [f for f in files if f.suffix != ".bin"]
    for file in files:
        content = bytearray(file.read_bytes())
        content[-100] ^= 1
        file.write_bytes({"cut": content[:-50], "changed": content, "empty": b""}[damage])
    before = {f: f.read_bytes() for f in files}
    assert run(code, FL_OPENCL_CACHE=str(tmp_path)).stdout == "[2.0, 2.0, 2.0]\n"
    assert all(f.read_bytes() != before[f] for f in files)


def test_killed_while_writing(tmp_path):
    """However far a process got, the next one computes right, and what it left half-written goes in time."""
    code = textwrap.dedent(TRAINING) + "print(losses('opencl')[-1])"
    settings = {**os.environ, **CHIP, "FL_OPENCL_CACHE": str(tmp_path)}
    for files in (0, 1, 4):
        waiting = code + "\nimport time; time.sleep(100)"
        victim = subprocess.Popen([sys.executable, "-c", waiting], env=settings, stdout=subprocess.DEVNULL)
        while victim.poll() is None and len(list(tmp_path.iterdir())) <= files:
            time.sleep(0.001)
        victim.kill()
        victim.wait()
    left = tmp_path / "0123456789abcdef.bin.1"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    said = [run(code, FL_OPENCL_CACHE=cache).stdout for cache in (str(tmp_path), "")]
    assert said[0] == said[1] and not left.exists()


def test_two_processes_and_one_cache(tmp_path):
    code = textwrap.dedent(TRAINING) + "print(losses('opencl'))"
    settings = {**CHIP, "FL_OPENCL_CACHE": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **settings}, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [p.communicate(timeout=600)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0] and said[0] == said[1]


def test_a_forked_loader_feeds_it():
    run("""
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        torch.ones(1, device="opencl")
        data = TensorDataset(torch.arange(64.0).view(32, 2))
        total = 0
        for (x,) in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
            total += x.to("opencl", non_blocking=True).sum().item()
        assert total == 64 * 63 / 2
    """)


def test_memory_stays_flat():
    run(
        """
        import time, torch
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096
        x = torch.randn(64, 64, device="opencl", requires_grad=True)
        def steps(n):
            for _ in range(n):
                (x @ x).relu().sum().backward()
                x.grad = None
            torch.cuda.synchronize()
        steps(1000)
        time.sleep(5)  # what is worth a kernel of its own is being compiled
        steps(1000)
        device, host = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()), resident()
        steps(10000)
        assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == device
        assert resident() - host < 8 << 20, resident() - host
    """,
        FL_OPENCL_CACHE="",  # to write kernels takes memory
    )
