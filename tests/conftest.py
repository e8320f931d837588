"""Before torch is imported: two sim devices alone, and the package also where it is not installed."""

import os

os.environ.setdefault("FL_SIM_DEVICES", "2")
# Whatever other chips are installed, and would come first.
os.environ.setdefault("FL_VISIBLE_DEVICES", "sim")
# Children import what this process imports, not the source tree that they may be started in.
os.environ.setdefault("PYTHONSAFEPATH", "1")
# Idle threads sleep. PyTorch's and sim's, of several processes, are more than there are cores, and libgomp's
# spinning takes them from those that have work: the tests would take two to three times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch  # noqa: F401

import torch_fl  # noqa: F401
