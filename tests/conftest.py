"""Before torch is imported: two sim devices, and the package also where it is not installed."""

import os

os.environ.setdefault("FL_SIM_DEVICES", "2")
# Children import what this process imports, not the source tree that they may be started in.
os.environ.setdefault("PYTHONSAFEPATH", "1")

import torch  # noqa: F401

import torch_fl  # noqa: F401
