"""torch.cuda, .cuda() and is_cuda while the CUDA view is on, and that off means off."""

import copy
import io
import warnings

import pytest
import torch
from child import run_child
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_fl

two_devices = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")


@pytest.fixture(autouse=True)
def view():
    with torch_fl.cuda_view():
        yield


def test_on_by_default_without_nvidia():
    code = "import torch, torch_fl; print(torch.cuda.is_available(), torch.device('fl').type)"
    expected = "True cuda\n" if not torch_fl.cuda_view.nvidia_is_usable() else "True fl\n"
    assert run_child(code).stdout == expected
    assert run_child(code, FL_CUDA_VIEW="1").stdout == "True cuda\n"
    assert run_child(code, FL_CUDA_VIEW="0").stdout.endswith("fl\n")


def test_the_idiom():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.arange(6.0, device=device).reshape(2, 3)
    assert x.device.type == "cuda" and x.is_cuda and not x.cpu().is_cuda
    assert (x + 1).sum().item() == 21
    assert "device='cuda:0'" in repr(x)


def test_questions():
    assert torch.cuda.device_count() == torch.fl.device_count()
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_name(0) == torch.cuda.get_device_properties("cuda:0").name
    assert torch.cuda.get_device_properties(0).total_memory > 0
    assert len(torch.cuda.get_device_capability()) == 2
    assert torch.cuda.is_initialized() and torch.cuda.is_bf16_supported()
    with pytest.raises(RuntimeError, match="99"):
        torch.cuda.get_device_properties(99)


@pytest.mark.parametrize("target", ["cuda", "cuda:0", 0, torch.device("fl", 0), "fl:0", "sim:0"])
def test_to(target):
    x = torch.ones(3)
    assert x.to(target).is_cuda
    assert nn.Linear(2, 2).to(target).weight.is_cuda
    assert torch.zeros(2, device=target).is_cuda


def test_cuda_methods():
    x = torch.ones(3).cuda()
    assert x.is_cuda and x.cuda() is x
    assert torch.ones(3).cuda(0).device.index == 0
    assert torch.ones(3).cuda("cuda:0", non_blocking=True).is_cuda
    assert torch.ones(3).cuda(device=torch.device("cuda", 0)).is_cuda
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before = list(model.parameters())
    assert model.cuda() is model and all(p.is_cuda for p in model.parameters())
    assert all(p is q for p, q in zip(before, model.parameters(), strict=True))
    assert model.cpu()[0].weight.device.type == "cpu"


@two_devices
def test_several_devices():
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
        assert torch.ones(1, device="cuda").device.index == 1
        assert torch.ones(1).cuda().device.index == 1
    assert torch.cuda.current_device() == 0
    with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
        assert torch.cuda.current_device() == 1
    torch.cuda.set_device("cuda:1")
    assert torch.cuda.current_device() == 1
    torch.cuda.set_device(0)
    with pytest.raises(RuntimeError, match="cuda:1.*cuda:0|cuda:0.*cuda:1"):
        torch.ones(1, device="cuda:0") + torch.ones(1, device="cuda:1")


def test_seeds():
    torch.cuda.manual_seed(7)
    a = torch.rand(5, device="cuda")
    torch.manual_seed(7)
    b = torch.rand(5, device="cuda")
    torch.cuda.manual_seed_all(7)
    state = torch.cuda.get_rng_state()
    c = torch.rand(5, device="cuda")
    torch.cuda.set_rng_state(state)
    d = torch.rand(5, device="cuda")
    assert torch.equal(a.cpu(), b.cpu()) and torch.equal(a.cpu(), c.cpu()) and torch.equal(c.cpu(), d.cpu())
    assert torch.cuda.initial_seed() == 7
    assert (
        len(torch.cuda.default_generators) == torch.cuda.device_count() == len(torch.cuda.get_rng_state_all())
    )
    with pytest.raises(IndexError):
        torch.cuda.default_generators[99]
    generator = torch.Generator("cuda").manual_seed(3)
    assert generator.device.type == "cuda"
    torch.rand(2, device="cuda", generator=generator)
    with torch.random.fork_rng(devices=[0]):
        torch.rand(1, device="cuda")


def test_streams_and_events():
    side = torch.cuda.Stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.ones(1000, device="cuda")
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        side.wait_stream(torch.cuda.default_stream())
        start.record()
        y = x * 2
        end.record()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0 and end.query() and side.query()
    assert y.sum().item() == 2000
    assert isinstance(torch.cuda.current_stream(), torch.cuda.Stream)
    assert isinstance(start, torch.cuda.Event) and isinstance(side.record_event(), torch.cuda.Event)
    x.record_stream(side)
    with torch.cuda.stream(None):
        pass


def test_memory():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before >= 4 << 20
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
    assert "reserved" in torch.cuda.memory_summary()
    del x
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    assert isinstance(torch.cuda.memory_snapshot(), list)


def test_amp():
    x = torch.ones(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        assert (x @ x).dtype == torch.float16
    scaler = torch.amp.GradScaler("cuda")
    w = torch.ones(1, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler.scale((w * 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.item() == pytest.approx(0.8)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_do_not_miss_cudnn(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = kind(4, 3).cuda()
        layer.flatten_parameters()
        assert layer(torch.ones(2, 1, 4, device="cuda"))[0].shape == (2, 1, 3)


def test_pinned():
    x = torch.ones(5).pin_memory()
    assert x.is_pinned() and x.to("cuda", non_blocking=True).sum().item() == 5
    loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, pin_memory=True)
    assert all(batch.is_pinned() for batch in loader)


def test_checkpoints():
    model = nn.Linear(3, 2).to("cuda")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    raw = file.getvalue()
    # Loads here, on the CPU, and through each form of map_location.
    for location, kind in [(None, "cuda"), ("cuda", "cuda"), ("cuda:0", "cuda"), ("cpu", "cpu"),
                           (torch.device("cuda"), "cuda"), ({"cuda:0": "cpu"}, "cpu"),
                           (lambda storage, tag: storage, "cpu")]:  # fmt: skip
        state = torch.load(io.BytesIO(raw), map_location=location)
        assert state["weight"].device.type == kind, location
        assert torch.equal(state["weight"].cpu(), model.weight.detach().cpu())
    assert b"cuda:0" in raw  # so that a machine with an NVIDIA GPU takes it too


@pytest.mark.parametrize("on", [True, False])
def test_deep_copies_of_sparse_tensors(on):
    with torch_fl.cuda_view(on):
        dense = torch.eye(4, device="fl")
        forms = [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((2, 2))]
        for t in forms:
            t.note = ["kept"]
            t.requires_grad_()
            twins = copy.deepcopy([t, t])
            assert twins[0] is twins[1] and twins[0] is not t
            assert twins[0].note == ["kept"] and twins[0].note is not t.note
            assert twins[0].layout == t.layout and twins[0].device == t.device and twins[0].requires_grad
            assert twins[0].detach().values().data_ptr() != t.detach().values().data_ptr()
            assert torch.equal(twins[0].detach().to_dense().cpu(), torch.eye(4))
        assert copy.deepcopy(dense).device == dense.device


@pytest.mark.parametrize("on", [True, False])
def test_fake_tensors_lie_in_memory_as_real_ones(on):
    """PyTorch predicts what NVIDIA's libraries would give for whatever is called "cuda"."""
    with torch_fl.cuda_view(on):
        x = torch.randn(6, 4, 5, device="fl")
        for f in (
            lambda t: torch.fft.rfftn(t),
            lambda t: torch.fft.irfft2(torch.complex(t, t), dim=(0, 1)),
            lambda t: torch.linalg.svd(t).Vh,
            lambda t: torch.linalg.eig(t[:, :, :4]).eigenvectors,
        ):
            with FakeTensorMode() as mode:
                fake = f(mode.from_tensor(x))
            assert fake.stride() == f(x).stride() and fake.device == x.device


def test_file_of_another_device_index_is_refused_clearly():
    file = io.BytesIO()
    torch.save(torch.ones(2, device="cuda"), file)
    raw = file.getvalue().replace(b"cuda:0", b"cuda:9")
    with pytest.raises(RuntimeError, match=r"map_location"):
        torch.load(io.BytesIO(raw))
    assert torch.load(io.BytesIO(raw), map_location="cuda").is_cuda


def test_off_gives_everything_back():
    code = """
        import os
        import torch
        snapshot = lambda: {
            name: vars(owner).get(name, "absent") if (owner := o) is not None else None
            for o in (torch, torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda._utils,
                      torch.cuda.nvtx, torch.cuda.profiler, torch.backends.cuda, torch.backends.cudnn, torch._C,
                      torch._meta_registrations, torch.nn.parallel.comm, torch.amp, torch.serialization)
            for name in list(vars(o)) if name not in ("fl", "_register_privateuse1", "_package_registry")
        }
        before = snapshot()
        tensor_before = dict(vars(torch.Tensor))
        import torch_fl
        from torch_fl import cuda_view
        assert torch.cuda.is_available() and torch.cuda.is_available is not before["is_available"]
        cuda_view.disable()
        assert snapshot() == before
        ours = {"fl", "is_fl"}
        now = {k: v for k, v in vars(torch.Tensor).items() if k not in ours}
        assert now == {k: v for k, v in tensor_before.items() if k not in ours}
        x = torch.ones(1, device="fl")
        assert not x.is_cuda and not torch.cuda.is_available()
        try:
            torch.ones(1).cuda()
        except (AssertionError, RuntimeError) as error:
            print("plain:", error)
    """
    out = run_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", FL_CUDA_VIEW="1").stdout
    assert out.startswith("plain:")


def test_what_is_touched_beside_torch_cuda():
    """In Python two attributes; below three more (is_cuda, cuda, type of a tensor) the bridge answers."""
    from torch_fl import comm, cuda_view

    own = {torch.cuda, torch.cuda.graphs, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda._utils,
           torch.cuda.nvtx, torch.cuda.nccl, torch.cuda.profiler, torch.fl}  # fmt: skip
    others = {
        f"{owner.__name__}.{name}"
        for owner, name, _ in cuda_view._replacements()
        if owner not in own and not (owner is torch._C and hasattr(comm, name))
    }
    assert others == {"torch.backends.cudnn.is_acceptable", "torch._meta_registrations.device_hint"}
    base = vars(torch._C.TensorBase)
    kept = base["is_cuda"], base["cuda"], base["type"], torch.Tensor.is_cuda
    with torch_fl.cuda_view(False):
        assert kept == (base["is_cuda"], base["cuda"], base["type"], torch.Tensor.is_cuda)
    assert not {"is_cuda", "cuda", "type", "__deepcopy__"} & set(vars(torch.Tensor)) - {"__deepcopy__"}
    assert torch.Tensor.__deepcopy__.__module__ == "torch._tensor"


def test_off_is_plain_pytorch():
    x = torch.ones(2, device="cuda")
    with torch_fl.cuda_view(False):
        assert x.device.type == "fl" and not x.is_cuda and x.is_fl and x.type() == "torch.fl.FloatTensor"
        assert not isinstance(x, torch.cuda.FloatTensor) and torch.cuda.FloatTensor.is_cuda
        assert (
            torch._C._get_privateuse1_backend_name() == "fl"
            and torch.accelerator.current_accelerator().type == "fl"
        )
        for call in (x.cuda, lambda: torch.ones(1).cuda(), lambda: x.to("cuda"), lambda: torch.cuda.FloatTensor([1]),
                     lambda: x.type("torch.cuda.FloatTensor"), lambda: torch.zeros(1, device="cuda")):  # fmt: skip
            with pytest.raises((RuntimeError, AssertionError, TypeError), match="CUDA|cuda|NVIDIA driver"):
                call()
        with torch.autocast("fl"):
            assert torch.is_autocast_enabled("fl") and not torch.is_autocast_enabled("cuda")
            # The accelerator's from 2.14 on, CUDA's before.
            assert torch.is_autocast_enabled() == (torch.__version__ >= (2, 14))
            assert torch.get_autocast_gpu_dtype() == torch.float16
        assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
        if not torch.version.cuda:
            assert not hasattr(torch._C, "_scatter") and not hasattr(torch._C, "_cuda_getDeviceCount")
        assert x.fl() is x and x.fl("fl:0") is x and torch.nn.Linear(1, 1).fl().weight.is_fl
    assert x.is_cuda and x.is_fl and x.fl("cuda:0") is x and x.fl("fl:0") is x and not torch.ones(1).is_fl


def test_subclasses_and_modes_see_the_calls():
    seen = []

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, f, types, args=(), kwargs=None):
            seen.append(f)
            return super().__torch_function__(f, types, args, kwargs or {})

    x = torch.ones(2, device="cuda").as_subclass(Mine)
    assert x.is_cuda and seen == [torch.Tensor.is_cuda.__get__]
    assert isinstance(x.cuda(), Mine) and x.type() == "torch.cuda.FloatTensor"
    assert torch.Tensor.cuda in seen and torch.Tensor.type in seen

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, f, types, args=(), kwargs=None):
            seen.append(f)
            return f(*args, **(kwargs or {}))

    seen.clear()
    with Mode():
        assert torch.ones(1).cuda().is_cuda
    assert torch.Tensor.cuda in seen and torch.Tensor.is_cuda.__get__ in seen
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2))
        assert not fake.is_cuda and fake.cuda().is_cuda and fake.cuda().device.type == "cuda"


def test_nested_and_after_errors():
    with pytest.raises(ZeroDivisionError), torch_fl.cuda_view(False):
        with torch_fl.cuda_view():
            assert torch_fl.cuda_view.is_enabled()
        assert not torch_fl.cuda_view.is_enabled()
        _ = 1 / 0
    assert torch_fl.cuda_view.is_enabled()


def test_starts_no_device():
    code = """
        import torch, torch_fl
        assert torch.cuda.is_available() and torch.cuda.device_count() and torch.cuda.get_device_name()
        torch.manual_seed(1)
        from torch_fl import _native
        print(_native.is_open(0))
    """
    assert run_child(code, FL_CUDA_VIEW="1").stdout == "False\n"
