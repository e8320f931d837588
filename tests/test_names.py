"""Every public name of torch.cuda is in torch.fl, with a signature that takes the same calls, or is accounted for."""

import inspect
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from child import run_child

from torch_fl import legacy_types
from torch_fl.absent import ABSENT, table

SUBMODULES = ["amp", "graphs", "memory", "nvtx", "profiler", "random", "streams"]
# Submodules whose names are not in torch.cuda's own __all__, and are absent as a whole.
OTHERS = ["comm", "gds", "green_contexts", "jiterator", "nccl", "sparse", "tunable"]
NEW_IN_2_14 = {"export_dot", "export_graph_data", "graph_annotations"}


def names_of(module):
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        n
        for n, v in vars(module).items()
        if getattr(v, "__module__", None) == module.__name__ and n[0] != "_"
    )


def pairs():
    """(name, torch.cuda's, torch.fl's or None), over the module and its submodules."""
    for name in names_of(torch.cuda):
        yield name, getattr(torch.cuda, name), getattr(torch.fl, name, None)
    for sub in SUBMODULES:
        theirs, ours = __import__(f"torch.cuda.{sub}", fromlist=["_"]), getattr(torch.fl, sub)
        for name in names_of(theirs):
            yield f"{sub}.{name}", getattr(theirs, name), getattr(ours, name, None)


def absent(name):
    return name.split(".")[-1] in ABSENT


@pytest.fixture(autouse=True)
def no_view():
    import torch_fl

    with torch_fl.cuda_view(False):
        yield


def test_there_are_as_many_names_as_in_pytorch_2_13():
    assert len(set(torch.cuda.__all__) - NEW_IN_2_14) == 125


def test_every_name_is_there_or_has_a_reason():
    everything = list(pairs())
    assert len(everything) > 180
    missing = [name for name, _, ours in everything if ours is None and not absent(name)]
    assert not missing
    both = [name for name, _, ours in everything if ours is not None and absent(name)]
    assert not both


def test_every_reason_is_of_a_name_that_exists():
    known = {name.split(".")[-1] for name, _, _ in pairs()} | set(OTHERS)
    extra = {"device_memory_used", "memory_usage", *NEW_IN_2_14}
    assert set(ABSENT) <= known | extra
    for name in OTHERS:
        assert name in ABSENT and not hasattr(torch.fl, name)
    assert all(len(reason) > 10 for reason in ABSENT.values())


def parameters(function):
    if inspect.isclass(function):
        for maker in ("__init__", "__new__"):
            made = inspect.getattr_static(function, maker, None)
            made = getattr(made, "__func__", made)
            if inspect.isfunction(made) and not {"args", "_"} & set(inspect.signature(made).parameters):
                return list(inspect.signature(made).parameters.values())[1:]
        return None
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


# Not the types that are made of any arguments, in both: test_legacy_types.
CALLABLE = [
    n
    for n, theirs, ours in pairs()
    if callable(theirs) and ours is not None and n not in legacy_types.__all__
]


@pytest.mark.parametrize("name", CALLABLE)
def test_the_signature_takes_the_same_calls(name):
    theirs, ours = next((t, o) for n, t, o in pairs() if n == name)
    assert inspect.isclass(theirs) == inspect.isclass(ours)
    expected, found = parameters(theirs), parameters(ours)
    if expected is None or found is None:
        pytest.skip(f"no signature to compare: {theirs}")
    names = [p.name for p in found]
    for place, p in enumerate(expected):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue  # what it hands on is in the signatures of what it calls
        assert p.name in names, f"{name} lacks {p.name}"
        own = found[names.index(p.name)]
        if p.kind == p.POSITIONAL_OR_KEYWORD:
            assert names.index(p.name) == place and own.kind == p.kind
        if p.default is not p.empty:
            same = own.default == p.default or (p.default == "cuda" and own.default == "fl")
            assert same, f"{name}: {p.name}={own.default!r}, not {p.default!r}"
    for own in found[len(expected) :]:
        assert own.default is not own.empty or own.kind in (own.VAR_POSITIONAL, own.VAR_KEYWORD)


@pytest.mark.parametrize(
    "name", ["Stream", "Event", "CUDAGraph", "MemPool", "graph", "StreamContext", "device"]
)
def test_objects_have_the_methods(name):
    """Of the class itself: what it inherits from PyTorch's own bases is not public."""
    theirs = getattr(torch.cuda, name)
    made = {"Event": torch.Event}.get(name, getattr(torch.fl, name))
    for method in [n for n in vars(theirs) if not n.startswith("_")]:
        if (name, method) == ("Event", "from_ipc_handle"):
            assert callable(torch.fl.Event.from_ipc_handle)
            continue
        assert hasattr(made, method), f"{name}.{method}"


def test_everything_has_a_docstring():
    without = []
    for name in dir(torch.fl):
        value = getattr(torch.fl, name)
        if name.startswith("_") or not getattr(value, "__module__", "").startswith("torch_fl"):
            continue
        if (inspect.isfunction(value) or inspect.isclass(value)) and not value.__doc__:
            without.append(name)
    assert not without


def test_the_documentation_has_the_table():
    text = (Path(__file__).resolve().parent.parent / "docs" / "torch_fl.md").read_text()
    assert table() in text
    printed = subprocess.run(
        [sys.executable, "-m", "torch_fl.absent"], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == table()


# ------------------------------------------------------------------ pure queries

QUERIES = [
    "is_available()", "device_count()", "current_device()", "is_initialized()", "get_device_name(1)",
    "get_device_properties(1)", "get_device_capability(1)", "can_device_access_peer(0, 1)", "get_arch_list()",
    "get_gencode_flags()", "is_bf16_supported()", "is_bf16_supported(False)", "is_tf32_supported()",
    "current_stream(1)", "default_stream(1)", "is_current_stream_capturing()", "graph_pool_handle()",
    "memory_stats(1)", "memory_allocated(1)", "max_memory_allocated(1)", "memory_reserved(1)",
    "max_memory_reserved(1)", "memory_summary(1)", "memory_snapshot()", "memory._snapshot()",
    "memory_stats_as_nested_dict(1)", "host_memory_stats()", "get_per_process_memory_fraction(1)",
    "list_gpu_processes(1)", "get_allocator_backend()", "reset_peak_memory_stats(1)", "empty_cache()",
    "get_rng_state(1)", "initial_seed()", "get_sync_debug_mode()", "describe_devices()", "chips()", "devices()",
    "refusals()", "op_report()", "config.as_dict()", "device(1)", "StreamContext(None)", "Event()",
    "memory._allocation_traceback(4096)", "memory._record_memory_history(None)", "MemPool().id",
    "set_per_process_memory_fraction(0.5, 1)", "manual_seed_all(3)", "amp.amp_definitely_not_available()",
]  # fmt: skip


def test_a_query_neither_starts_a_device_nor_changes_the_current_one():
    code = f"""
    import torch
    fl, native = torch.fl, __import__("torch_fl")._native
    fl.set_device(1)
    for query in {QUERIES!r}:
        eval("fl." + query)
        opened = [i for i in range(native.device_count()) if native.is_open(i)]
        assert not opened, f"{{query}} started {{opened}}"
        assert fl.current_device() == 1, f"{{query}} changed the current device"
    torch.empty(1, device="fl:0")
    assert native.is_open(0) and not native.is_open(1) and fl.current_device() == 1
    """
    run_child(code, FL_SIM_DEVICES="2")


def test_a_bad_device_is_named_by_queries():
    for query in (
        torch.fl.current_stream,
        torch.fl.default_stream,
        torch.fl.get_device_properties,
        torch.fl.memory_stats,
    ):
        with pytest.raises(RuntimeError, match="99"):
            query(99)


# -------------------------------------------------------------------- small ones


def test_device_properties_have_the_fields_that_scripts_read():
    p = torch.fl.get_device_properties(0)
    for field in (
        "name total_memory major minor multi_processor_count uuid is_integrated is_multi_gpu_board warp_size "
        "max_threads_per_block max_threads_per_multi_processor regs_per_multiprocessor shared_memory_per_block "
        "shared_memory_per_block_optin shared_memory_per_multiprocessor L2_cache_size clock_rate "
        "memory_clock_rate memory_bus_width gcnArchName pci_bus_id pci_device_id pci_domain_id"
    ).split():
        assert getattr(p, field) is not None
    assert p.total_memory > 0 and p.name and str(p.uuid)


def test_sync_debug_mode():
    x = torch.ones(3, device="fl:0")
    assert torch.fl.get_sync_debug_mode() == 0
    try:
        torch.fl.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="synchronizing operation"):
            x.sum().item()
        torch.fl.set_sync_debug_mode("error")
        assert torch.fl.get_sync_debug_mode() == 2
        for wait in (
            lambda: x.sum().item(),
            x.cpu,
            lambda: torch.ones(2).to("fl:0"),
            torch.fl.current_stream().synchronize,
        ):
            with pytest.raises(RuntimeError, match="synchronizing operation"):
                wait()
        y = x + 1
        torch.ones(2).pin_memory().to("fl:0", non_blocking=True)
        torch.fl.synchronize()
        for bad in ("loud", 3):
            with pytest.raises(RuntimeError, match="debug_mode"):
                torch.fl.set_sync_debug_mode(bad)
    finally:
        torch.fl.set_sync_debug_mode(0)
    assert y.cpu().eq(2).all()


def test_external_streams():
    s = torch.fl.Stream(0)
    again = torch.fl.ExternalStream(s.native_handle, 0)
    assert again == s and torch.fl.get_stream_from_external(s.native_handle, 0) == s
    assert isinstance(again, torch.fl.Stream)
    with torch.fl.stream(again):
        assert torch.fl.current_stream(0) == s
    default = torch.fl.default_stream(0)
    assert default.cuda_stream == 0 and s.cuda_stream == s.native_handle
    assert torch.fl.ExternalStream(0) == default and torch.fl.get_stream_from_external(0, 0) == default
    with pytest.raises(RuntimeError, match="take over"):
        torch.fl.ExternalStream(12345)


def test_events_are_not_shared_between_processes():
    for share in (lambda: torch.fl.Event(interprocess=True), lambda: torch.fl.Event.from_ipc_handle(0, b"")):
        with pytest.raises(RuntimeError, match="shared between processes"):
            share()


def test_nvtx_ranges_are_seen_by_the_profiler():
    nvtx = torch.fl.nvtx
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert nvtx.range_push("outer") == 0 and nvtx.range_push("inner") == 1
        assert nvtx.range_pop() == 1 and nvtx.range_pop() == 0 and nvtx.range_pop() == -2
        number = nvtx.range_start("loose")
        nvtx.mark("here")
        with nvtx.range("step {}", 3):
            torch.ones(2)
        nvtx.range_end(number)
        nvtx.range_end(number)
    seen = {event.key for event in profile.key_averages()}
    assert {"outer", "inner", "loose", "here", "step 3"} <= seen
    with torch.fl.profiler.profile():
        torch.fl.profiler.start()
        torch.fl.profiler.stop()


def test_legacy_types():
    fl = torch.fl
    x = fl.FloatTensor([1, 2, 3])
    assert isinstance(x, fl.FloatTensor) and not isinstance(x, fl.HalfTensor | fl.LongTensor)
    assert not isinstance(torch.ones(3), fl.FloatTensor) and x.device.type == "fl" and x.tolist() == [1, 2, 3]
    assert fl.LongTensor(2, 3).shape == (2, 3) and fl.HalfTensor().numel() == 0
    assert fl.IntTensor(torch.Size([4])).dtype == torch.int32
    assert torch.ones(2).type(fl.HalfTensor).dtype == torch.float16
    assert torch.ones(2).type(fl.HalfTensor).device.type == "fl"
    assert torch.ones(2).type("torch.fl.BFloat16Tensor").dtype == torch.bfloat16
    assert x.type() == "torch.fl.FloatTensor"
    with pytest.raises(TypeError, match="LongTensor"):
        fl.LongTensor(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = fl.FloatStorage(5)
        assert len(storage) == 5 and storage.device.type == "fl" and storage.dtype == torch.float32
        assert isinstance(storage, fl.FloatStorage) and not isinstance(storage, fl.IntStorage)
        with pytest.raises(RuntimeError, match="Not available"):
            fl.FloatStorage.from_buffer(b"")


def test_refused_with_a_reason():
    with pytest.raises(RuntimeError, match="allocator cannot be replaced"):
        torch.fl.change_current_allocator(None)
    with pytest.raises(RuntimeError, match="takes no allocator"):
        torch.fl.MemPool(object())


def test_amp():
    amp = torch.fl.amp
    assert not amp.amp_definitely_not_available()
    a, b = torch.ones(4, 4, device="fl:0"), torch.ones(4, 4, device="fl:0")
    with amp.autocast():
        assert (a @ b).dtype == torch.float16
        with amp.autocast(False):
            assert (a @ b).dtype == torch.float32
    with amp.autocast(dtype=torch.bfloat16, cache_enabled=False):
        assert (a @ b).dtype == torch.bfloat16
    seen = []

    class Half(torch.autograd.Function):
        @staticmethod
        @amp.custom_fwd(cast_inputs=torch.float16)
        def forward(ctx, x):
            seen.append(x.dtype)
            return x * 2

        @staticmethod
        @amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    x = torch.ones(3, device="fl:0", requires_grad=True)
    with amp.autocast():
        Half.apply(x).sum().backward()
    assert seen == [torch.float16] and x.grad.cpu().eq(2).all()
    scaler = amp.GradScaler(init_scale=8.0, growth_interval=1)
    parameter = torch.ones(2, device="fl:0", requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler.scale(parameter.sum()).backward()
    assert parameter.grad.cpu().eq(8).all()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.detach().cpu().eq(0).all() and scaler.get_scale() == 16.0
