"""Generators: 16 bytes of state, seeds, offsets, graph-safe handles, one default a device."""

import struct

import pytest
import torch

D = "fl:0"
two_devices = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")


def test_state_is_seed_and_offset():
    g = torch.Generator(D)
    g.manual_seed(0x1234567890ABCDEF)
    state = g.get_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8 and state.shape == (16,)
    assert struct.unpack("<QQ", bytes(state.tolist())) == (0x1234567890ABCDEF, 0)
    assert g.initial_seed() == 0x1234567890ABCDEF and g.device == torch.device(D)


def test_drawing_moves_the_offset_and_state_brings_it_back():
    g = torch.Generator(D).manual_seed(5)
    a = torch.rand(1000, device=D, generator=g)
    assert g.get_offset() >= 250
    state = g.get_state()
    b = torch.rand(1000, device=D, generator=g)
    g.set_state(state)
    assert torch.equal(torch.rand(1000, device=D, generator=g), b)
    assert not torch.equal(a, b)
    g.manual_seed(5)
    assert g.get_offset() == 0
    assert torch.equal(torch.rand(1000, device=D, generator=g), a)


def test_offset_can_be_set():
    g = torch.Generator(D).manual_seed(5)
    full = torch.rand(16, device=D, generator=g)
    g.manual_seed(5)
    g.set_offset(2)
    assert torch.equal(torch.rand(8, device=D, generator=g), full[8:])


def test_bad_states_are_refused():
    g = torch.Generator(D)
    with pytest.raises(RuntimeError, match="16 bytes"):
        g.set_state(torch.zeros(15, dtype=torch.uint8))
    with pytest.raises((TypeError, RuntimeError)):
        g.set_state(torch.zeros(16))
    with pytest.raises((TypeError, RuntimeError)):
        g.set_state(torch.zeros(16, dtype=torch.uint8, device=D))


def test_clone_is_apart_and_graphsafe_is_a_handle():
    g = torch.Generator(D).manual_seed(3)
    copy, handle = g.clone_state(), g.graphsafe_get_state()
    torch.rand(8, device=D, generator=g)
    assert copy.get_offset() == 0 and handle.get_offset() == g.get_offset() > 0
    other = torch.Generator(D).manual_seed(9)
    other.graphsafe_set_state(handle)
    torch.rand(8, device=D, generator=other)
    assert other.get_offset() == g.get_offset() and other.initial_seed() == 3
    with pytest.raises(RuntimeError, match="fl generator"):
        g.graphsafe_set_state(torch.Generator())


def test_default_generator_is_one_object_seeded_by_torch_manual_seed():
    assert torch.fl.default_generators[0] is torch.fl.default_generators[0]
    torch.manual_seed(11)
    a = torch.rand(5, device=D)
    torch.manual_seed(11)
    assert torch.equal(torch.rand(5, device=D), a)
    assert torch.fl.initial_seed() == 11
    assert torch.Generator().initial_seed() != torch.Generator(D).seed() != torch.Generator(D).seed()


def test_fork_rng_and_checkpoint_state():
    torch.manual_seed(1)
    state = torch.fl.get_rng_state(D)
    with torch.random.fork_rng(devices=[0], device_type="fl"):
        torch.rand(100, device=D)
        assert not torch.equal(torch.fl.get_rng_state(D), state)
    assert torch.equal(torch.fl.get_rng_state(D), state)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_replays_dropout(reentrant):
    x = torch.ones(4096, device=D, requires_grad=True)
    out = torch.utils.checkpoint.checkpoint(
        lambda t: torch.nn.functional.dropout(t, 0.5), x, use_reentrant=reentrant
    )
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_compiled_checkpoint_replays_dropout():
    def block(x):
        return torch.nn.functional.dropout(x.sin(), 0.5)

    @torch.compile(backend="aot_eager_decomp_partition")
    def step(x):
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)

    x = torch.ones(1000, device=D, requires_grad=True)
    for _ in range(2):
        x.grad = None
        y = step(x)
        y.sum().backward()
        assert 300 < (y != 0).sum() < 700 and torch.equal(x.grad != 0, y != 0)


def test_a_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device=D, generator=torch.Generator())
    if torch.fl.device_count() > 1:
        with pytest.raises(RuntimeError, match="generator device"):
            torch.rand(3, device=D, generator=torch.Generator("fl:1"))


@two_devices
def test_the_same_seed_gives_the_same_numbers_on_every_device():
    torch.fl.manual_seed_all(7)
    assert torch.equal(torch.randn(100, device="fl:0").cpu(), torch.randn(100, device="fl:1").cpu())


def test_generators_pickle_free_state_round_trip():
    torch.manual_seed(2)
    states = torch.fl.get_rng_state_all()
    a = torch.randn(10, device=D)
    torch.fl.set_rng_state_all(states)
    assert torch.equal(torch.randn(10, device=D), a)
