"""What the tests of CUDA idioms share: the view is on in each, and the first device is the current one after it."""

import pytest
import torch

import torch_fl

two_devices = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")
old_ways = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning", "ignore:.*deprecated:UserWarning")


@pytest.fixture(autouse=True)
def view():
    with torch_fl.cuda_view():
        yield
        torch.cuda.set_device(0)
