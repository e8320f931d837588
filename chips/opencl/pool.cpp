// Pooling, forward and backward.
#include <string>

#include "chip.h"
#include "lanes.h"

namespace ocl {

namespace {

constexpr uint32_t kIntegers =
    FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_I16) | FL_BIT(FL_I32) | FL_BIT(FL_I64);

// x and y are the gradients in the backward.
template <class Args>
fl_status run(const fl_launch* launch, const Args& a, const fl_tensor& x, const fl_tensor& y, bool backward) {
  Device& d = *launch->stream->device;
  const bool max = a.kind == FL_POOL_MAX;
  if (a.kind < 0 || a.kind > FL_POOL_ADAPTIVE_AVERAGE) return FL_UNSUPPORTED;
  if (!computes(d, x.dtype) && !(max && !backward && kIntegers >> x.dtype & 1)) return FL_UNSUPPORTED;
  const fl_tensor* index = max ? a.index : nullptr;
  const bool same = x.dtype == y.dtype && x.ndim == y.ndim && x.ndim >= 3 && x.ndim <= 5 &&
                    x.sizes[0] == y.sizes[0] && x.sizes[1] == y.sizes[1];
  if (!same || (index && (index->dtype != FL_I64 || index->ndim != x.ndim)))
    return refuse(
        FL_INVALID,
        "pool: x and y must agree in dtype, rank, batch and channels, and the index be int64 of the "
        "same rank");
  if (backward && max && !index)
    return refuse(FL_INVALID, "pool_backward: the gradient of max pooling needs the index");

  const fl_tensor& written = backward ? x : y;
  const bool by_channel = x.sizes[1] > 1 && written.strides[1] == 1;
  int64_t elements = 1, window = 1;
  for (int i = 0; i < written.ndim; ++i) elements *= written.sizes[i];
  const int64_t row = by_channel ? x.sizes[1] : written.sizes[x.ndim - 1];
  const int64_t units = d.info.processor ? elements / row : elements;
  Parameters p;
  p.push(units), p.push(x.sizes[0]), p.push(x.sizes[1]), p.push(by_channel), p.push(index != nullptr);
  p.push(a.count_padding), p.push(a.divisor);
  // The spatial dimensions that are missing go in front.
  const int missing = 5 - x.ndim;
  auto spatial = [&](auto&& value, int64_t otherwise) {
    for (int i = 0; i < 3; ++i) p.push(i < missing ? otherwise : static_cast<int64_t>(value(i - missing)));
  };
  spatial([&](int i) { return x.sizes[2 + i]; }, 1);
  spatial([&](int i) { return y.sizes[2 + i]; }, 1);
  spatial([&](int i) { return a.kernel[i]; }, 1);
  spatial([&](int i) { return a.stride[i]; }, 1);
  spatial([&](int i) { return a.padding[i]; }, 0);
  spatial([&](int i) { return a.dilation[i]; }, 1);
  for (const fl_tensor* t : {&x, &y, index ? index : &y}) {
    p.push(t->strides[0]), p.push(t->strides[1]);
    spatial([&](int i) { return t->strides[2 + i]; }, 0);
  }
  for (int i = 0; i < x.ndim - 2; ++i)
    window *= a.kind == FL_POOL_ADAPTIVE_AVERAGE ? x.sizes[2 + i] / y.sizes[2 + i] + 1 : a.kernel[i];
  const int offsets = p.reserve(3);
  Kernel* kernel =
      d.library->get(Family::pool, (x.dtype * 4u + static_cast<uint32_t>(a.kind)) * 2u + backward, [&] {
        const std::string name = dtype_name(x.dtype), type = register_name(natural_register(x.dtype));
        const char* lowest = type == "I32" ? "INT_MIN" : type == "I64" ? "LONG_MIN" : "-INFINITY";
        return Source{"\n#define CT T_" + type + "\n#define LOWEST " + lowest + "\n#define LOAD_X LOAD_" +
                          name + "\n#define STORE_X STORE_" + name + "\n" +
                          (max                                  ? "#define MAX\n"
                           : a.kind == FL_POOL_ADAPTIVE_AVERAGE ? "#define ADAPTIVE\n"
                                                                : "") +
                          (backward ? "#define BACKWARD\n" : "") + kernel_source_pool,
                      "", "pool"};
      });
  if (!kernel) return FL_FAILED;
  Launch l(launch, kernel);
  l.at(1);
  p.set(offsets, l.buffer(x.data)), p.set(offsets + 1, l.buffer(y.data));
  p.set(offsets + 2, l.buffer(index ? index->data : y.data));
  if (fl_status status = p.pass(l, launch)) return status;
  Shape s = shape_for(d, units, std::max<int64_t>(1, 8192 / (row * window)));
  return l.run(s.groups, s.local);
}

void claim(Claims& claims, uint16_t entry, uint32_t integers) {
  claims.push_back({entry, FL_POOL_MAX, kFloats | integers});
  claims.push_back({entry, FL_POOL_AVERAGE, kFloats});
  claims.push_back({entry, FL_POOL_ADAPTIVE_AVERAGE, kFloats});
}

}  // namespace

fl_status pool(const fl_launch* launch, const fl_pool_args* a) { return run(launch, *a, a->x, a->y, false); }
fl_status pool_backward(const fl_launch* launch, const fl_pool_backward_args* a) {
  return run(launch, *a, a->grad_x, a->grad_y, true);
}

void claim_pool(Claims& claims) { claim(claims, FL_ENTRY_POOL, kIntegers); }
void claim_pool_backward(Claims& claims) { claim(claims, FL_ENTRY_POOL_BACKWARD, 0); }

}  // namespace ocl
