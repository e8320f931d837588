// Making tensors, views and resizing: operators that move no elements.
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>

#include "bridge/bridge.h"
#include "bridge/device_allocator.h"

namespace fl::bridge {

uint8_t to_dtype(ScalarType type) noexcept {
  // In the order of c10::ScalarType.
  static constexpr auto table = [] {
    std::array<uint8_t, static_cast<size_t>(ScalarType::NumOptions)> t{};
    auto set = [&](ScalarType s, int dtype) { t[static_cast<size_t>(s)] = static_cast<uint8_t>(dtype); };
    set(at::kBool, FL_BOOL), set(at::kByte, FL_U8), set(at::kChar, FL_I8), set(at::kUInt16, FL_U16);
    set(at::kShort, FL_I16), set(at::kUInt32, FL_U32), set(at::kInt, FL_I32), set(at::kUInt64, FL_U64);
    set(at::kLong, FL_I64), set(at::kHalf, FL_F16), set(at::kBFloat16, FL_BF16), set(at::kFloat, FL_F32);
    set(at::kDouble, FL_F64), set(at::kComplexHalf, FL_C32), set(at::kComplexFloat, FL_C64);
    set(at::kComplexDouble, FL_C128), set(at::kFloat8_e4m3fn, FL_F8_E4M3FN),
        set(at::kFloat8_e5m2, FL_F8_E5M2);
    set(at::kFloat8_e4m3fnuz, FL_F8_E4M3FNUZ), set(at::kFloat8_e5m2fnuz, FL_F8_E5M2FNUZ);
    return t;
  }();
  return table[static_cast<size_t>(type)];
}

ScalarType to_scalar_type(uint8_t dtype) noexcept {
  for (int s = 0; s < static_cast<int>(ScalarType::NumOptions); ++s)
    if (dtype != FL_NONE && to_dtype(static_cast<ScalarType>(s)) == dtype) return static_cast<ScalarType>(s);
  return ScalarType::Undefined;
}

fl_scalar to_scalar(const at::Scalar& value, uint8_t type) {
  fl_scalar s{};
  switch (type) {
    case FL_F16:
    case FL_BF16:
    case FL_F32:
    case FL_F64:
    case FL_F8_E4M3FN:
    case FL_F8_E5M2:
    case FL_F8_E4M3FNUZ:
    case FL_F8_E5M2FNUZ:
      s.v.f = value.isComplex() ? value.toComplexDouble().real() : value.toDouble();
      return s;
    case FL_C32:
    case FL_C64:
    case FL_C128: {
      auto c = value.toComplexDouble();
      s.v.f = c.real();
      s.imag = c.imag();
      return s;
    }
    case FL_BOOL:
      s.v.i = value.toBool();
      return s;
    case FL_U64:
      s.v.i = static_cast<int64_t>(value.to<uint64_t>());
      return s;
    default:
      s.v.i = value.isComplex()         ? static_cast<int64_t>(value.toComplexDouble().real())
              : value.isFloatingPoint() ? static_cast<int64_t>(value.toDouble())
              : value.isBoolean()       ? static_cast<int64_t>(value.toBool())
                                        : value.toLong();
      return s;
  }
}

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device device_or_current(std::optional<c10::Device> device) {
  c10::Device d = device.value_or(c10::Device(kDevice));
  TORCH_CHECK(d.type() == kDevice, "expected a device of torch-fl, got ", d);
  if (!d.has_index()) return c10::Device(kDevice, static_cast<c10::DeviceIndex>(current_device()));
  return d;
}

// Deterministic mode fills new memory: NaN, or the largest integer.
void fill_if_deterministic(const Tensor& t) {
  auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()))
    at::native::fill_empty_deterministic_(const_cast<Tensor&>(t));
}

void warn_of_complex_half(ScalarType dtype) {
  if (C10_UNLIKELY(dtype == at::kComplexHalf)) {
    TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
  }
}

Tensor make_tensor(c10::Device device, size_t bytes, ScalarType dtype) {
  return guarded([&] {
    return at::detail::make_tensor<c10::TensorImpl>(make_storage(device, bytes), kKeys,
                                                    c10::scalarTypeToTypeMeta(dtype));
  });
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!layout || *layout == at::kStrided, "a tensor on ", kDevice, " is strided, not ", *layout);
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
}

Tensor empty(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<at::Layout> layout,
             std::optional<c10::Device> device, std::optional<bool> pin_memory,
             std::optional<at::MemoryFormat> format) {
  check_options(layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  c10::Device d = device_or_current(device);
  ScalarType type = c10::dtype_or_default(dtype);
  warn_of_complex_half(type);
  Tensor t = make_tensor(d, at::detail::computeStorageNbytesContiguous(size, c10::elementSize(type)), type);
  if (size.size() != 1 || size[0] != 0) t.unsafeGetTensorImpl()->generic_set_sizes_contiguous(size);
  if (format && *format != at::MemoryFormat::Contiguous)
    t.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  fill_if_deterministic(t);
  return t;
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype,
                     std::optional<at::Layout> layout, std::optional<c10::Device> device,
                     std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  TORCH_CHECK(size.size() == stride.size(), "dimensionality of sizes (", size.size(),
              ") must match dimensionality of strides (", stride.size(), ")");
  Tensor t = empty_on(device_or_current(device), size, stride, c10::dtype_or_default(dtype));
  fill_if_deterministic(t);
  return t;
}

// Zeros without memory, which autograd adds up in place of gradients that are zero.
Tensor efficient_zero_tensor(IntArrayRef size, std::optional<ScalarType> dtype,
                             std::optional<at::Layout> layout, std::optional<c10::Device> device,
                             std::optional<bool> pin_memory) {
  using Allocator = at::native::ZeroTensorAllocator;
  static auto& allocators = *[] {
    auto* all = new std::vector<Allocator>;
    for (int i = 0; i < kMaxDevices; ++i)
      all->emplace_back(c10::Device(kDevice, static_cast<c10::DeviceIndex>(i)));
    return all;
  }();
  check_options(layout, pin_memory);
  c10::Device d = device_or_current(device);
  constexpr auto keys =
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &allocators[static_cast<size_t>(d.index())], keys,
                                   c10::dtype_or_default(dtype), std::nullopt);
}

// Storage grows when the new shape needs more; what was there stays.
void grow_storage(c10::TensorImpl* impl, size_t bytes) {
  const c10::Storage& storage = impl->unsafe_storage();
  if (bytes > storage.nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, bytes);
}

const Tensor& resize_(const Tensor& self, IntArrayRef size, std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  auto* impl = self.unsafeGetTensorImpl();
  size_t before = self.storage().nbytes();
  if (impl->sizes() != size) {
    size_t bytes =
        at::detail::computeStorageNbytesContiguous(size, self.dtype().itemsize(), self.storage_offset());
    impl->generic_set_sizes_contiguous(size);
    if (self.numel() > 0) guarded([&] { grow_storage(impl, bytes); });
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory() &&
                   self.storage().nbytes() > before))
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  return self;
}

Tensor& set_storage(Tensor& self, c10::Storage storage, int64_t offset, IntArrayRef size,
                    IntArrayRef stride) {
  at::native::checkSetStorage(self, storage, offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data()) impl->set_sizes_and_strides(size, stride);
  else impl->generic_set_sizes_contiguous(size);
  size_t bytes = at::detail::computeStorageNbytes(size, self.strides(), self.dtype().itemsize(), offset);
  if (self.numel() > 0) guarded([&] { grow_storage(impl, bytes); });
  return self;
}

Tensor& set_whole_storage(Tensor& self, c10::Storage storage) {
  int64_t elements = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(storage), 0, elements, {});
}

Tensor& set_nothing(Tensor& self) {
  c10::Storage storage(make_storage(self.device(), 0));
  return set_storage(self, std::move(storage), 0, {0}, {});
}

// At once.  A lazy clone shares memory until one of the two is written to, and kernels here take the address
// of what they write as of what they read.
Tensor lazy_clone(const Tensor& self) {
  const c10::Storage& from = self.storage();
  auto bytes = self.options().dtype(at::kByte);
  const int64_t size = static_cast<int64_t>(from.nbytes());
  Tensor copy = at::empty({0}, bytes).set_(from, 0, {size}, {1}).clone();
  return at::empty({0}, self.options())
      .set_(copy.storage(), self.storage_offset(), self.sizes(), self.strides());
}

}  // namespace

Tensor empty_on(c10::Device device, IntArrayRef sizes, IntArrayRef strides, ScalarType dtype) {
  warn_of_complex_half(dtype);
  size_t item = c10::elementSize(dtype);
  size_t bytes = strides.empty() ? at::detail::computeStorageNbytesContiguous(sizes, item)
                                 : at::detail::computeStorageNbytes(sizes, strides, item);
  Tensor t = make_tensor(device, bytes, dtype);
  if (strides.empty()) t.unsafeGetTensorImpl()->generic_set_sizes_contiguous(sizes);
  else t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return t;
}

Tensor empty_like(const Tensor& like, IntArrayRef sizes, ScalarType dtype) {
  return empty_on(like.device(), sizes, {}, dtype);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", efficient_zero_tensor);
  m.impl("_lazy_clone", lazy_clone);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_", set_nothing);
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
}

}  // namespace fl::bridge
