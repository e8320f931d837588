"""Sixty idioms of scripts that were written for CUDA: what a CUDA user sees, seen here with the view on."""

import copy
import io
import os
import pickle
import warnings

import pytest
import torch
from child import run_child, run_forked
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torch_fl

two_devices = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*deprecated:FutureWarning", "ignore:.*deprecated:UserWarning"
)


@pytest.fixture(autouse=True)
def view():
    with torch_fl.cuda_view():
        yield
        torch.cuda.set_device(0)


def reloaded(thing, **how):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **how)


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


# ----------------------------------------------------------------- checkpoints


def test_38_map_location():
    x = torch.arange(3.0, device="cuda")
    for location, kind in [(None, "cuda"), ("cuda", "cuda"), ("cuda:0", "cuda"), ("cpu", "cpu"),
                           (torch.device("cuda"), "cuda"), (torch.device("cuda", 0), "cuda"),
                           (torch.device("cpu"), "cpu"), ({"cuda:0": "cpu"}, "cpu"), ("fl:0", "cuda"), ("sim:0", "cuda"),
                           (lambda storage, tag: storage, "cpu"),
                           (lambda storage, tag: storage.cuda(0), "cuda")]:  # fmt: skip
        y = reloaded(x, map_location=location)
        assert y.device.type == kind and y.tolist() == [0, 1, 2], location


@two_devices
def test_39_checkpoints_across_devices():
    x = torch.arange(3.0, device="cuda:1")
    assert reloaded(x).device == torch.device("cuda:1")
    assert reloaded(x, map_location={"cuda:1": "cuda:0"}).device == torch.device("cuda:0")
    assert reloaded(x, map_location="cuda:0").device == torch.device("cuda:0")
    assert reloaded(x.cpu(), map_location="cuda:1").device == torch.device("cuda:1")
    with pytest.raises(RuntimeError, match=r"CUDA device 99 .*map_location"):
        reloaded(x, map_location="cuda:99")


def test_40_the_file_says_cuda():
    file = io.BytesIO()
    torch.save({"x": torch.ones(2, device="cuda"), "device": torch.device("cuda:0")}, file)
    assert b"cuda:0" in file.getvalue() and b"fl:0" not in file.getvalue()


def test_41_deepcopy_and_pickle():
    model = nn.Linear(2, 2).cuda()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.weight.is_cuda and torch.equal(twin.weight, model.weight)
        assert twin.weight.data_ptr() != model.weight.data_ptr()
    assert pickle.loads(pickle.dumps(torch.device("cuda:0"))) == torch.device("cuda:0")
    assert copy.deepcopy(torch.ones(2, 2, device="cuda").to_sparse_csr()).is_cuda


def test_42_storages():
    s = torch.arange(3.0, device="cuda").untyped_storage()
    assert s.is_cuda and s.device.type == "cuda" and not s.cpu().is_cuda
    assert torch.ones(1).untyped_storage().cuda().is_cuda
    assert torch.ones(1, device="cuda").storage().type() == "torch.cuda.FloatStorage"


# ---------------------------------------------------------------- data loaders


@pytest.mark.parametrize("workers, method", [(0, None), (4, "fork"), (4, "spawn")])
def test_43_loaders_with_pinned_memory(workers, method, tmp_path):
    script = tmp_path / "loads.py"
    script.write_text(
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "if __name__ == '__main__':\n"
        "    torch.ones(1).pin_memory()\n"
        "    data = TensorDataset(torch.arange(32.0))\n"
        f"    loader = DataLoader(data, batch_size=4, num_workers={workers}, pin_memory=True,"
        f" multiprocessing_context={method!r})\n"
        "    total = 0\n"
        "    for (x,) in loader:\n"
        "        assert x.is_pinned()\n"
        "        total += x.cuda(non_blocking=True).sum()\n"
        "    print(total.item())\n"
    )
    code = f"import runpy, sys; sys.argv = [{str(script)!r}]; runpy.run_path({str(script)!r}, run_name='__main__')"
    assert run_child(code, FL_CUDA_VIEW="1").stdout == "496.0\n"


def test_44_pinned_tensors():
    assert torch.empty(3, pin_memory=True).is_pinned() and not torch.empty(3).is_pinned()
    loader = DataLoader(TensorDataset(torch.arange(4.0)), pin_memory=True, pin_memory_device="cuda")
    assert all(x.is_pinned() for (x,) in loader)


# -------------------------------------------------------------------- settings


def test_45_cudnn_settings():
    # Apart: PyTorch's own test utilities, where another test has imported them, forbid to set these.
    code = """
        import torch
        cudnn = torch.backends.cudnn
        assert cudnn.enabled  # scripts assert it
        cudnn.enabled = cudnn.benchmark = cudnn.deterministic = True
        cudnn.allow_tf32 = False
        assert cudnn.benchmark and cudnn.deterministic and not cudnn.allow_tf32
        with cudnn.flags(enabled=False, deterministic=True, benchmark=False):
            assert not cudnn.enabled
            torch.nn.Conv2d(1, 1, 3).cuda()(torch.ones(1, 1, 4, 4, device="cuda"))
        assert cudnn.enabled
        cudnn.version()
    """
    run_child(code, FL_CUDA_VIEW="1")


def test_46_matmul_settings():
    matmul = torch.backends.cuda.matmul
    a = torch.rand(64, 64)
    exact = a @ a
    try:
        for allowed in (True, False):
            matmul.allow_tf32 = allowed
            assert matmul.allow_tf32 is allowed
            torch.testing.assert_close((a.cuda() @ a.cuda()).cpu(), exact)
        torch.set_float32_matmul_precision("high")
        assert torch.get_float32_matmul_precision() == "high" and matmul.allow_tf32
        matmul.allow_fp16_reduced_precision_reduction = True
        matmul.allow_bf16_reduced_precision_reduction = True
    finally:
        torch.set_float32_matmul_precision("highest")
    assert not matmul.allow_tf32


def test_47_attention_settings():
    q = torch.rand(1, 2, 5, 8)
    expected = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    contexts = [
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION),
        torch.backends.cuda.sdp_kernel(enable_flash=True, enable_math=False, enable_mem_efficient=False),
    ]
    for context in contexts:
        with context:
            out = nn.functional.scaled_dot_product_attention(q.cuda(), q.cuda(), q.cuda(), is_causal=True)
            torch.testing.assert_close(out.cpu(), expected)
    assert torch.backends.cuda.flash_sdp_enabled() in (True, False)


def test_48_deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.zeros(3, device="cuda").index_add(
            0, torch.tensor([0, 0, 2], device="cuda"), torch.ones(3).cuda()
        )
        assert x.tolist() == [2, 0, 1]
    finally:
        torch.use_deterministic_algorithms(False)


# ---------------------------------------------------------------------- memory


def test_49_memory_statistics():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4 << 20
    assert torch.cuda.memory_allocated("cuda:0") == torch.cuda.memory_allocated(0)
    del x
    assert torch.cuda.max_memory_allocated() - before >= 4 << 20
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    assert "reserved" in torch.cuda.memory_summary() and torch.cuda.memory_stats()["num_ooms"] >= 0


def test_50_out_of_memory():
    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        torch.empty(1 << 48, device="cuda")
    assert torch.ones(1, device="cuda").item() == 1


# ------------------------------------------------------------ graphs and export


def test_51_script_and_trace():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).cuda().eval()
    x = torch.randn(4, 3, device="cuda")
    for made in (
        torch.jit.script(model),
        torch.jit.trace(model, x),
        torch.jit.freeze(torch.jit.script(model)),
    ):
        file = io.BytesIO()
        torch.jit.save(made, file)
        file.seek(0)
        torch.testing.assert_close(torch.jit.load(file)(x), model(x))
        file.seek(0)
        torch.testing.assert_close(torch.jit.load(file, map_location="cpu")(x.cpu()), model(x).cpu())


def test_52_script_functions_that_name_the_device():
    @torch.jit.script
    def move(x: torch.Tensor):
        y = torch.ones(2, device="cuda") + x.cuda() + x.to("cuda:0")
        return y, y.device.type == "cuda"

    for _ in range(3):  # the second run is the optimised one
        y, on = move(torch.ones(2))
        assert y.tolist() == [3, 3] and y.is_cuda and on


def test_53_export():
    model = nn.Linear(3, 2).cuda()
    x = torch.randn(2, 3, device="cuda")
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x), model(x))

    class Moves(nn.Module):
        def forward(self, x):
            return x.cuda() + torch.ones(1, device="cuda")

    assert torch.export.export(Moves(), (torch.ones(2),)).module()(torch.ones(2)).tolist() == [2, 2]


def test_54_compile():
    @torch.compile(backend="aot_eager")
    def step(x):
        y = x if x.is_cuda else x.cuda()
        if y.device.type == "cuda" and torch.cuda.is_available():
            y = y * torch.arange(3, device="cuda")
        return y.to("cuda", non_blocking=True) + 1

    x = torch.ones(3, device="cuda", requires_grad=True)
    step(x).sum().backward()
    assert x.grad.tolist() == [0, 1, 2] and step(torch.ones(3)).tolist() == [1, 2, 3]


def test_55_compile_with_autocast():
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.1)).cuda()
    compiled = torch.compile(model, backend="aot_eager")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = compiled(torch.ones(2, 4, device="cuda"))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert model[0].weight.grad.is_cuda


# ------------------------------------------------------------------ neighbours


def test_56_dlpack():
    x = torch.arange(4.0, device="cuda")
    for y in (torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)), torch.from_dlpack(x)):
        assert y.is_cuda and y.data_ptr() == x.data_ptr()
    numpy = pytest.importorskip("numpy")
    assert torch.from_dlpack(numpy.arange(3)).cuda().tolist() == [0, 1, 2]
    assert numpy.from_dlpack(x.cpu()).tolist() == [0, 1, 2, 3]


def test_57_multiprocessing(tmp_path):
    script = tmp_path / "works.py"
    script.write_text(
        "import torch, torch.multiprocessing as mp\n"
        "def work(rank, queue):\n"
        "    torch.cuda.set_device(rank % torch.cuda.device_count())\n"
        "    queue.put((rank, (torch.ones(2, device='cuda') * rank).sum().item()))\n"
        "if __name__ == '__main__':\n"
        "    assert torch.ones(1).cuda().is_cuda\n"
        "    queue = mp.get_context('spawn').SimpleQueue()\n"
        "    mp.spawn(work, args=(queue,), nprocs=2)\n"
        "    print(sorted(queue.get() for _ in range(2)))\n"
    )
    code = f"import runpy, sys; sys.argv = [{str(script)!r}]; runpy.run_path({str(script)!r}, run_name='__main__')"
    assert run_child(code, FL_CUDA_VIEW="1").stdout == "[(0, 0.0), (1, 2.0)]\n"


def test_58_profiler():
    from torch.profiler import ProfilerActivity, profile, record_function

    x = torch.rand(200, 200, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with profile(activities=activities, record_shapes=True) as p, record_function("block"):
            (x @ x).sum().item()
    rows = {row.key: row for row in p.key_averages()}
    assert rows["aten::mm"].device_time_total > 0 and rows["block"].cpu_time_total > 0
    assert "CUDA total" in p.key_averages().table(sort_by="cuda_time_total", row_limit=5)


def test_59_nvtx_benchmark_and_environment():
    with torch.cuda.nvtx.range("step"):
        assert torch.cuda.nvtx.range_push("inner") == 1 and torch.cuda.nvtx.range_pop() == 1
    torch.cuda.nvtx.mark("here")
    with torch.cuda.profiler.profile():
        pass
    from torch.utils import benchmark, collect_env

    x = torch.ones(10, device="cuda")
    assert benchmark.Timer("x + 1", globals={"x": x}).timeit(3).mean > 0
    assert "Is CUDA available: True" in collect_env.get_pretty_env_info()
    assert torch.accelerator.current_accelerator().type == "cuda"


def test_60_paths_and_texts_that_contain_cuda_are_left_alone(tmp_path, monkeypatch):
    folder = tmp_path / "cuda:0" / "runs cuda"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    torch.save({"cuda": "cuda:0 text", "x": torch.ones(1, device="cuda")}, "cuda:0.pt")
    found = torch.load("cuda:0.pt")
    assert found["cuda"] == "cuda:0 text" and os.listdir(folder) == ["cuda:0.pt"]
    module = nn.ModuleDict({"cuda:0": nn.Linear(1, 1), "to_fl": nn.Linear(1, 1)})
    assert set(module.cuda().state_dict()) == {"cuda:0.weight", "cuda:0.bias", "to_fl.weight", "to_fl.bias"}
    with pytest.raises(RuntimeError, match="Expected one of .*cudax|Invalid device string: 'cudax'"):
        torch.device("cudax")
    for text in ("cuda:", "cuda:01", "cuda:-1", "cuda:x", "CUDA", " cuda"):
        with pytest.raises(RuntimeError):
            torch.device(text)
