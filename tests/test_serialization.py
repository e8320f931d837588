"""torch.save and torch.load between fl, the CPU and other indices; pickle, deepcopy."""

import copy
import io
import pickle

import pytest
import torch

D = "fl:0"
two_devices = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")


def round_trip(thing, **how):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **how)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
def test_tensors_come_back(dtype):
    x = torch.arange(12).reshape(3, 4).to(dtype).to(D)
    y = round_trip(x)
    assert y.device == x.device and y.dtype == dtype and torch.equal(x.cpu(), y.cpu())


def test_map_location():
    x = torch.randn(3, device=D)
    assert round_trip(x, map_location="cpu").device.type == "cpu"
    assert round_trip(x.cpu(), map_location=D).device == torch.device(D)
    assert torch.equal(round_trip(x, map_location=torch.device("cpu")), x.cpu())
    assert round_trip(x, map_location=lambda storage, where: storage).device.type == "cpu"


@two_devices
def test_map_location_between_indices():
    x = torch.randn(3).to("fl:1")
    assert round_trip(x).device == torch.device("fl:1")
    here, there = str(torch.device("fl:0")), str(torch.device("fl:1"))
    y = round_trip(x, map_location={there: here})
    assert y.device == torch.device(D) and torch.equal(y.cpu(), x.cpu())


def test_views_share_storage_and_strides_are_kept():
    x = torch.arange(12.0).reshape(3, 4).to(D)
    a, b = round_trip([x, x.t()[1:]])
    assert torch.equal(b.cpu(), x.cpu().t()[1:]) and b.stride() == x.t()[1:].stride()
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def test_state_of_a_training_run():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).to(D)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 4, device=D)).sum().backward()
    optimizer.step()
    saved = round_trip({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, map_location="cpu")
    other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).to(D)
    other.load_state_dict(saved["model"])
    again = torch.optim.Adam(other.parameters())
    again.load_state_dict(saved["optimizer"])
    for a, b in zip(model.state_dict().values(), other.state_dict().values()):
        assert a.device == b.device and torch.equal(a.cpu(), b.cpu())
    state = again.state[next(other.parameters())]
    assert state["exp_avg"].device == torch.device(D)


def test_pickle_and_deepcopy():
    x = torch.randn(3, device=D, requires_grad=True)
    y = pickle.loads(pickle.dumps(x))
    assert y.device == x.device and y.requires_grad and torch.equal(y.detach().cpu(), x.detach().cpu())
    z = copy.deepcopy(torch.nn.Linear(2, 2).to(D))
    assert z.weight.device == torch.device(D)
    s = copy.deepcopy(x.detach().untyped_storage())
    assert s.device == x.device and s.data_ptr() != x.data_ptr()
