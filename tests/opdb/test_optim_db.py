"""PyTorch's optimizer database: two steps of a small model, each implementation against the loop on the CPU."""

import copy

import pytest
import torch
from database import DEVICE, LOOSER, Copier, quiet, same, set_rng_seed
from known import marks
from torch.testing._internal.common_optimizers import optim_db


def cases():
    for info in optim_db:
        ways = ["default", *(["forloop"] if info.supported_impls else []), *info.supported_impls]
        for way in [w for w in ways if w != "differentiable"] + ["capturable"] * info.has_capturable_arg:
            label = f"{info.name}-{way}"
            yield pytest.param(info, way, id=label, marks=marks("test_optimizers", label, torch.float32))


def model_of(info):
    if info.only_supports_sparse_grads:
        return torch.nn.Embedding(10, 4, sparse=True)
    bias = info.name != "Muon"
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6, bias=bias), torch.nn.Tanh(), torch.nn.Linear(6, 3, bias=bias)
    )


def trained(info, kwargs, device):
    set_rng_seed(1234)
    copier, sparse = Copier(device), info.only_supports_sparse_grads
    model = model_of(info).to(device)
    x = copier(torch.randint(0, 10, (8,)) if sparse else torch.randn(8, 4))
    y = copier(torch.randn(8, 4 if sparse else 3))
    optimizer = info.optim_cls(list(model.parameters()), **copier(copy.deepcopy(kwargs)))

    def closure():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        if kwargs.get("maximize"):  # of what has a maximum: L-BFGS's steps upwards grow until rounding decides
            loss = -loss
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize(("info", "way"), list(cases()))
def test_optimizers(info, way):
    loop = {name: False for name in ("foreach", "fused") if name in info.supported_impls}
    tolerance = max(1e-4, LOOSER.get(info.name, 0))
    with quiet():
        for config in info.optim_inputs_func(device="cuda" if way == "capturable" else "cpu"):
            if config.kwargs.get("capturable", False) != (way == "capturable"):
                continue
            chosen = {
                **config.kwargs,
                **(loop if way in ("forloop", *loop) else {}),
                **({way: True} if way in loop else {}),
            }
            reference = {k: v for k, v in {**config.kwargs, **loop}.items() if k != "capturable"}
            same(trained(info, chosen, DEVICE), trained(info, reference, "cpu"), tolerance, where=str(config))
