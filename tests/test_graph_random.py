"""Random numbers in graphs: each replay draws what eager code would."""

import pytest
import torch
from capture import D, captured, first_device  # noqa: F401 - a fixture for each test
from child import run_child
from torch import nn


def test_each_replay_draws_the_next_numbers():
    torch.fl.manual_seed(42)
    eager = [torch.rand(10, device=D).cpu() for _ in range(4)]
    after = torch.fl.get_rng_state(D)

    torch.fl.manual_seed(42)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        x = torch.rand(10, device=D)
    drawn = []
    for _ in range(4):
        graph.replay()
        drawn.append(x.cpu())
    assert all(torch.equal(a, b) for a, b in zip(eager, drawn, strict=True))
    assert torch.equal(torch.fl.get_rng_state(D), after)
    torch.fl.manual_seed(42)
    graph.replay()
    assert torch.equal(x.cpu(), eager[0])


def test_several_draws_and_generators_in_one_graph():
    one, two = torch.Generator(D).manual_seed(5), torch.Generator(D).manual_seed(5)
    other = torch.Generator(D).manual_seed(5)

    def draw(a, b):
        return (
            torch.rand(7, device=D, generator=a),
            torch.randn(9, device=D, generator=b),
            torch.rand(3, device=D, generator=a),
        )

    torch.rand(1, device=D, generator=two)
    torch.rand(1, device=D, generator=other)
    reference = torch.Generator(D).manual_seed(5)
    eager = [[t.cpu() for t in draw(reference, other)] for _ in range(3)]
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        result = draw(one, two)
    for want in eager:
        graph.replay()
        assert all(torch.equal(a, b.cpu()) for a, b in zip(want, result, strict=True))


def test_dropout_changes_with_each_replay():
    x = torch.ones(1000, device=D)
    graph, y = captured(lambda: nn.functional.dropout(x, 0.5))
    graph.replay()
    first = y.cpu()
    graph.replay()
    assert not torch.equal(first, y.cpu()) and 300 < first.count_nonzero() < 700


def test_every_distribution_in_a_graph():
    weights = torch.rand(10, device=D)

    def draw():
        return (
            torch.randperm(20, device=D), torch.multinomial(weights, 3, replacement=True), torch.bernoulli(weights),
            torch.randint(0, 1 << 40, (4,), device=D), torch.empty(5, device=D).exponential_(),
            torch.empty(5, device=D, dtype=torch.float64).normal_(), torch.rand(3, 4, device=D).bernoulli_(0.3),
        )  # fmt: skip

    torch.fl.manual_seed(8)
    eager = [[t.cpu() for t in draw()] for _ in range(3)]
    torch.fl.manual_seed(8)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        result = draw()
    for want in eager:
        graph.replay()
        assert all(torch.equal(a, b.cpu()) for a, b in zip(want, result, strict=True))


def test_the_first_random_number_of_a_process_may_be_in_a_graph():
    code = """
    import torch
    x = torch.zeros(3, device="fl:0")
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        y = torch.rand(5, device="fl:0")
    graph.replay()
    first = y.cpu()
    graph.replay()
    assert first.min() >= 0 and not torch.equal(first, y.cpu())
    """
    run_child(code)


def test_a_generator_is_not_seeded_within_a_capture():
    torch.fl.manual_seed(1)
    graph = torch.fl.CUDAGraph()
    with pytest.raises(RuntimeError, match="seed or state"), torch.fl.graph(graph):
        torch.fl.manual_seed(1)  # the same seed is no change, as on CUDA
        torch.fl.manual_seed(2)
