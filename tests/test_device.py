"""Devices: the table, the current one, bad indices, identity of Parameters, storages."""

import threading

import pytest
import torch
from child import run_child, run_forked

D = "fl:0"
two_devices = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")


def test_accelerator_is_fl():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == torch.device("fl").type
    assert torch.accelerator.device_count() == torch.fl.device_count() >= 1


def test_bad_indices_name_the_devices_that_exist():
    last = torch.fl.device_count()
    for act in (
        lambda: torch.empty(1, device=f"fl:{last}"),
        lambda: torch.ones(1, device=D).to(f"fl:{last}"),
        lambda: torch.fl.set_device(last),
        lambda: torch.accelerator.set_device_index(last),
        lambda: torch.Stream(f"fl:{last}"),
        lambda: torch.Generator(f"fl:{last}"),
        lambda: torch.fl.synchronize(last),
        lambda: torch.fl.memory_stats(last),
        lambda: torch.fl.mem_get_info(last),
    ):
        with pytest.raises(RuntimeError, match=rf"there is no device {last}; there (are|is) .*:0"):
            act()
    with pytest.raises(RuntimeError):
        torch.empty(1, device="fl:128")


@two_devices
def test_current_device_is_per_thread_and_restored():
    with torch.fl.device(1):
        assert torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device="fl").device.index == 1
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.fl.current_device()))
        thread.start()
        thread.join()
        assert seen == [0]
    assert torch.fl.current_device() == 0
    with pytest.raises(KeyError), torch.fl.device(1):
        raise KeyError
    assert torch.fl.current_device() == 0


def test_capability_lists_dtypes():
    dtypes = torch.accelerator.get_device_capability(D)["supported_dtypes"]
    assert {torch.float32, torch.int64, torch.bool} <= set(dtypes)
    assert torch.quint8 not in dtypes


def test_module_to_keeps_its_parameters():
    module = torch.nn.Linear(3, 2)
    before = list(module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module.to(D)
    assert [p is q for p, q in zip(module.parameters(), before)] == [True, True]
    assert all(p.device == torch.device(D) for p in optimizer.param_groups[0]["params"])
    module.to("cpu")
    assert all(p is q and p.device.type == "cpu" for p, q in zip(module.parameters(), before))


def test_data_can_be_set_across_devices():
    p = torch.nn.Parameter(torch.zeros(3))
    p.data = torch.arange(3.0).to(D)
    assert p.device == torch.device(D)
    assert p.detach().cpu().tolist() == [0, 1, 2]


def test_storage_resize_keeps_what_fits():
    x = torch.arange(8, dtype=torch.int32).to(D)
    storage = x.untyped_storage()
    storage.resize_(64)
    assert storage.nbytes() == 64
    assert x.cpu().tolist() == list(range(8))
    storage.resize_(16)
    assert torch.as_strided(x, (4,), (1,)).cpu().tolist() == [0, 1, 2, 3]
    allocated = torch.fl.memory_allocated()
    storage.resize_(0)
    assert storage.nbytes() == 0 and torch.fl.memory_allocated() < allocated
    storage.resize_(32)
    x.copy_(torch.arange(8, dtype=torch.int32) + 1)
    assert x.cpu().tolist() == list(range(1, 9))


@two_devices
def test_storage_resize_stays_on_its_device():
    x = torch.arange(4.0).to("fl:1")
    with torch.fl.device(0):
        x.untyped_storage().resize_(256)
        x.resize_(32)
    assert x.device == torch.device("fl:1") and x[:4].cpu().tolist() == [0, 1, 2, 3]


def test_cpu_backward_starts_no_device():
    run_forked(
        """
        import torch
        from torch_fl import _native
        torch.ones(2, requires_grad=True).sum().backward()
        assert torch.fl.device_count() >= 1
        assert not any(_native.is_open(i) for i in range(torch.fl.device_count()))
        assert torch.accelerator.memory_stats() == {}
        torch.empty(1, device="fl")
        assert _native.is_open(0)
        """
    )


def test_a_bad_choice_of_devices_is_no_device_and_an_error_on_use():
    out = run_child(
        """
        import torch
        assert not torch.accelerator.is_available() and torch.fl.device_count() == 0
        torch.ones(2, requires_grad=True).sum().backward()  # the CPU works on
        torch.manual_seed(0)
        try:
            torch.empty(1, device="fl:0")
        except RuntimeError as error:
            print(error)
        """,
        FL_VISIBLE_DEVICES="nochip:7",
    )
    assert 'FL_VISIBLE_DEVICES names "nochip:7", which does not exist' in out.stdout
    assert "nochip:7" in out.stderr
