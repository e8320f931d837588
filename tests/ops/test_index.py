import pytest
import torch
from family import DEVICE, assert_same, check, layouts, no_fallback, tensor, to_device

DTYPES = [torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_index(dtype):
    i, j = torch.tensor([0, 2, -1, 1]), torch.tensor([[1], [-2]])
    with no_fallback():
        for x in layouts(tensor(3, 4, 5, dtype=dtype)):
            check(lambda t, i: t[i], x, i)
            check(lambda t, i: t[:, i], x, i)
            check(lambda t, i: t[..., i], x, i)
            check(lambda t, i, j: t[i, j], x, i, j)
            check(lambda t, i, j: t[i, :, j], x, i, j)
            check(lambda t, i: t[i, None, 1:], x, i)
            check(lambda t, i: t[i.int()], x, i)
    check(lambda t: t[torch.tensor([1, 0])], tensor(3, 4))
    check(lambda t, i: t[i], tensor(3, 4), torch.zeros(0, dtype=torch.int64))
    check(lambda t, i: t[i], tensor(3, 0), torch.tensor([1, 1]))


def test_masks():
    x = tensor(3, 4)
    check(lambda t, m: t[m], x, x > 0)
    check(lambda t, m: t[m], x, torch.tensor([True, False, True]))
    check(lambda t, m: t[:, m], x, torch.tensor([True, False, True, True]))
    check(lambda t, m: t[m], x, torch.zeros(3, 4, dtype=torch.bool))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(dtype, accumulate):
    i, j = torch.tensor([0, 2, -1]), torch.tensor([1, 3, 0])
    if accumulate and dtype == torch.bool:
        pytest.skip("the CPU does not define it")
    for x in layouts(tensor(3, 4, 5, dtype=dtype)):
        check(lambda t, i, v: t.index_put_((i,), v, accumulate), x, i[:2], tensor(4, 5, dtype=dtype))
        check(lambda t, i, j, v: t.index_put_((i, j), v, accumulate), x, i, j, tensor(3, 5, dtype=dtype))
    check(
        lambda t, i, v: t.index_put_((i,), v, True),
        tensor(3, 4),
        torch.tensor([1, 1, 1, 0]),
        tensor(4, 4),
        atol=1e-5,
    )


def test_half_complex_numbers_are_added():
    x, source = tensor(5, 4, dtype=torch.complex32), tensor(3, 4, dtype=torch.complex32)
    i = torch.tensor([0, 2, 2])
    near = {"rtol": 2e-3, "atol": 4e-3}  # the CPU rounds at each addition
    with no_fallback():
        check(lambda t, i, v: t.index_put_((i,), v, True), x, i, source, **near)
        check(lambda t, i, v: t.t().index_put_((i[:2], i[1:]), v[0, :2], True), x, i, source, **near)
        check(torch.index_add, x, 0, i, source, **near)
        got = x.to(DEVICE).put_(i.to(DEVICE), source[0, :3].to(DEVICE), accumulate=True)
    want = x.to(torch.complex64).put_(i, source[0, :3].to(torch.complex64), accumulate=True)
    assert torch.equal(got.cpu().to(torch.complex64), want.to(torch.complex32).to(torch.complex64))
    with pytest.raises(RuntimeError, match="same device"):
        x.index_put_((i.to(DEVICE),), source.to(DEVICE), True)


def test_assignment():
    x = tensor(3, 4)

    def assign(t, m):
        t[m] = 0.5
        t[1] = 7
        t[:, 2] = t[:, 1]
        return t

    check(assign, x, x > 0)
    check(lambda t, m, v: t.masked_scatter_(m, v), x, x > 0, tensor(12))


def test_gradients():
    i = torch.tensor([0, 2, 2, 1, 2])
    with no_fallback():
        check(lambda t, i: t[i], tensor(3, 4).requires_grad_(), i, grad=True)
        check(lambda t, i: t[:, i], tensor(2, 3, 4).requires_grad_(), i, grad=True)
        check(lambda t, i: t.index_select(0, i), tensor(3, 4).requires_grad_(), i, grad=True)
        check(
            lambda t, i: t.gather(0, i),
            tensor(3, 2).requires_grad_(),
            torch.tensor([[0, 1], [2, 2]]),
            grad=True,
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_scatter(dtype):
    index = torch.tensor([[0, 1, 2], [2, 0, 0]])
    with no_fallback():
        for x in layouts(tensor(3, 4, dtype=dtype)):
            check(torch.gather, x, 0, index)
            check(torch.gather, x, 1, index)
            check(torch.scatter, x, 1, torch.tensor([[0, 1, 2], [2, 0, 3]]), tensor(2, 5, dtype=dtype))
            check(torch.scatter, x, 0, torch.tensor([[0, 1, 2]]), 1)
    check(lambda t, i: t.gather(0, i), tensor(dtype=dtype), torch.tensor(0))
    check(torch.gather, tensor(3, 4, dtype=dtype), 0, torch.zeros(0, 4, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_scatter_add_and_reduce(dtype):
    index = torch.tensor([[0, 1, 2, 0], [2, 0, 0, 0]])
    source = tensor(2, 4, dtype=dtype)
    for x in layouts(tensor(3, 4, dtype=dtype)):
        check(torch.scatter_add, x, 0, index, source)
        check(torch.scatter, x, 0, index, source, reduce="add")
        check(torch.scatter, x, 0, index, source, reduce="multiply")
        for reduce in ("sum", "prod", "amax", "amin", "mean"):
            for include_self in (True, False):
                check(torch.scatter_reduce, x, 0, index, source, reduce, include_self=include_self)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_along_one_dimension(dtype):
    i = torch.tensor([2, 0, 2])
    with no_fallback():
        for x in layouts(tensor(3, 4, dtype=dtype)):
            check(torch.index_select, x, 0, i)
            check(torch.index_select, x, 1, i.int())
            check(torch.index_add, x, 0, i, tensor(3, 4, dtype=dtype), alpha=2)
            check(torch.index_add, x, 1, i, tensor(3, 3, dtype=dtype))
            check(torch.index_copy, x, 0, i[:2], tensor(2, 4, dtype=dtype))
            check(torch.index_fill, x, 1, i, 3)
            check(lambda t, i: t.index_fill_(0, i, 3), x, i)
            check(torch.take, x, torch.tensor([[0, -1], [5, 11]]))
            check(lambda t, i, v: t.put_(i, v), x, torch.tensor([3, -1]), tensor(2, dtype=dtype))
            check(
                lambda t, i, v: t.put_(i, v, accumulate=True), x, torch.tensor([3, 3]), tensor(2, dtype=dtype)
            )
    check(torch.index_select, tensor(dtype=dtype), 0, torch.tensor([0]))
    check(torch.index_select, tensor(3, 4, dtype=dtype), 0, torch.zeros(0, dtype=torch.int64))


WRONG_INDEX = {
    "index": lambda x, i: x[i],
    "index_select": lambda x, i: x.index_select(0, i),
    "index_put": lambda x, i: x.index_put((i,), torch.ones((), device=x.device)),
    "index_put_accumulate": lambda x, i: x.index_put((i,), x[:1], accumulate=True),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_add_vector": lambda x, i: x[:, 0].index_add(0, i, x[:2, 0]),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "prod"),
    "index_reduce_without_self": lambda x, i: x.index_reduce(0, i, x[:2], "mean", include_self=False),
    "take": lambda x, i: x.take(i * 100),
    "put": lambda x, i: x.put(i * 100, x[0, :2]),
    "gather": lambda x, i: x.gather(0, i.view(-1, 1)),
    "gather_number": lambda x, i: x[0, 0].gather(0, i[1]),
    "scatter": lambda x, i: x.scatter(0, i.view(-1, 1), x[:2, :1]),
    "scatter_value": lambda x, i: x.scatter(0, i.view(-1, 1), 2.0),
    "scatter_add_mode": lambda x, i: x.scatter(0, i.view(-1, 1), x[:2, :1], reduce="add"),
    "scatter_multiply_value": lambda x, i: x.scatter(0, i.view(-1, 1), 2.0, reduce="multiply"),
    "scatter_add": lambda x, i: x.scatter_add(0, i.view(-1, 1), x[:2, :1]),
    "scatter_add_half": lambda x, i: x.half().scatter_add(0, i.view(-1, 1), x[:2, :1].half()),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i.view(-1, 1), x[:2, :1], "prod"),
    "scatter_reduce_without_self": lambda x, i: x.scatter_reduce(
        0, i.view(-1, 1), x[:2, :1], "amax", include_self=False
    ),
}


@pytest.mark.parametrize("name", WRONG_INDEX)
@pytest.mark.parametrize("bad", [9, -9])
def test_a_wrong_index_is_the_cpus_error(name, bad):
    f, index = WRONG_INDEX[name], torch.tensor([0, bad])
    with pytest.raises((IndexError, RuntimeError)) as expected:
        f(tensor(3, 4), index)
    x = to_device(tensor(3, 4))
    with pytest.raises(expected.type, match=f"index {bad}(00)? is out of bounds for dimension size (1|3|12)"):
        f(x, to_device(index)).cpu()
    assert_same(x + 1, tensor(3, 4) + 1)  # the stream goes on


def test_out_argument():
    check(
        lambda t, i, o: torch.index_select(t, 0, i, out=o),
        tensor(3, 4),
        torch.tensor([1, 1]),
        torch.zeros(2, 8)[:, ::2],
    )
    check(
        lambda t, i, o: torch.gather(t, 0, i, out=o), tensor(3, 4), torch.tensor([[1, 1]]), torch.zeros(1, 2)
    )


def test_index_fill_takes_negative_positions():
    check(lambda x, i: x.index_fill_(0, i, 2.0), torch.zeros(5), torch.tensor([-1, 1]))


def test_out_must_not_overlap():
    x = torch.rand(3, device="fl:0")
    i, same = torch.tensor([2, 1, 0], device="fl:0"), torch.rand(1, device="fl:0").expand(3)
    for f in (
        lambda: torch.index_select(x, 0, i, out=same),
        lambda: torch.index_select(x, 0, i, out=x),
        lambda: torch.take(x, i, out=same),
        lambda: torch.take(x, i, out=x),
        lambda: torch.gather(x, 0, i, out=same),
        lambda: torch.cat([x[:1], x[1:]], out=same),
        lambda: torch.max(torch.rand(3, 2, device="fl:0"), 1, out=(same, i)),
        lambda: torch.mv(torch.rand(3, 3, device="fl:0"), x, out=same),
    ):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            f()
    with pytest.raises(RuntimeError, match="same device"):
        torch.gather(x.cpu(), 0, i)


def test_elements_that_share_memory():
    """Expanded tensors are written to with a warning; one place is filled when any of its elements is."""
    mask = torch.eye(4, dtype=torch.bool)
    for value in (5.0, torch.tensor(5.0)):
        for place in (torch.zeros(1), torch.zeros(4, 1)):
            with pytest.warns(UserWarning, match="masked_fill_ on expanded tensors"):
                check(lambda t, m, v: t.expand(4, 4).masked_fill_(m, v), place, mask, value)
    with pytest.warns(UserWarning, match="masked_fill_ on expanded tensors"):
        check(lambda t, m: t.expand(4, 4).masked_fill_(m, 5), torch.ones(1), torch.zeros(4, 4, dtype=torch.bool))
    with pytest.warns(UserWarning, match="index_fill_ on expanded tensors"):
        check(lambda t, i: t.expand(4).index_fill_(0, i, 3), torch.zeros(1), torch.tensor([1, 3]))
    with pytest.raises(RuntimeError, match="unsupported operation"):
        i = torch.arange(4, device=DEVICE)
        i.index_fill_(0, i, 1)


MANY = (2, 3, 1, 2, 1, 2, 1, 2, 3, 1, 2)


@pytest.mark.parametrize("accumulate", [False, True])
def test_many_indices(accumulate):
    """More dimensions are indexed than a launch takes: by a mask, by tensors, at both ends and apart."""
    x = tensor(*MANY)
    for t in (x, x.transpose(1, 8), torch.zeros(*MANY, 2)[..., 0].copy_(x)):
        m = t > 0
        check(lambda t, m: t[m], t, m)
        check(lambda t, m, v: t.index_put_((m,), v, accumulate), t, m, torch.arange(m.sum() * 1.0))
        check(lambda t, m: t[..., m[0, 0]], t[None].expand(3, *t.shape).clone(), torch.ones(2, 3, *MANY[2:]) > 0)
    at = [torch.tensor([0, -1, 1, -size])[:3] % size - size * (k % 2) for k, size in enumerate(MANY)]
    for ends in (at, [slice(None), *at[1:]], [*at[:-1], slice(None)], [at[0], slice(None), *at[2:]]):
        check(lambda t, *i: t[i], x, *ends)

        def put(t, *i):
            t[i] = 5
            return t

        check(put, x, *ends)
    i = [torch.zeros(1, dtype=torch.int64, device=DEVICE) for _ in MANY]
    for wrong in (2, -3):
        with pytest.raises(IndexError, match="out of bounds"):
            x.to(DEVICE)[(*i[:-1], i[-1] + wrong)].cpu()
