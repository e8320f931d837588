// For tests of sim's kernels: the chip from its library, tensors in its memory
// in any layout, and programs written by hand.
#pragma once

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "fl/author/tensor.h"

namespace sim_test {

using Sizes = std::vector<int64_t>;

inline std::string last_error;
inline const fl_chip* chip;
inline fl_stream stream;

inline void load_chip(const char* path) {
  static const fl_host host = {sizeof(fl_host), FL_ABI_VERSION, [](int, const char*) {},
                               [](const char* text) { last_error = text; },
                               [](const fl_launch*, size_t, void**) -> fl_status { return FL_UNSUPPORTED; }};
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) std::fprintf(stderr, "%s\n", dlerror());
  REQUIRE(library);
  auto entry = reinterpret_cast<fl_chip_entry_fn>(dlsym(library, FL_CHIP_ENTRY_NAME));
  REQUIRE(entry);
  chip = entry(FL_ABI_VERSION, &host);
  REQUIRE(chip);
  REQUIRE(chip->device->open(0) == FL_OK);
  REQUIRE(chip->stream->create(0, 0, &stream) == FL_OK);
}

inline fl_launch launch(uint32_t flags = 0) { return {stream, 1, 0, flags}; }
inline fl_status wait() { return chip->stream->synchronize(stream, -1); }
// The launch was accepted and ran.
inline bool ran(fl_status status) {
  return CHECK_THAT(status == FL_OK, "launch: status %d, %s", status, last_error.c_str()) &&
         CHECK(wait() == FL_OK);
}

inline size_t bytes_of(int dtype) { return fl::author::dtype_size(static_cast<uint8_t>(dtype)); }
inline const char* text_of(int dtype) {
  static const char* const text[] = {"none",
#define TEXT(name, value, bytes, text) text,
                                     FL_DTYPE_MAP(TEXT)
#undef TEXT
  };
  return text[dtype];
}
inline bool floats(int dtype) {
  return dtype == FL_F16 || dtype == FL_BF16 || dtype == FL_F32 || dtype == FL_F64;
}

inline double half_value(uint16_t h) {
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  double v = exponent == 31 ? (mantissa ? NAN : INFINITY)
             : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                            : std::ldexp(mantissa, -24);
  return h & 0x8000 ? -v : v;
}
// To nearest even, by searching: slow and plain.
inline uint16_t half_bits(double v) {
  uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  v = std::fabs(v);
  if (v != v) return 0x7e00;
  if (v >= 65520) return sign | 0x7c00;
  uint16_t low = 0, high = 0x7bff;
  while (low < high) {
    uint16_t middle = uint16_t((low + high + 1) / 2);
    if (half_value(middle) <= v) low = middle;
    else high = uint16_t(middle - 1);
  }
  double below = v - half_value(low), above = (low == 0x7bff ? 65536.0 : half_value(uint16_t(low + 1))) - v;
  return uint16_t(sign | (below < above || (below == above && !(low & 1)) ? low : low + 1));
}

enum class Layout { contiguous, transposed, stepped, reversed, broadcast };
constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::stepped, Layout::reversed};

// A tensor in device memory.  Between launches the host reads and writes it through the chip's mapping.
class Tensor {
 public:
  Tensor(int dtype, Sizes sizes, Layout layout = Layout::contiguous)
      : dtype_(dtype), sizes_(std::move(sizes)), strides_(sizes_.size()) {
    int n = int(sizes_.size());
    int64_t stride = layout == Layout::stepped ? 3 : 1;
    for (int k = 0; k < n; ++k) {
      int d = layout == Layout::transposed ? k : n - 1 - k;
      strides_[size_t(d)] = stride;
      stride *= sizes_[size_t(d)];
    }
    if (layout == Layout::broadcast && n) strides_[0] = 0;
    int64_t first = 0, last = 0;
    for (int d = 0; d < n; ++d) {
      if (layout == Layout::reversed) strides_[size_t(d)] = -strides_[size_t(d)];
      int64_t reach = (sizes_[size_t(d)] - 1) * strides_[size_t(d)];
      (reach < 0 ? first : last) += reach;
    }
    elements_ = last - first + 1;
    origin_ = -first;
    size_t bytes = size_t(elements_) * bytes_of(dtype);
    REQUIRE(chip->memory->malloc(0, bytes, &device_) == FL_OK);
    REQUIRE(chip->memory->map(0, device_, bytes, &host_) == FL_OK);
    std::memset(host_, 0x5a, bytes);
    view_ = {static_cast<char*>(device_) + origin_ * int64_t(bytes_of(dtype)),
             sizes_.data(),
             strides_.data(),
             n,
             uint8_t(dtype),
             0,
             0};
  }
  Tensor(const Tensor&) = delete;
  ~Tensor() { chip->memory->free(0, device_); }

  const fl_tensor& view() const { return view_; }
  const fl_tensor* operator&() const { return &view_; }
  int dtype() const { return dtype_; }
  const Sizes& sizes() const { return sizes_; }
  const Sizes& strides() const { return strides_; }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes_) n *= s;
    return n;
  }
  char* at(int64_t number) const {  // the element of this row-major number
    int64_t offset = origin_;
    for (size_t d = sizes_.size(); d-- > 0;) offset += number % sizes_[d] * strides_[d], number /= sizes_[d];
    return static_cast<char*>(host_) + offset * int64_t(bytes_of(dtype_));
  }
  template <class T>
  T& ref(int64_t number) const {
    return *reinterpret_cast<T*>(at(number));
  }

  double get(int64_t number) const {
    const char* p = at(number);
    switch (dtype_) {
      case FL_F64:
        return *reinterpret_cast<const double*>(p);
      case FL_F32:
      case FL_C64:
        return *reinterpret_cast<const float*>(p);
      case FL_C128:
        return *reinterpret_cast<const double*>(p);
      case FL_F16:
        return half_value(*reinterpret_cast<const uint16_t*>(p));
      case FL_BF16: {
        uint32_t bits = uint32_t(*reinterpret_cast<const uint16_t*>(p)) << 16;
        float f;
        std::memcpy(&f, &bits, 4);
        return f;
      }
    }
    return double(get_int(number));
  }
  double get_imag(int64_t number) const {
    return dtype_ == FL_C64 ? reinterpret_cast<const float*>(at(number))[1]
                            : reinterpret_cast<const double*>(at(number))[1];
  }
  int64_t get_int(int64_t number) const {
    const char* p = at(number);
    switch (dtype_) {
      case FL_BOOL:
      case FL_U8:
        return *reinterpret_cast<const uint8_t*>(p);
      case FL_I8:
        return *reinterpret_cast<const int8_t*>(p);
      case FL_U16:
        return *reinterpret_cast<const uint16_t*>(p);
      case FL_I16:
        return *reinterpret_cast<const int16_t*>(p);
      case FL_U32:
        return *reinterpret_cast<const uint32_t*>(p);
      case FL_I32:
        return *reinterpret_cast<const int32_t*>(p);
    }
    return *reinterpret_cast<const int64_t*>(p);
  }
  void set(int64_t number, double v, double imag = 0) {
    char* p = at(number);
    switch (dtype_) {
      case FL_F64:
        *reinterpret_cast<double*>(p) = v;
        return;
      case FL_F32:
        *reinterpret_cast<float*>(p) = float(v);
        return;
      case FL_C64:
        reinterpret_cast<float*>(p)[0] = float(v), reinterpret_cast<float*>(p)[1] = float(imag);
        return;
      case FL_C128:
        reinterpret_cast<double*>(p)[0] = v, reinterpret_cast<double*>(p)[1] = imag;
        return;
      case FL_F16:
        *reinterpret_cast<uint16_t*>(p) = half_bits(v);
        return;
      case FL_BF16: {
        float f = float(v);
        uint32_t bits;
        std::memcpy(&bits, &f, 4);
        *reinterpret_cast<uint16_t*>(p) =
            f != f ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        return;
      }
      case FL_BOOL:
        *reinterpret_cast<uint8_t*>(p) = v != 0;
        return;
    }
    int64_t i = int64_t(v);
    std::memcpy(p, &i, bytes_of(dtype_));
  }
  template <class F>
  void fill(F&& f) {
    for (int64_t i = 0, n = numel(); i < n; ++i) set(i, f(i));
  }

 private:
  int dtype_;
  Sizes sizes_, strides_;
  int64_t elements_, origin_;
  void *device_ = nullptr, *host_ = nullptr;
  fl_tensor view_;
};

inline std::mt19937_64 engine(20240717);
inline double uniform(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(engine);
}
inline int64_t below(int64_t n) { return int64_t(engine() % uint64_t(n)); }

// A program in the making.
class Program {
 public:
  explicit Program(std::vector<fl_instr> code, int inputs, int outputs, int scalars = 0)
      : code_(std::move(code)) {
    uint64_t hash = 0xcbf29ce484222325u;
    auto* bytes = reinterpret_cast<const unsigned char*>(code_.data());
    for (size_t i = 0; i < code_.size() * sizeof(fl_instr); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    hash = (hash ^ unsigned(inputs * 10000 + outputs * 100 + scalars)) * 0x100000001b3u;
    program_ = {code_.data(),     hash, uint16_t(code_.size()), uint16_t(inputs), uint16_t(outputs),
                uint16_t(scalars)};
  }
  const fl_program* operator&() const { return &program_; }

 private:
  std::vector<fl_instr> code_;
  fl_program program_;
};
inline fl_instr instr(int op, int type, int memory = 0, int a = 0, int b = 0, int c = 0) {
  return {uint16_t(op), uint8_t(type), uint8_t(memory), uint16_t(a), uint16_t(b), uint16_t(c), 0};
}

inline std::string text(const Sizes& sizes) {
  std::string s = "[";
  for (size_t i = 0; i < sizes.size(); ++i) s += (i ? ", " : "") + std::to_string(sizes[i]);
  return s + "]";
}

inline bool near(double a, double b, double relative, double absolute) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= relative * std::fabs(b) + absolute;
}
// One rounding of the dtype, relative.
inline double epsilon(int dtype) {
  return dtype == FL_F16 ? 0x1p-10 : dtype == FL_BF16 ? 0x1p-7 : dtype == FL_F64 ? 0x1p-52 : 0x1p-23;
}

}  // namespace sim_test
