import warnings

import pytest
import torch
from child import run_beside_template
from family import assert_same, gradients, no_fallback, tensor, to_device
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CASES = [(torch.nn.LSTM, {}), (torch.nn.GRU, {}), (torch.nn.RNN, {}), (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True}),
         (torch.nn.GRU, {"bias": False, "batch_first": True}), (torch.nn.LSTM, {"proj_size": 3}),
         (torch.nn.LSTM, {"bias": False, "batch_first": True, "bidirectional": True}),
         (torch.nn.LSTM, {"num_layers": 3, "dtype": torch.float64})]  # fmt: skip


def pair(cls, *sizes, **options):
    """The same module on the CPU and on the device."""
    torch.manual_seed(0)
    here, there = cls(*sizes, **options), cls(*sizes, **options).to("fl:0")
    there.load_state_dict(here.state_dict())
    return here, there


@pytest.mark.parametrize("cls,options", CASES)
def test_recurrent_layers(cls, options):
    here, there = pair(cls, 4, 6, **options)
    x = tensor(5, 3, 4).to(options.get("dtype", torch.float32)).requires_grad_()
    y = to_device(x)
    with no_fallback():
        got, want = there(y), here(x)
        got[0].pow(2).sum().backward()
    want[0].pow(2).sum().backward()
    assert_same(got, want, 1e-4, 1e-5)
    assert_same(
        [p.grad for p in (*there.parameters(), y)], [p.grad for p in (*here.parameters(), x)], 1e-4, 1e-4
    )


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "batch_first": True}])
def test_gradients_of_each_output_and_state(used, options):
    here, there = pair(torch.nn.LSTM, 4, 6, num_layers=2, **options)
    states = 4 if options else 2
    arguments = [
        tensor(5, 3, 4),
        tensor(states, 5 if options else 3, 6),
        tensor(states, 5 if options else 3, 6),
    ]
    results = []
    for module, place in ((there, to_device), (here, torch.clone)):
        x, h, c = leaves = [place(t).requires_grad_() for t in arguments]
        y, (hy, cy) = module(x, (h, c))
        outputs = [(y, hy, cy)[k] for k in used]
        results.append((outputs, gradients(outputs, [*leaves, *module.parameters()])))
    assert_same(*results, 1e-4, 1e-4)


@pytest.mark.parametrize("steps,batch", [(1, 3), (5, 0), (1, 1)])
def test_short_sequences_and_empty_batches(steps, batch):
    here, there = pair(torch.nn.LSTM, 4, 6, bidirectional=True)
    x = torch.randn(steps, batch, 4)
    got, want = there(x.to("fl")), here(x)
    assert_same(got, want, 1e-4, 1e-5)
    got[0].sum().backward(), want[0].sum().backward()
    assert_same([p.grad for p in there.parameters()], [p.grad for p in here.parameters()], 1e-4, 1e-5)


def test_second_derivatives():
    here, there = pair(torch.nn.LSTM, 3, 4, bidirectional=True)
    results = []
    for module, device in ((there, "fl"), (here, "cpu")):
        x = tensor(4, 2, 3).to(device).requires_grad_()
        (first,) = torch.autograd.grad(module(x)[0].pow(2).sum(), x, create_graph=True)
        first.pow(2).sum().backward()
        results.append([x.grad, *(p.grad for p in module.parameters())])
    assert_same(*results, 1e-3, 1e-4)


def test_without_gradients_and_dropout_between_layers():
    here, there = pair(torch.nn.LSTM, 4, 6, num_layers=3, dropout=0.5)
    x = tensor(5, 3, 4)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert_same(there.eval()(x.to("fl")), here.eval()(x), 1e-4, 1e-5)
    there.train()
    torch.manual_seed(1)
    first = there(x.to("fl"))[0]
    torch.manual_seed(1)
    assert torch.equal(first, there(x.to("fl"))[0]) and not torch.equal(first, there(x.to("fl"))[0])


def test_outputs_share_no_memory_and_changes_of_saved_ones_are_noticed():
    _, there = pair(torch.nn.LSTM, 4, 6)
    y, (hy, cy) = there(tensor(5, 3, 4).to("fl"))
    last = hy.clone()
    with torch.no_grad():
        y.zero_()
    assert torch.equal(hy, last) and cy.data_ptr() != hy.data_ptr()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("cls", [torch.nn.LSTM, torch.nn.GRU])
def test_packed_sequences(cls):
    here, there = pair(cls, 4, 6, num_layers=2, bidirectional=True)
    results = []
    for module, device in ((there, "fl"), (here, "cpu")):
        x = tensor(5, 3, 4).to(device).requires_grad_()
        y, state = module(pack_padded_sequence(x, [5, 2, 3], enforce_sorted=False))
        y = pad_packed_sequence(y)[0]
        y.pow(2).sum().backward()
        results.append((y, state, [x.grad, *(p.grad for p in module.parameters())]))
    assert_same(*results, 1e-4, 1e-4)


def test_a_layer_is_few_launches():
    _, there = pair(torch.nn.LSTM, 4, 6)
    x = tensor(50, 3, 4).to("fl")
    torch.fl.reset_op_report()
    there(x)[0].sum().backward()
    report = torch.fl.op_report()
    assert report["aten::mkldnn_rnn_layer"]["composed"] == 1
    products = sum(row["native"] for name, row in report.items() if "mm" in name)
    assert products <= 2 * 50 + 8, "a product a step each way, and those of all steps"


def test_autocast_gives_the_low_precision():
    here, there = pair(torch.nn.LSTM, 4, 6)
    x = tensor(5, 3, 4)
    with torch.autocast("fl", torch.bfloat16):
        got = there(x.to("fl"))
    assert {t.dtype for t in (got[0], *got[1])} == {torch.bfloat16}
    torch.testing.assert_close(got[0].float().cpu(), here(x)[0], rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize(
    "input,state,text",
    [((5, 3, 7), (1, 3, 6), "cannot be multiplied"), ((5, 3, 4), (2, 3, 6), "hidden states"),
     ((0, 3, 4), (1, 3, 6), "sequence length"), ((5, 3, 4), (1, 2, 6), "size")],
)  # fmt: skip
def test_wrong_shapes_are_refused(input, state, text):
    # PyTorch's CPU kernel reads beyond what it is given in the last case.
    w = [p.detach() for p in torch.nn.LSTM(4, 6).to("fl").parameters()]
    x, h = torch.zeros(input, device="fl"), torch.zeros(state, device="fl")
    with pytest.raises(RuntimeError, match=text):
        torch.lstm(x, [h, h], w, True, 1, 0.0, True, False, False)


def test_other_devices_and_dtypes_are_refused():
    w = [p.detach() for p in torch.nn.LSTM(4, 6).to("fl").parameters()]
    with pytest.raises(RuntimeError, match="same device"):
        torch.lstm(
            torch.zeros(5, 3, 4, device="fl"), [torch.zeros(1, 3, 6)] * 2, w, True, 1, 0.0, True, False, False
        )
    zeros = torch.zeros(1, 3, 6, device="fl", dtype=torch.float64)
    with pytest.raises(RuntimeError, match="dtype|Double"):
        torch.lstm(torch.zeros(5, 3, 4, device="fl"), [zeros, zeros], w, True, 1, 0.0, True, False, False)


@pytest.mark.parametrize("cls", [torch.nn.LSTMCell, torch.nn.GRUCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(cls, bias):
    here, there = pair(cls, 4, 6, bias=bias)
    results = []
    for module, device in ((there, "fl"), (here, "cpu")):
        x = tensor(3, 4).to(device).requires_grad_()
        out = module(x)
        results.append((out, gradients(out, [x, *module.parameters()])))
    assert_same(*results, 1e-4, 1e-5)


@pytest.mark.parametrize("cls", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_cells_from_views(cls):
    """States with gaps between their rows."""
    here, there = pair(cls, 4, 6)
    results = []
    for module, device in ((there, "fl"), (here, "cpu")):
        wide = tensor(3, 20).to(device).requires_grad_()
        states = (wide[:, 4:16:2], wide[:, 10:16])
        out = module(wide[:, :4], states if cls is torch.nn.LSTMCell else states[0])
        results.append((out, gradients(out, [wide, *module.parameters()])))
    assert_same(*results, 1e-4, 1e-5)


def test_a_state_for_all_rows():
    """PyTorch composes a packed sequence of cells, which take states that broadcast."""
    cx, gates = tensor(1, 6), tensor(3, 24)
    got = torch.ops.aten._thnn_fused_lstm_cell(gates.to("fl"), gates.to("fl"), cx.to("fl"))
    i, f, g, o = (2 * gates).chunk(4, 1)
    cy = f.sigmoid() * cx + i.sigmoid() * g.tanh()
    assert_same(got[:2], (o.sigmoid() * cy.tanh(), cy), 1e-4, 1e-5)
    with pytest.raises(RuntimeError, match="scalar type"):
        torch.ops.aten._thnn_fused_lstm_cell(gates.to("fl"), gates.to("fl"), cx.double().to("fl"))


def test_a_chip_without_the_dtype():
    # float64 is none of the mandatory types: the steps run as operators, which fall back.
    code = """
        import torch
        torch.fl.config.fallback = "quiet"
        for cls in (torch.nn.LSTM, torch.nn.GRU):
            torch.manual_seed(0)
            here, there = cls(4, 6, dtype=torch.float64), cls(4, 6, dtype=torch.float64).to("template:0")
            there.load_state_dict(here.state_dict())
            results = []
            for module, device in ((there, "template:0"), (here, "cpu")):
                x = torch.arange(60, dtype=torch.float64).sin().view(5, 3, 4).to(device).requires_grad_()
                y = module(x)[0]
                y.pow(2).sum().backward()
                results.append([t.detach().cpu() for t in (y, x.grad, *(p.grad for p in module.parameters()))])
            torch.testing.assert_close(*results)
    """
    run_beside_template(code)


def test_moving_a_layer_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.nn.LSTM(4, 6).to("fl")(torch.zeros(2, 1, 4, device="fl"))
