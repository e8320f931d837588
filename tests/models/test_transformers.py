"""Thirty public architectures, as a CUDA user has them: forward, backward, a step and generation as on the CPU."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from architectures import BATCH, CASES, VOCABULARY, Case

# Every other one on the second device, while the first is the current one.
DEVICES = ("cuda", "cuda:1")
# Of a tensor's largest value: rounding grows through the layers of a model.
FLOAT32 = 1e-4
# A gradient that is zero but for rounding, as that of a key's bias is, is measured by the others.
LEAST_GRADIENT = 1e-3
# Under autocast, the CPU and the device round in different places (each has CUDA's or its own list of operators):
# the device may be so many times as far from float32 as the CPU is, and about two roundings besides.
TIMES, ROUNDINGS = 4, 2**-6
GENERATE = {"max_new_tokens": 6, "pad_token_id": 0, "eos_token_id": None}
WAYS = {
    "greedy": {"do_sample": False},
    "beams": {"do_sample": False, "num_beams": 3},
    "sampled": {"do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 1.5},
}


def without_dropout(config) -> None:
    for key, value in vars(config).items():
        if hasattr(value, "model_type"):
            without_dropout(value)
        elif "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)


def build(case: Case) -> torch.nn.Module:
    """The model without dropout, its values spread wide enough for every part of it to count."""
    import transformers

    torch.manual_seed(0)
    if hasattr(transformers, case.model):
        cls = getattr(transformers, case.model)
        config = cls.config_class(**case.config)
        without_dropout(config)
        model = cls(config)
    else:
        import diffusers

        model = getattr(diffusers, case.model)(**case.config)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.add_(torch.randn(parameter.shape, generator=g), alpha=0.1)
            elif parameter.std() < 0.05:
                parameter.mul_(4)
    return model.train()


def moved(nest, device):
    if isinstance(nest, torch.Tensor):
        return nest.to(device)
    if isinstance(nest, dict):
        return {key: moved(value, device) for key, value in nest.items()}
    return [moved(value, device) for value in nest] if isinstance(nest, list) else nest


def tensors(nest, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The floating-point tensors of an output.  Not those of caches: generation shows them."""
    if isinstance(nest, torch.Tensor) and nest.is_floating_point():
        yield name, nest
    elif isinstance(nest, dict | list | tuple):
        for key, value in nest.items() if isinstance(nest, dict) else enumerate(nest):
            yield from tensors(value, f"{name}.{key}")


def train(model: torch.nn.Module, batch: dict, precision: torch.dtype) -> tuple[dict, dict]:
    """Outputs, buffers among them, and gradients of one forward and backward."""
    model.zero_grad()
    with torch.autocast(model.device.type, precision, enabled=precision != torch.float32):
        outputs = dict(tensors(model(**moved(batch, model.device)), "output"))
    loss = outputs.get("output.loss")
    if loss is None:
        loss = sum(t.float().square().mean() for t in outputs.values())
    loss.backward()
    outputs |= {name: b for name, b in model.named_buffers() if b.is_floating_point()}
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return tuple(
        {k: v.detach().cpu().float().clone() for k, v in part.items()} for part in (outputs, gradients)
    )


def scales(expected: dict, least: float) -> dict[str, float]:
    largest = {name: float(t.abs().max()) for name, t in expected.items()}
    return {name: max(value, least * max(largest.values()), 1e-30) for name, value in largest.items()}


def assert_near(actual: dict, expected: dict, least: float = 0.0) -> None:
    assert actual.keys() == expected.keys()
    for name, scale in scales(expected, least).items():
        assert actual[name].shape == expected[name].shape, name
        off = float((actual[name] - expected[name]).abs().max()) / scale
        assert off <= FLOAT32, f"{name}: off by {off:.1e} of its largest value"


def assert_as_near_as(cpu: dict, actual: dict, exact: dict, least: float = 0.0) -> None:
    """The device's low precision is about as far from float32 as the CPU's."""
    assert actual.keys() == cpu.keys() == exact.keys()
    assert any(not torch.equal(actual[name], exact[name]) for name in exact), "computed in float32"
    for name, scale in scales(exact, least).items():
        ours, its = ((t[name] - exact[name]).square().mean().sqrt() / scale for t in (actual, cpu))
        assert ours <= TIMES * its + ROUNDINGS, f"{name}: off by {ours:.1e}, on the CPU by {its:.1e}"


def assert_steps(model: torch.nn.Module, reference: torch.nn.Module) -> None:
    """One AdamW step with the same gradients ends at the same parameters."""
    for p, r in zip(model.parameters(), reference.parameters(), strict=True):
        r.grad = None if p.grad is None else p.grad.cpu()
    before = [r.detach().clone() for r in reference.parameters()]
    for m in (model, reference):
        torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.1).step()
    for (name, p), r in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(
            p.detach().cpu(), r.detach(), rtol=1e-5, atol=1e-6, msg=lambda m: f"{name}: {m}"
        )
    assert any(not torch.equal(b, r.detach()) for b, r in zip(before, reference.parameters(), strict=True))


def assert_generates(case: Case, model: torch.nn.Module, reference: torch.nn.Module) -> None:
    inputs = {k: v for k, v in case.batch().items() if k in ("input_ids", "attention_mask", "input_features")}
    there = moved(inputs, model.device)
    for name, how in WAYS.items():
        if name == "beams" and not case.beams:
            continue
        torch.manual_seed(3)
        actual = model.generate(**there, **GENERATE, **how)
        assert actual.device == model.device
        if name == "sampled":  # other numbers than the CPU's, the same ones each time
            torch.manual_seed(3)
            expected = model.generate(**there, **GENERATE, **how)
            assert len(actual) == BATCH and set(actual.flatten().tolist()) <= set(range(VOCABULARY))
        else:
            expected = reference.generate(**inputs, **GENERATE, **how)
        assert actual.tolist() == expected.tolist(), name


def fallbacks() -> set[str]:
    return {name for name, counts in torch.fl.op_report().items() if counts["fallback"]}


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_architecture(number):
    case = CASES[number]
    torch.fl.reset_op_report()
    reference = build(case)
    model = copy.deepcopy(reference).to(DEVICES[number % 2])
    batch = case.batch()
    if case.generates:
        assert_generates(case, copy.deepcopy(model).eval(), copy.deepcopy(reference).eval())

    low = [train(copy.deepcopy(m), batch, torch.bfloat16) for m in (model, reference)]
    outputs, gradients = train(model, batch, torch.float32)
    exact, exact_gradients = train(reference, batch, torch.float32)
    assert_near(outputs, exact)
    assert_near(gradients, exact_gradients, LEAST_GRADIENT)
    assert_as_near_as(low[1][0], low[0][0], exact)
    assert_as_near_as(low[1][1], low[0][1], exact_gradients, LEAST_GRADIENT)

    assert_steps(model, reference)
    assert_near(train(model, batch, torch.float32)[0], train(reference, batch, torch.float32)[0])
    assert fallbacks() == case.fallbacks


def test_thirty():
    assert len({case.name for case in CASES}) == 30
    # Ones that everybody runs never wait for the CPU.
    spared = ("llama", "qwen2", "qwen3", "gpt2", "gpt-neox", "bert", "roberta", "vit", "resnet", "unet")
    assert not any(case.fallbacks for case in CASES if case.name in spared)
