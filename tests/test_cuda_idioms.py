"""Sixty idioms of scripts that were written for CUDA, 1 to 37: what a CUDA user sees, seen here with the view on.

The others are in test_cuda_idioms_around.py: files, loaders, settings, memory, exported models, neighbours.
"""

import copy
import warnings

import pytest
import torch
from child import run_child, run_forked
from idioms import old_ways, two_devices, view  # noqa: F401 - a fixture for each test
from torch import nn

pytestmark = old_ways


# ------------------------------------------------------------------ devices


def test_01_the_device_line():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert device.type == "cuda" and device == torch.device("cuda") and str(device) == "cuda"


def test_02_count_and_names():
    n = torch.cuda.device_count()
    assert n == torch.fl.device_count() >= 1
    assert all(torch.cuda.get_device_name(i) for i in range(n))
    with pytest.raises((RuntimeError, AssertionError)):
        torch.cuda.get_device_name(n)


def test_03_properties():
    p = torch.cuda.get_device_properties(torch.device("cuda"))
    assert p.name and p.total_memory > 0 and p.multi_processor_count > 0 and p.major >= 0 and p.minor >= 0
    assert torch.cuda.get_device_capability() == (p.major, p.minor)
    assert f"{p.total_memory / 1024**3:.1f} GiB"


def test_04_what_a_tensor_says():
    x = torch.zeros(2, device="cuda")
    assert x.is_cuda and x.device.type == "cuda" and x.get_device() == 0 and not x.is_cpu
    assert "device='cuda:0'" in repr(x) and repr(x.device) == "device(type='cuda', index=0)"
    assert x.type() == "torch.cuda.FloatTensor" and f"{x.device}" == "cuda:0"


def test_05_cuda_with_non_blocking():
    x = torch.arange(6).pin_memory()
    y = x.cuda(non_blocking=True)
    assert y.is_cuda and torch.equal(y.cpu(), torch.arange(6))
    z = torch.rand(1, 2, 3, 4).cuda(memory_format=torch.channels_last)
    assert z.is_contiguous(memory_format=torch.channels_last)


@two_devices
def test_06_cuda_means_the_current_device():
    x = torch.ones(2, device="cuda:1")
    assert x.cuda(1) is x and x.cuda("cuda:1") is x
    assert x.cuda().device.index == 0
    with torch.cuda.device(1):
        assert x.cuda() is x


def test_07_cuda_refuses_other_devices():
    for wrong in ("cpu", torch.device("cpu"), "meta"):
        with pytest.raises(RuntimeError, match="must be cuda device"):
            torch.ones(1).cuda(wrong)


@two_devices
def test_08_indices():
    assert torch.ones(1).to(0).device == torch.device("cuda:0")
    assert torch.ones(1).to(1).device == torch.device("cuda", 1)
    assert torch.ones(1, device=1).device == torch.device("cuda:1") == torch.device(1)
    assert nn.Linear(1, 1).to(1).weight.get_device() == 1


def test_09_old_tensor_types():
    dtype = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    x = torch.ones(3, dtype=torch.float64).type(dtype)
    assert x.is_cuda and x.dtype == torch.float32 and isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x, torch.cuda.HalfTensor) and not isinstance(x, torch.FloatTensor)
    assert not isinstance(x.cpu(), dtype)
    for text, want in [("torch.cuda.LongTensor", torch.int64), ("torch.cuda.HalfTensor", torch.float16)]:
        assert torch.ones(2).type(text).type() == text
        assert torch.ones(2).type(dtype=text).dtype == want
    assert x.type(torch.float64).type() == "torch.cuda.DoubleTensor"
    assert x.type("torch.FloatTensor").device.type == "cpu"
    assert x.to_sparse().type() == "torch.cuda.sparse.FloatTensor"
    assert isinstance(x.to_sparse(), torch.cuda.sparse.FloatTensor)


def test_10_old_constructors():
    assert torch.cuda.FloatTensor([1, 2]).tolist() == [1, 2]
    assert torch.cuda.LongTensor(2, 3).shape == (2, 3)
    assert torch.cuda.ByteTensor([1]).is_cuda


def test_11_default_tensor_type():
    code = """
        import torch
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        assert torch.Tensor(3).is_cuda and torch.zeros(2).is_cuda and torch.tensor([1.0]).is_cuda
        assert torch.nn.Linear(2, 2).weight.is_cuda
        torch.set_default_tensor_type(torch.cuda.HalfTensor)
        assert torch.ones(1).dtype == torch.float16
        torch.set_default_tensor_type(torch.FloatTensor)
        assert not torch.zeros(2).is_cuda
    """
    run_child(code, FL_CUDA_VIEW="1")


def test_12_default_device():
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(2).is_cuda and nn.Linear(2, 2).weight.is_cuda
        assert torch.get_default_device() == torch.device("cuda:0")
    finally:
        torch.set_default_device(None)
    with torch.device("cuda"):
        assert torch.rand(2).is_cuda
    assert not torch.rand(2).is_cuda


@two_devices
def test_13_device_contexts():
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1 and torch.ones(1, device="cuda").device.index == 1
        with torch.cuda.device(torch.device("cuda:0")):
            assert torch.ones(1).cuda().device.index == 0
    with torch.cuda.device("cuda:1"):
        assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0


@two_devices
def test_14_two_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="same device.*cuda:[01] and cuda:[01]"):
        torch.ones(1, device="cuda:0") + torch.ones(1, device="cuda:1")
    with pytest.raises(RuntimeError, match="cuda:0 and cpu|cpu and cuda:0"):
        torch.ones(2, 2, device="cuda") @ torch.ones(2, 2)


def test_15_numpy_wants_the_cpu():
    x = torch.ones(2, device="cuda")
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu"):
        x.numpy()
    assert x.cpu().numpy().tolist() == x.tolist() == [1, 1]


@two_devices
def test_16_cuda_visible_devices():
    code = "import torch; print(torch.cuda.device_count(), *[torch.fl.get_device_properties(i).chip for i in range(torch.cuda.device_count())])"
    for value, said in [("1", "1 sim:1"), ("1,0", "2 sim:1 sim:0"), ("", "0"), ("-1", "0"),
                        ("0,-1,1", "1 sim:0"), (" 1 ", "1 sim:1"), ("0,7", "1 sim:0"), ("0,0", "0")]:  # fmt: skip
        shown = run_forked(code, CUDA_VISIBLE_DEVICES=value, FL_CUDA_VIEW="1", FL_SIM_DEVICES="2")
        assert shown.stdout.strip() == said, value
    late = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n" + code
    assert run_forked(late, FL_CUDA_VIEW="1", FL_SIM_DEVICES="2").stdout.strip() == "1 sim:1"


def test_17_cuda_visible_devices_is_not_looked_at_with_the_view_off():
    code = "import torch; print(torch.fl.device_count())"
    assert run_child(code, CUDA_VISIBLE_DEVICES="1", FL_CUDA_VIEW="0", FL_SIM_DEVICES="2").stdout == "2\n"


# ------------------------------------------------------- modules and training


def test_18_module_cuda_keeps_its_parameters():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.cuda()
    assert all(p.is_cuda and p is q for p, q in zip(model.parameters(), optimizer.param_groups[0]["params"]))
    assert model[1].running_mean.is_cuda


def test_19_a_training_step_equals_the_cpus():
    def train(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        x, y = torch.linspace(-1, 1, 24).reshape(6, 4).to(device), torch.tensor([0, 1, 0, 1, 1, 0]).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.item(), model.state_dict()

    (here, state), (there, reference) = train("cuda"), train("cpu")
    assert here == pytest.approx(there, rel=1e-5)
    for name in state:
        torch.testing.assert_close(state[name].cpu(), reference[name])


@two_devices
def test_20_data_parallel():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).cuda()
    alone = copy.deepcopy(model)
    parallel = nn.DataParallel(model)
    assert parallel.device_ids == list(range(torch.cuda.device_count()))
    parallel = nn.DataParallel(model.eval(), device_ids=[0, 1])
    x = torch.randn(7, 4)
    out = parallel(x)
    assert out.device == torch.device("cuda:0") and out.shape == (7, 2)
    out.square().sum().backward()
    alone.eval()(x.cuda()).square().sum().backward()
    for p, q in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(p.grad, q.grad)
    assert set(parallel.state_dict()) == {f"module.{name}" for name in model.state_dict()}


@two_devices
def test_21_copies_between_devices():
    from torch.cuda import comm

    x = torch.arange(6.0, requires_grad=True)
    with torch.no_grad():
        parts = comm.scatter(x, [0, 1])
        assert [(p.device.index, p.tolist()) for p in parts] == [(0, [0, 1, 2]), (1, [3, 4, 5])]
        assert [p.numel() for p in comm.scatter(x, [1, 0], chunk_sizes=[2, 4])] == [2, 4]
        assert comm.gather(parts, destination="cuda:1").device.index == 1
        assert torch.equal(comm.gather(parts, destination="cpu"), x)
        copies = comm.broadcast(x.cuda(), [0, 1])
        assert [c.device.index for c in copies] == [0, 1] and torch.equal(copies[1].cpu(), x)
        assert torch.equal(comm.reduce_add(copies, 1).cpu(), 2 * x)
        many = comm.broadcast_coalesced([x.cuda(), x.cuda() + 1], [0, 1])
        assert [[t.device.index for t in group] for group in many] == [[0, 0], [1, 1]]
        assert torch.equal(comm.reduce_add_coalesced(many)[1].cpu(), 2 * (x + 1))


@pytest.mark.parametrize("reentrant", [True, False])
def test_22_checkpointing_with_dropout(reentrant):
    block = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)).cuda()
    x = torch.randn(16, 64, device="cuda", requires_grad=True)
    torch.cuda.manual_seed(5)
    plain = block(x)
    plain.sum().backward()
    expected, x.grad = x.grad, None
    torch.cuda.manual_seed(5)
    out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant)
    out.sum().backward()
    assert torch.equal(out, plain) and torch.equal(x.grad, expected)


def test_23_recurrent_layers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = nn.LSTM(4, 3, batch_first=True).cuda()
        layer.flatten_parameters()
        packed = nn.utils.rnn.pack_padded_sequence(torch.ones(2, 5, 4).cuda(), [5, 3], batch_first=True)
        assert packed.is_cuda and packed.cpu().data.device.type == "cpu" and packed.cpu().cuda().is_cuda
        assert layer(packed)[0].data.is_cuda


def test_24_gradient_clipping_and_foreach():
    model = nn.Linear(3, 3).cuda()
    model(torch.ones(1, 3, device="cuda")).sum().mul(100).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert norm.is_cuda and norm > 1
    assert nn.utils.parameters_to_vector(model.parameters()).norm().isfinite()
    torch.optim.AdamW(model.parameters(), foreach=True).step()
    torch.optim.AdamW(model.parameters(), fused=True).step()
    torch.optim.Adam(model.parameters(), capturable=True).step()


# ---------------------------------------------------------- streams and events


def test_25_a_side_stream():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x = torch.ones(1000, device="cuda") * 2
        assert torch.cuda.current_stream() == side
    torch.cuda.current_stream().wait_stream(side)
    x.record_stream(torch.cuda.current_stream())
    assert x.sum().item() == 2000 and torch.cuda.current_stream() == torch.cuda.default_stream()


def test_26_timing_with_events():
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    x = torch.ones(300, 300, device="cuda")
    for _ in range(5):
        x = x @ x * 1e-3
    end.record()
    torch.cuda.synchronize()
    assert end.query() and 0 < start.elapsed_time(end) < 60_000


def test_27_events_order_streams():
    a, b = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    done = torch.cuda.Event()
    with torch.cuda.stream(a):
        x = torch.full((1 << 16,), 3.0, device="cuda")
        done.record(a)
    b.wait_event(done)
    with torch.cuda.stream(b):
        y = x + 1
    b.synchronize()
    done.synchronize()
    assert y.mean().item() == 4 and isinstance(a, torch.cuda.Stream) and a != b


@two_devices
def test_28_streams_of_another_device():
    stream = torch.cuda.Stream(device="cuda:1")
    with torch.cuda.stream(stream):
        assert torch.cuda.current_device() == 1 and torch.ones(1, device="cuda").device.index == 1
    assert torch.cuda.current_device() == 0
    torch.cuda.synchronize(1)
    torch.cuda.synchronize(torch.device("cuda:1"))


# ------------------------------------------------------------- mixed precision


def test_29_autocast():
    a = torch.ones(4, 4, device="cuda")
    for context in (torch.autocast("cuda"), torch.autocast(device_type="cuda", dtype=torch.float16),
                    torch.amp.autocast("cuda"), torch.cuda.amp.autocast()):  # fmt: skip
        with context:
            assert (a @ a).dtype == torch.float16 and (a @ a).softmax(0).dtype == torch.float32
            assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
    assert not torch.is_autocast_enabled()
    with torch.cuda.amp.autocast(enabled=False):
        assert (a @ a).dtype == torch.float32


def test_30_autocast_in_bfloat16():
    a = torch.ones(4, 4, device="cuda")
    assert torch.cuda.is_bf16_supported()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16 == torch.get_autocast_dtype("cuda")
        assert torch.get_autocast_gpu_dtype() == torch.bfloat16
    assert torch.get_autocast_gpu_dtype() == torch.float16


def test_31_the_old_setters():
    a = torch.ones(2, 2, device="cuda")
    torch.set_autocast_enabled(True)
    torch.set_autocast_gpu_dtype(torch.bfloat16)
    try:
        assert (a @ a).dtype == torch.bfloat16
    finally:
        torch.set_autocast_enabled(False)
        torch.set_autocast_gpu_dtype(torch.float16)
        torch.clear_autocast_cache()


@pytest.mark.parametrize("make", [lambda: torch.amp.GradScaler("cuda"), lambda: torch.cuda.amp.GradScaler()])
def test_32_grad_scalers(make):
    scaler = make()
    assert scaler.is_enabled() and scaler.get_scale() == 65536
    w = torch.ones(3, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.5)
    scaler.scale((w * 2).sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [2, 2, 2]
    nn.utils.clip_grad_norm_([w], 1e9)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0, 0, 0]
    optimizer.zero_grad()
    scaler.scale((w * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0, 0, 0] and scaler.get_scale() == 32768
    again = make()
    again.load_state_dict(scaler.state_dict())
    assert again.get_scale() == 32768


def test_33_custom_functions_under_autocast():
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.t(), a.t() @ grad

    a = torch.ones(2, 2, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        out = Product.apply(a, a)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert a.grad.dtype == torch.float16


# ---------------------------------------------------------------------- random


def test_34_generators():
    g = torch.Generator("cuda").manual_seed(3)
    h = torch.Generator(device="cuda:0")
    h.manual_seed(3)
    assert g.device == torch.device("cuda:0") and g.device.type == "cuda"
    assert torch.equal(torch.randn(9, device="cuda", generator=g), torch.randn(9, device="cuda", generator=h))
    assert torch.randperm(5, generator=g, device="cuda").is_cuda


def test_35_seeds():
    torch.manual_seed(7)
    a = torch.rand(5, device="cuda")
    torch.cuda.manual_seed(7)
    b = torch.rand(5, device="cuda")
    torch.cuda.manual_seed_all(7)
    c = torch.rand(5, device="cuda")
    assert torch.equal(a, b) and torch.equal(b, c) and torch.cuda.initial_seed() == 7


def test_36_fork_rng():
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        a = torch.rand(3, device="cuda")
    assert torch.equal(torch.rand(3, device="cuda"), a)
    with torch.random.fork_rng(devices=["cuda:0"]):
        torch.rand(3, device="cuda")


def test_37_rng_states():
    states, state = torch.cuda.get_rng_state_all(), torch.cuda.get_rng_state()
    assert len(states) == torch.cuda.device_count() and state.dtype == torch.uint8 and not state.is_cuda
    a = torch.randn(4, device="cuda")
    torch.cuda.set_rng_state_all(states)
    b = torch.randn(4, device="cuda")
    torch.cuda.set_rng_state(state, "cuda:0")
    assert torch.equal(a, b) and torch.equal(torch.randn(4, device="cuda"), a)
