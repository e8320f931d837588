"""Device strings: the CUDA view's hooks and chip names, in every library that parses one."""

import ctypes
import subprocess

import pytest
import torch
from child import run_child

import torch_fl
from torch_fl import _native


@pytest.fixture(params=[True, False], ids=["view on", "view off"])
def view(request):
    with torch_fl.cuda_view(request.param):
        yield request.param


def test_parse_and_print(view):
    name = "cuda" if view else "fl"
    assert torch.device("fl").type == name
    assert str(torch.device("fl:1")) == f"{name}:1"
    assert repr(torch.device("fl", 1)) == f"device(type='{name}', index=1)"
    ours = torch._C._dispatch_key_for_device("fl") if not view else None
    assert (
        torch.device("cuda:1") == torch.device("fl:1")
        if view
        else torch.device("cuda:1") != torch.device("fl:1")
    )
    assert ours in (None, "PrivateUse1")


def test_chip_names(view):
    assert torch.device("sim") == torch.device("fl:0")
    assert torch.device("sim:1") == torch.device("fl:1")
    assert torch.empty(2, device="sim:1").device.index == 1
    with pytest.raises(RuntimeError, match=r"sim:99"):
        torch.device("sim:99")


@pytest.mark.parametrize("text", ["chipless", "chipless:0", "fl:", "fl:01", "fl:-1", "fl:1:2", ":0", ""])
def test_nonsense_is_refused(view, text):
    with pytest.raises(RuntimeError):
        torch.device(text)


@pytest.mark.parametrize("index", [128, 255, 256, 1000])
def test_indices_do_not_wrap(view, index):
    with pytest.raises(RuntimeError, match=f"fl:{index}"):
        torch.device(f"fl:{index}")


def test_other_devices_are_untouched(view):
    for name in ("cpu", "meta", "xpu:1", "mps"):
        assert str(torch.device(name)) == name


def test_off_is_plain_pytorch():
    with torch_fl.cuda_view(False):
        assert str(torch.device("cuda:1")) == "cuda:1"
        assert torch.device("cuda").type == "cuda"
        assert torch._C._get_privateuse1_backend_name() == "fl"


def test_strings_in_other_texts_are_left_alone(tmp_path):
    with torch_fl.cuda_view():
        path = tmp_path / "cuda:1 fl.pt"
        torch.save({"cuda": "fl", "x": torch.ones(1)}, path)
        assert torch.load(path)["cuda"] == "fl"


def test_reversible_many_times():
    slots = _native.cuda_view_slots()
    for _ in range(50):
        with torch_fl.cuda_view(False):
            assert torch.device("fl").type == "fl"
        with torch_fl.cuda_view():
            assert torch.device("fl").type == "cuda"
    assert _native.cuda_view_slots() == slots


def test_library_loaded_later(tmp_path):
    source = tmp_path / "later.cpp"
    # The declaration alone, as a library compiled long ago would import it.
    source.write_text(
        "#include <string>\n"
        "namespace c10 { struct Device { signed char type, index; Device(const std::string&); }; }\n"
        'extern "C" int type_of(const char* text) { return c10::Device(std::string(text)).type; }\n'
    )
    library = tmp_path / "liblater.so"
    lib = f"{torch.__path__[0]}/lib"
    command = [
        "g++",
        "-shared",
        "-fPIC",
        str(source),
        "-o",
        str(library),
        f"-L{lib}",
        "-lc10",
        f"-Wl,-rpath,{lib}",
    ]
    subprocess.run(command, check=True)
    with torch_fl.cuda_view():
        later = ctypes.CDLL(str(library))
        torch.device("cpu")  # any device string lets new libraries be seen
        assert later.type_of(b"cuda:1") == later.type_of(b"fl:1")
    assert later.type_of(b"sim:1") == later.type_of(b"fl:1")
    with torch_fl.cuda_view(False):
        assert later.type_of(b"cuda:1") == 1  # c10::DeviceType::CUDA


def test_missing_symbols_leave_the_view_off():
    code = """
        import torch, torch_fl
        from torch_fl import _native, cuda_view
        cuda_view.disable()
        _native.cuda_view_missing = lambda: ["c10_gone"]
        try:
            cuda_view.enable()
        except RuntimeError as error:
            print(error)
        print(torch.device("fl").type, torch.cuda.is_available())
    """
    out = run_child(code).stdout
    assert "c10_gone" in out and out.endswith("fl False\n")


def test_threads_parse_while_the_view_switches():
    code = """
        import threading, torch, torch_fl
        stop, seen = threading.Event(), set()
        def parse():
            while not stop.is_set():
                seen.add(torch.device("fl:1").type)
        threads = [threading.Thread(target=parse) for _ in range(4)]
        for t in threads: t.start()
        for _ in range(200):
            with torch_fl.cuda_view(False): pass
        stop.set()
        for t in threads: t.join()
        assert seen <= {"fl", "cuda"}, seen
    """
    run_child(code)
