"""Types that name a dtype and the device in one: torch.fl.FloatTensor, torch.fl.FloatStorage.

Old code makes tensors by calling them, converts by Tensor.type(them), and asks isinstance.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.storage import TypedStorage, _LegacyStorage, _warn_typed_storage_removal

_TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}
_STORAGES = {name.replace("Tensor", "Storage"): dtype for name, dtype in _TENSORS.items()} | {
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
}
__all__ = [*_TENSORS, *_STORAGES]


class _TensorType(type):
    dtype: torch.dtype
    layout = torch.strided
    is_cuda = property(lambda cls: torch.device("fl").type == "cuda")
    is_sparse = False

    def __instancecheck__(cls, obj: Any) -> bool:
        return (
            isinstance(obj, torch.Tensor)
            and obj.dtype == cls.dtype
            and obj.layout == torch.strided
            and obj.device.type == torch.device("fl").type
        )

    def __call__(cls, *args: Any, device: Any = None) -> torch.Tensor:
        """As torch.FloatTensor: of sizes, of a sequence, of a storage, or of a tensor of this type."""
        place = torch.device("fl" if device is None else device)
        if len(args) == 1 and isinstance(args[0], torch.Tensor):
            if not isinstance(args[0], cls):
                raise TypeError(f"expected a {cls.__name__} (got {args[0].type()})")
            return args[0].alias() if hasattr(args[0], "alias") else args[0].view_as(args[0])
        if len(args) == 1 and isinstance(args[0], TypedStorage | torch.UntypedStorage):
            return torch.empty(0, dtype=cls.dtype, device=place).set_(args[0])
        if len(args) == 1 and not isinstance(args[0], int | torch.SymInt | torch.Size):
            return torch.tensor(args[0], dtype=cls.dtype, device=place)
        sizes = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args or (0,)
        return torch.empty(sizes, dtype=cls.dtype, device=place)


class _TypedStorage(_LegacyStorage):
    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> Any:
        _warn_typed_storage_removal()
        raise RuntimeError("from_buffer: Not available for storages of a device")

    @classmethod
    def _new_with_weak_ptr(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("_new_with_weak_ptr: Not available for storages of a device")

    @classmethod
    def _new_shared_filename(cls, manager: Any, obj: Any, size: Any) -> Any:
        raise RuntimeError("_new_shared_filename: Not available for storages of a device")


# Tensor.type() reads the device in a type's name; of a storage type PyTorch reads it in its module.
for _name, _dtype in _TENSORS.items():
    _doc = f"{_dtype} tensors of a device, as torch.{_name} is for the CPU."
    globals()[_name] = _TensorType(
        f"torch.fl.{_name}", (), {"dtype": _dtype, "__doc__": _doc, "__module__": "torch.fl"}
    )
for _name, _dtype in _STORAGES.items():
    _doc = f"Storages of {_dtype} on a device."
    globals()[_name] = type(_LegacyStorage)(
        _name,
        (_TypedStorage,),
        {"dtype": _dtype, "_dtype": _dtype, "__doc__": _doc, "__module__": "torch.fl"},
    )
