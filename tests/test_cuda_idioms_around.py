"""Idioms 38 to 60 of CUDA scripts: what stands around a model. The first ones are in test_cuda_idioms.py."""

import copy
import io
import os
import pickle
import warnings

import pytest
import torch
from child import run_child
from idioms import old_ways, two_devices, view  # noqa: F401 - a fixture for each test
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = old_ways


def output_of(script) -> str:
    """What the file prints, run as python does, with the CUDA view on."""
    code = f"import runpy, sys; sys.argv = [{str(script)!r}]; runpy.run_path({str(script)!r}, run_name='__main__')"
    return run_child(code, FL_CUDA_VIEW="1").stdout


def reloaded(thing, **how):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **how)


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
    assert output_of(script) == "496.0\n"


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
        for _ in range(2):
            assert (cudnn.version() or 0) > 9000 if cudnn.is_available() else cudnn.version() is None
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
    assert output_of(script) == "[(0, 0.0), (1, 2.0)]\n"


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
