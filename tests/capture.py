"""A graph of some work, for the tests of graphs."""

import pytest
import torch

D = "fl:0"


def captured(work, **arguments):
    """A graph of what work() launches, after a run of it outside the graph, and work()'s result."""
    side = torch.fl.Stream(D)
    with torch.fl.stream(side):
        work()
    torch.fl.synchronize(D)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph, **arguments):
        result = work()
    return graph, result


@pytest.fixture(autouse=True)
def first_device():
    torch.fl.set_device(0)
    yield
    torch.fl.synchronize(D)
