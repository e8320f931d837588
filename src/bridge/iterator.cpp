// TensorIterator → pointwise program → launch.
#include "bridge/iterator.h"

#include <ATen/Dispatch_v2.h>
#include <c10/util/Load.h>

#include <atomic>
#include <chrono>

#include "bridge/by_number.h"
#include "bridge/ops/programs.h"
#include "program/lower.h"

namespace fl::bridge {

// ------------------------------------------------------------ program cache
// Programs of one operator by the types of its operands.  A list that only
// grows: an operator meets a handful of type combinations in a process.
struct ProgramCache {
  uint64_t key;
  const fl_program* program;
  ProgramCache* next;
};

namespace {

std::mutex cache_mutex;  // writers only

const fl_program* find_program(const IteratorOp& op, uint64_t key) {
  auto* entry =
      std::atomic_ref<ProgramCache*>(const_cast<ProgramCache*&>(op.cache)).load(std::memory_order_acquire);
  for (; entry; entry = entry->next)
    if (entry->key == key) return entry->program;
  return nullptr;
}

void keep_program(IteratorOp& op, uint64_t key, const fl_program* program) {
  std::lock_guard lock(cache_mutex);
  auto* entry = new ProgramCache{key, program, op.cache};
  std::atomic_ref<ProgramCache*>(op.cache).store(entry, std::memory_order_release);
}

// Operand dtypes, which inputs are numbers, which keep their digits, and the common type, in 64 bits.
// bits: 5 an operand (at most 8), 8 for the mask, 5 for the common dtype, 2 for `kept`.
uint64_t make_key(const at::TensorIteratorBase& iter, unsigned number_mask, unsigned kept,
                  ScalarType common) {
  uint64_t key = kept << 5 | to_dtype(common);
  for (int i = 0; i < iter.ntensors(); ++i) key = key << 5 | to_dtype(iter.dtype(i));
  return key << 8 | number_mask;
}

// Does an operand lose digits on its way to the common half dtype?  Registers hold F32, so that
// LOAD alone would keep them: 2049 as F16 is 2048, and compares as that.  `kept`: bits of the inputs that do.
bool is_rounded(unsigned kept, int input, ScalarType from, ScalarType common) {
  return !(kept >> input & 1) && at::isReducedFloatingType(common) && from != common && from != at::kBool &&
         from != at::kChar && from != at::kByte;
}

ScalarType common_type(const IteratorOp& op, const at::TensorIteratorBase& iter) {
  if (op.by_output) return iter.dtype(0);
  if (auto common = iter.maybe_common_dtype()) return *common;
  return iter.ninputs() ? iter.input_dtype(0) : iter.dtype(0);
}

const fl_program* make_program(IteratorOp& op, const at::TensorIteratorBase& iter, unsigned number_mask,
                               unsigned kept, ScalarType common, int n_scalars) {
  uint8_t type = to_register(common);
  if (type == FL_NONE) return nullptr;
  Builder b;
  Value in[FL_MAX_INPUTS + FL_MAX_SCALARS];
  int inputs = 0, scalars = 0;
  for (int i = 0; i < iter.ninputs(); ++i) {
    ScalarType dtype = iter.input_dtype(i);
    uint8_t memory = to_dtype(is_rounded(kept, i, dtype, common) ? common : dtype);
    if (memory == FL_NONE || register_type(memory) == FL_NONE) return nullptr;
    in[i] = number_mask >> i & 1 ? b.scalar(scalars++, type) : b.load(inputs++, memory, type);
    // A 0-d int16 beside a uint8 tensor is a uint8: -8 is 248.
    if (c10::isIntegralType(common, false) && dtype != common && !(number_mask >> i & 1))
      in[i] = b.narrow(in[i], to_dtype(common));
  }
  for (int k = 0; k < n_scalars; ++k) in[iter.ninputs() + k] = b.scalar(scalars++, type);
  Value result = op.build(b, in, type, common);  // throws Error for types that the formula does not take
  uint8_t memory = to_dtype(iter.dtype(0));
  if (memory == FL_NONE || register_type(memory) == FL_NONE) return nullptr;
  // Integers wrap in the common type, whatever the output's.
  if (result.type == type && memory != to_dtype(common) && c10::isIntegralType(common, false))
    result = b.narrow(result, to_dtype(common));
  b.store(0, b.cast(result, register_type(memory)), memory);
  return b.finish();
}

// An integer as the common dtype holds it: PyTorch compares a uint8 with 255 for -1.
int64_t wrap(int64_t value, ScalarType common) {
  switch (common) {
    case at::kByte:
      return static_cast<uint8_t>(value);
    case at::kChar:
      return static_cast<int8_t>(value);
    case at::kShort:
      return static_cast<int16_t>(value);
    case at::kUInt16:
      return static_cast<uint16_t>(value);
    case at::kInt:
      return static_cast<int32_t>(value);
    case at::kUInt32:
      return static_cast<uint32_t>(value);
    default:
      return value;
  }
}

// A CPU number among the inputs, rounded to the common type as PyTorch does.
// Read in place: item() would cost a trip through the dispatcher.
fl_scalar number_of(const at::TensorIteratorBase& iter, int operand, ScalarType common, uint8_t type) {
  const void* data = iter.data_ptr(operand);
  ScalarType dtype = iter.dtype(operand);
  fl_scalar number{};
  switch (type) {
    case FL_F32:
    case FL_F64: {
      double value = c10::fetch_and_cast<double>(dtype, data);
      if (common == at::kFloat) value = static_cast<float>(value);
      if (common == at::kHalf) value = static_cast<float>(static_cast<at::Half>(static_cast<float>(value)));
      if (common == at::kBFloat16)
        value = static_cast<float>(static_cast<at::BFloat16>(static_cast<float>(value)));
      number.v.f = value;
      break;
    }
    case FL_C64:
    case FL_C128: {
      auto value = c10::fetch_and_cast<c10::complex<double>>(dtype, data);
      number.v.f = value.real();
      number.imag = value.imag();
      break;
    }
    case FL_BOOL:
      number.v.i = c10::fetch_and_cast<bool>(dtype, data);
      break;
    default:
      number.v.i = wrap(c10::fetch_and_cast<int64_t>(dtype, data), common);
  }
  return number;
}

}  // namespace

bool IteratorViews::fill(const at::TensorIteratorBase& iter) {
  int ndim = 0;
  for (int d = iter.ndim() - 1; d >= 0; --d) {
    int64_t size = iter.shape()[d];
    if (size == 1) continue;
    if (ndim == FL_MAX_DIMS) return false;
    for (int i = 0; i < iter.ntensors(); ++i) strides[i][ndim] = iter.strides(i)[d] / iter.element_size(i);
    sizes[ndim++] = size;
  }
  for (int i = 0; i < iter.ntensors(); ++i)
    tensors[i] = fl_tensor{iter.data_ptr(i), sizes, strides[i], ndim, to_dtype(iter.dtype(i)), 0, 0};
  return true;
}

namespace {

// The operand in the common dtype, as large as it is before broadcasting; `view` then shows that.
Tensor rounded(Op& op, const at::TensorIteratorBase& iter, int operand, ScalarType common, fl_tensor& view,
               int64_t* strides) {
  const Tensor& t = iter.tensor(operand);
  at::DimVector sizes(view.ndim), from(view.strides, view.strides + view.ndim);
  for (int d = 0; d < view.ndim; ++d) sizes[d] = from[d] ? view.sizes[d] : 1;
  Tensor copy = empty_on(t.device(), sizes, {}, common);
  auto* start = static_cast<char*>(t.storage().mutable_data());
  int64_t offset = (static_cast<char*>(view.data) - start) / static_cast<int64_t>(t.element_size());
  copy_on_device(op, copy, t.as_strided(sizes, from, offset));
  for (int d = 0; d < view.ndim; ++d) strides[d] = from[d] ? copy.stride(d) : 0;
  view.data = copy.mutable_data_ptr();
  view.strides = strides;
  view.dtype = to_dtype(common);
  return copy;
}

// A half result in a wider out= has been rounded to half on the way: out= does
// not change what is computed.  (Integers wrap within the program.)
bool rounds_on_the_way(const IteratorOp& op, const at::TensorIteratorBase& iter) {
  if (op.by_output || iter.noutputs() != 1) return false;
  auto common = iter.maybe_common_dtype();
  ScalarType out = iter.dtype(0);
  return common && at::isReducedFloatingType(*common) && out != *common &&
         (c10::isFloatingType(out) || (c10::isComplexType(out) && out != at::kComplexHalf));
}

bool run_iterator_unguarded(IteratorOp& op, at::TensorIteratorBase& iter, const at::Scalar* scalars,
                            int n_scalars, unsigned kept = 0) {
  c10::Device device = iter.device(0);
  if (C10_UNLIKELY(rounds_on_the_way(op, iter)) && iter.numel() != 0) {
    Tensor half = empty_on(device, iter.tensor(0).sizes(), {}, *iter.maybe_common_dtype());
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
    config.allow_cpu_scalars(true).promote_inputs_to_common_dtype(true).add_output(half);
    for (int i = 0; i < iter.ninputs(); ++i) config.add_const_input(iter.tensor(iter.noutputs() + i));
    at::TensorIterator inner = config.build();
    if (!run_iterator_unguarded(op, inner, scalars, n_scalars, kept)) return false;
    copy_on_device(op.op, iter.tensor(0), half);
    return true;
  }
  unsigned number_mask = 0;
  for (int i = 0; i < iter.ninputs(); ++i) {
    int operand = iter.noutputs() + i;
    if (iter.device(operand) == device) continue;
    if (!iter.is_cpu_scalar(operand)) throw_mixed_devices(op.op, device, iter.device(operand));
    number_mask |= 1u << i;
  }
  if (iter.ntensors() > 8 || iter.noutputs() != 1) return false;
  Call call(op.op, device);
  ScalarType common = common_type(op, iter);
  uint64_t key = make_key(iter, number_mask, kept, common);
  const fl_program* program = find_program(op, key);
  if (C10_UNLIKELY(!program)) {
    try {
      program = make_program(op, iter, number_mask, kept, common, n_scalars);
    } catch (const Error&) {
      return false;  // PyTorch's own kernel then says what it takes
    }
    if (!program) return false;
    keep_program(op, key, program);
  }
  // Not before: what the formula does not take is refused of no elements, too.
  if (iter.numel() == 0) return true;
  if (C10_UNLIKELY(!runs_on(call.chip(), *program)) && !lower(call.chip(), *program)) return false;

  IteratorViews views;
  if (C10_UNLIKELY(!views.fill(iter))) {
    // More dimensions than the ABI takes: the slowest one that is not 1, a slice at a time.
    int slowest = iter.ndim() - 1;
    while (iter.shape()[slowest] == 1) --slowest;
    for (int64_t k = 0, n = iter.shape()[slowest]; k < n; ++k) {
      std::unique_ptr<at::TensorIterator> slice = std::make_unique<at::TensorIterator>(iter);
      slice->narrow(slowest, k, 1);
      if (!run_iterator_unguarded(op, *slice, scalars, n_scalars, kept)) return false;
    }
    return true;
  }
  fl_scalar numbers[FL_MAX_SCALARS];
  int n = 0;
  uint8_t type = to_register(common);
  fl_tensor inputs[FL_MAX_INPUTS];
  int n_inputs = 0;
  Tensor copies[FL_MAX_INPUTS];  // until the launch is queued: the allocator reuses in the stream's order
  for (int i = 0; i < iter.ninputs(); ++i) {
    int operand = iter.noutputs() + i;
    if (number_mask >> i & 1) {
      numbers[n++] = number_of(iter, operand, common, type);
      continue;
    }
    if (C10_UNLIKELY(is_rounded(kept, i, iter.dtype(operand), common)))
      copies[i] = rounded(op.op, iter, operand, common, views.tensors[operand], views.strides[operand]);
    inputs[n_inputs++] = views.tensors[operand];
  }
  for (int k = 0; k < n_scalars; ++k) {
    // 64 unsigned bits, of which the register takes the lot.
    numbers[n] = to_scalar(scalars[k], common == at::kUInt64 ? uint8_t{FL_U64} : type);
    if (c10::isIntegralType(common, false)) numbers[n].v.i = wrap(numbers[n].v.i, common);
    ++n;
  }
  fl_pointwise_args args{program, inputs, views.tensors, numbers};
  // Fault reports show the operands as the user knows them, not as they were coalesced.
  fl_tensor shown[4];
  const fl_tensor* list[4];
  int n_shown = 0;
  for (int i = 0; i < iter.ntensors() && n_shown < 4; ++i) {
    const at::TensorBase& t = iter.tensor_base(i);
    shown[n_shown] = {
        nullptr, t.sizes().data(), nullptr, static_cast<int32_t>(t.dim()), to_dtype(t.scalar_type()), 0, 0};
    list[n_shown] = &shown[n_shown];
    ++n_shown;
  }
  return pointwise(call, args, list, n_shown);
}

}  // namespace

bool run_iterator(IteratorOp& op, at::TensorIteratorBase& iter, const at::Scalar* scalars, int n_scalars) {
  return guarded([&] { return run_iterator_unguarded(op, iter, scalars, n_scalars); });
}

bool run_by_number(IteratorOp& op, IteratorOp& half_op, at::TensorIteratorBase& iter) {
  if (!at::isReducedFloatingType(iter.common_dtype())) return run_iterator(op, iter);
  // What is expanded and of another dtype was several numbers when it was rounded.
  bool one = iter.is_scalar(2) && (iter.dtype(2) == iter.common_dtype() || iter.tensor_base(2).numel() == 1);
  if (!one) return run_iterator(half_op, iter);
  if (!iter.is_cpu_scalar(2))
    return guarded([&] { return run_iterator_unguarded(op, iter, nullptr, 0, /*kept=*/1u << 1); });
  at::Scalar number = iter.original_scalar_value<float>(2);
  at::TensorIterator unary(iter);
  unary.remove_operand(2);
  return run_iterator(op, unary, &number, 1);
}

Tensor empty_as_asked(const at::TensorOptions& options, IntArrayRef sizes, IntArrayRef strides) {
  Tensor out = empty_on(options.device(), sizes, strides, c10::typeMetaToScalarType(options.dtype()));
  if (auto format = options.memory_format_opt(); format && strides.empty())
    out.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return out;
}

void check_fits(const at::Scalar& value, ScalarType type) {
  if (to_dtype(type) == FL_NONE || c10::isFloat8Type(type)) return;
  AT_DISPATCH_V2(type, "check_fits", AT_WRAP([&] { (void)value.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool,
                 at::kHalf, at::kBFloat16, at::kComplexHalf);
}

void warn_of_expanded(const char* name, const char* indexing) {
  TORCH_WARN(
      "Use of ", name,
      " on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
      "This also applies to advanced indexing e.g. ",
      indexing);
}

// ------------------------------------------------------------- on the host

namespace {
int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace

HostIterator::HostIterator(Op& op, at::TensorIteratorBase& iter, bool promote, bool is_reduction)
    : op_(op), device_iter_(iter) {
  std::string types;
  for (int i = 0; i < iter.ntensors(); ++i)
    types += (i ? ", " : "") + std::string(c10::toString(iter.dtype(i)));
  announce_fallback(op, types.c_str());
  started_ns_ = now_ns();
  // The operands as the iterator shaped them, in the types that a CPU kernel
  // expects (it has no casts of its own): inputs in the common type, outputs
  // in the type that they would have been computed in.
  auto common = promote ? iter.maybe_common_dtype() : std::nullopt;
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .resize_outputs(false)
      .set_check_mem_overlap(false)
      .promote_inputs_to_common_dtype(false);
  config.is_reduction(is_reduction);
  host_.reserve(iter.ntensors());
  for (int i = 0; i < iter.ntensors(); ++i) {
    const Tensor& t = iter.tensor(i);
    std::vector<int64_t> sizes(iter.shape().rbegin(), iter.shape().rend()), strides;
    for (auto s = iter.strides(i).rbegin(); s != iter.strides(i).rend(); ++s)
      strides.push_back(*s / iter.element_size(i));
    Tensor host = t;
    if (is_fl(t)) {
      int64_t offset =
          (static_cast<char*>(iter.data_ptr(i)) - static_cast<char*>(t.storage().mutable_data())) /
          iter.element_size(i);
      Tensor operand = t.as_strided(sizes, strides, offset);
      if (!is_mapped(t)) bytes_ += operand.nbytes();
      host = host_view(operand);
    } else {
      host = t.expand(sizes);
    }
    bool output = i < iter.noutputs();
    ScalarType wanted = iter.dtype(i);
    if (!output && common) wanted = *common;
    // A comparison's bool, abs of a complex number, polar's complex one and frexp's exponent are what their
    // kernels write.
    bool own = wanted == at::kBool || (common && c10::isComplexType(*common) != c10::isComplexType(wanted)) ||
               (common && c10::isFloatingType(*common) && c10::isIntegralType(wanted, true));
    if (output && common && !own) wanted = *common;
    if (output) targets_.push_back(host);
    if (wanted != host.scalar_type()) host = host.to(wanted);
    host_.push_back(host);
  }
  for (int i = 0; i < iter.noutputs(); ++i) config.add_output(host_[i]);
  for (int i = iter.noutputs(); i < iter.ntensors(); ++i) config.add_const_input(host_[i]);
  iter_ = config.build();
}

void HostIterator::finish() {
  for (int i = 0; i < device_iter_.noutputs(); ++i) {
    if (!targets_[i].is_same(host_[i])) targets_[i].copy_(host_[i]);
    const Tensor& t = device_iter_.tensor(i);
    if (is_fl(t) && !is_mapped(t)) {
      std::vector<int64_t> sizes(device_iter_.shape().rbegin(), device_iter_.shape().rend()), strides;
      int64_t element = device_iter_.element_size(i);
      for (auto s = device_iter_.strides(i).rbegin(); s != device_iter_.strides(i).rend(); ++s)
        strides.push_back(*s / element);
      int64_t offset =
          (static_cast<char*>(device_iter_.data_ptr(i)) - static_cast<char*>(t.storage().mutable_data())) /
          element;
      // A reduced dimension has stride 0: one element of it is the result.
      for (size_t d = 0; d < sizes.size(); ++d)
        if (strides[d] == 0) sizes[d] = 1;
      Tensor source = targets_[i];
      for (size_t d = 0; d < sizes.size(); ++d)
        if (source.size(static_cast<int64_t>(d)) != sizes[d])
          source = source.narrow(static_cast<int64_t>(d), 0, sizes[d]);
      t.as_strided(sizes, strides, offset).copy_(source);
      bytes_ += source.nbytes();
    }
  }
  account_fallback(op_, bytes_, static_cast<uint64_t>(now_ns() - started_ns_));
}

}  // namespace fl::bridge
