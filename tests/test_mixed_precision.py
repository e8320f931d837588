"""Autocast against the CUDA lists of this PyTorch, dtypes by what the chip declares, float32 precision."""

import warnings

import pytest
import torch
from child import BUILD, run_beside_template, run_child
from torch.testing._internal.autocast_test_lists import AutocastTestLists

D = "fl:0"


def with_autocast(key):
    names = torch._C._dispatch_get_all_op_names()
    return {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)}


def test_the_lists_hold_the_same_operators_as_cudas():
    cuda, ours = with_autocast("AutocastCUDA"), with_autocast("AutocastPrivateUse1")
    assert len(cuda) > 100
    # cuDNN's own, and one layer of torch.lstm, which is cuDNN's _cudnn_rnn where PyTorch has CUDA.
    cudnn = {"aten::cudnn_convolution", "aten::cudnn_convolution_transpose"}
    assert cuda - ours == cudnn | ({"aten::_cudnn_rnn"} if torch.version.cuda else set())
    assert ours - cuda == {"aten::mkldnn_rnn_layer"}


LISTS = AutocastTestLists(torch.device("cpu"))
CASES = [
    (kind, index)
    for kind in ("torch_fp16", "torch_fp32", "torch_need_autocast_promote", "torch_expect_builtin_promote",
                 "nn_fp16", "nn_fp32", "linalg_fp16", "methods_fp16", "methods_fp32",
                 "methods_expect_builtin_promote")
    for index in range(len(getattr(LISTS, kind)))
]  # fmt: skip
CUDNN = ("cudnn_convolution", "cudnn_convolution_transpose", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")


@pytest.fixture(scope="module")
def lists():
    return AutocastTestLists(torch.device(D))


@pytest.mark.parametrize("kind, index", CASES, ids=lambda v: str(v))
def test_an_operator_computes_in_the_dtype_of_its_list(kind, index, lists):
    case = getattr(lists, kind)[index]
    op, args = case[0], case[1]
    if op == "einsum":
        args, case = ("ij,jk->ik", *case[2]), case[:2]  # the list's own equation is for other operands
    if op in CUDNN:
        pytest.skip("cuDNN's or CUDA's own operator")
    rest = case[2:]
    promoted = isinstance(rest[0], torch.dtype) if rest else False
    kwargs = rest[0] if rest and isinstance(rest[0], dict) else {}
    owner = {"torch": torch, "nn": torch._C._nn, "linalg": torch._C._linalg}.get(kind.split("_")[0])

    def call():
        if kind.startswith("methods"):
            return getattr(args[0], op)(*args[1:])
        return getattr(owner, op)(*args, **kwargs)

    with torch.autocast("fl"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = call()
    if op == "equal":
        return
    first = out[0] if isinstance(out, (tuple, list)) else out
    if promoted or "promote" in kind:
        widest = (
            torch.float32
            if any(isinstance(a, torch.Tensor) and a.dtype == torch.float32 for a in flat(args))
            else torch.float16
        )
        want = rest[0] if promoted else widest
    else:
        want = torch.float16 if kind.endswith("fp16") else kwargs.get("dtype", torch.float32)
    assert first.dtype == want


def flat(args):
    for a in args:
        if isinstance(a, (tuple, list)):
            yield from flat(a)
        else:
            yield a


def test_equal_compares_values_of_two_dtypes():
    x = torch.tensor([0.5, 1.0], device=D)
    assert torch.equal(x, x.half()) and torch.equal(x.to(torch.bfloat16), x.double())
    assert not torch.equal(x + 1e-4, x.half()) and not torch.equal(x, x.half()[:1])


def test_banned(lists):
    for op, args, module in lists.banned:
        with torch.autocast("fl"), pytest.raises(RuntimeError, match="unsafe to autocast"):
            getattr(module, op)(*args)


def test_the_scalers_operators_run_on_the_device():
    torch.fl.reset_op_report()
    weights = [torch.ones(n, device=D, requires_grad=True) for n in (3, 1000, 0)]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    scaler = torch.amp.GradScaler("fl", init_scale=8.0, growth_interval=1)
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(sum((w * w).sum() for w in weights)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 64
    report = torch.fl.op_report()
    for name in ("aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"):
        assert report[name].calls == 3 and not report[name]["fallback"], report[name]


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_scaler_finds_what_is_not_finite(bad, dtype):
    grads = [torch.ones(5, device=D, dtype=dtype), torch.ones(2, 3, device=D, dtype=dtype).t()]
    found, scale = torch.zeros(1, device=D), torch.full((1,), 0.5, device=D)
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
    assert found.item() == 0 and grads[0].tolist() == [0.5] * 5
    grads[1][2, 1] = bad
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
    assert found.item() == 1


def test_the_default_dtype():
    assert torch.get_autocast_dtype("fl") == torch.float16  # as docs/settings.md says
    assert set(torch.fl.get_amp_supported_dtype()) == {torch.float16, torch.bfloat16, torch.float32}
    declared = torch.fl.devices()[0]
    assert torch.fl.is_bf16_supported() == ("bfloat16" in declared["storage"])
    assert torch.fl.is_bf16_supported(including_emulation=False) == ("bfloat16" in declared["arithmetic"])


@pytest.mark.parametrize("view", ["0", "1"])
def test_a_chip_without_float16(view):
    """PyTorch says so under the name fl, and computes in float32; what a script asks for by name it gets, rounded."""
    code = """
        import torch, warnings
        assert torch.fl.get_amp_supported_dtype() == [torch.bfloat16, torch.float32]
        assert torch.fl.is_bf16_supported() and not torch.fl.is_bf16_supported(including_emulation=False)
        a = torch.full((2, 2), 1 / 3, device="fl")
        with torch.autocast("fl", dtype=torch.bfloat16):
            assert (a @ a).dtype == torch.bfloat16
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with torch.autocast(torch.device("fl").type):
                print((a @ a).dtype)
            print(*(str(w.message).replace("\\n", " ") for w in said))
        half = a.half() @ a.half()
        assert torch.equal(half.cpu(), (a.cpu().half() @ a.cpu().half()))
    """
    # The template stores bfloat16 and no float16.
    how = {"FL_DEVICE": "template:0", "FL_CUDA_VIEW": view}
    first, second = run_beside_template(code, **how).stdout.splitlines()
    if view == "0":
        assert first == "torch.float32" and "only supports dtypes of torch.bfloat16" in second
    else:
        assert first == "torch.float16" and not second
    assert run_beside_template(code, **how, FL_AUTOCAST_DTYPE="bfloat16").stdout == "torch.bfloat16\n\n"


def test_float32_precision_is_never_less_than_asked():
    a = torch.rand(70, 50) + 1 / 3
    exact = (a.double() @ a.double().t()).float()
    convolved = torch.nn.functional.conv2d(a[None, None], a[None, None, :3, :3])
    try:
        for setting in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(setting)
            assert torch.get_float32_matmul_precision() == setting
            got = (a.to(D) @ a.to(D).t()).cpu()
            torch.testing.assert_close(got, exact, rtol=1e-6 if setting == "highest" else 2e-2, atol=0)
        torch.set_float32_matmul_precision("highest")
        for name in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = name
            assert torch.backends.cuda.matmul.fp32_precision == name
            torch.backends.cudnn.conv.fp32_precision = name
            got = torch.nn.functional.conv2d(a[None, None].to(D), a[None, None, :3, :3].to(D)).cpu()
            torch.testing.assert_close(got, convolved, rtol=1e-5 if name == "ieee" else 2e-2, atol=0)
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.conv.fp32_precision = "tf32"


def test_a_chip_is_told_what_precision_is_enough():
    """On a chip that rounds to TF32 where it may: products when asked for, convolutions unless forbidden besides,
    and never what an operator is composed of."""
    code = """
        import torch
        from torch.nn import functional as F

        torch.manual_seed(0)
        a, b = torch.rand(9, 9) + 0.1, torch.rand(9, 9) + 0.1
        image, filters = a[None, None], b[None, None, :3, :3]
        spd = a @ a.T + 9 * torch.eye(9)

        def rounded(f, *tensors):
            want, got = f(*tensors), f(*(t.to("fl") for t in tensors)).cpu()
            torch.testing.assert_close(got, want, rtol=2e-3, atol=1e-3)
            return (got - want).abs().max() > 2e-5 * want.abs().max()

        for setting in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(setting)
            reduced = setting != "highest"
            batched = lambda x, y: torch.bmm(x[None], y[None])
            for product in (torch.mm, lambda x, y: torch.mv(x, y[0]), F.linear, batched):
                assert rounded(product, a, b) == reduced, setting
            for allowed in (True, False):
                torch.backends.cudnn.allow_tf32 = allowed
                assert rounded(F.conv2d, image, filters) == (reduced and allowed), (setting, allowed)
            torch.backends.cudnn.allow_tf32 = True
            spectrum = lambda x: torch.fft.fft(x).abs()
            for composed in (spectrum, torch.linalg.cholesky, lambda x: torch.linalg.solve(x, x[0])):
                assert not rounded(composed, spd), setting
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_tf32 = True
        assert rounded(torch.mm, a, b)
    """
    chip = str(BUILD / "chips" / "broken_tf32.so")
    run_child(code, FL_CHIP_PATH=chip, FL_VISIBLE_DEVICES="template", FL_FALLBACK="quiet")
