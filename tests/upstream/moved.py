"""Names that test files of PyTorch 2.6 import and PyTorch 2.13 has elsewhere or no longer."""

from __future__ import annotations


def install():
    import torch.testing._internal.common_cuda as cuda
    import torch.testing._internal.common_methods_invocations as operators
    import torch.testing._internal.common_mkldnn as mkldnn
    import torch.testing._internal.common_nn as nn
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo

    replacements = [
        # (module, name, value when it is absent)
        (cuda, "tf32_is_not_fp32", lambda: lambda: False),
        (mkldnn, "bf32_on_and_off", lambda: lambda *_args, **_kwargs: lambda test: test),
        (nn, "new_module_tests", lambda: nn.get_new_module_tests()),
        (
            operators,
            "binary_ufuncs_and_refs",
            lambda: tuple(op for op in operators.ops_and_refs if isinstance(op, BinaryUfuncInfo)),
        ),
    ]
    for module, name, value in replacements:
        if not hasattr(module, name):
            setattr(module, name, value())
