// An operand of the sim chip's product, convolution and attention tests: any order of dimensions in memory.
#pragma once

#include <algorithm>
#include <numeric>

#include "sim_harness.h"

namespace sim_test {

// A tensor whose dimensions lie in memory in a given order (outermost first), with
// room behind its rows, dimensions that do not vary, or a layout of the harness.
class Operand {
 public:
  Operand(int dtype, Sizes sizes, std::vector<int> order = {}, int64_t pad = 0, unsigned shared = 0,
          Layout layout = Layout::contiguous)
      : sizes_(std::move(sizes)),
        order_(order.empty() ? iota(sizes_.size()) : std::move(order)),
        shared_(shared),
        base_(dtype, base_sizes(pad), layout),
        strides_(sizes_.size()) {
    for (size_t k = 0; k < order_.size(); ++k) {
      size_t d = size_t(order_[k]);
      strides_[d] = shared_ >> d & 1 ? 0 : base_.strides()[k];
    }
    view_ = base_.view();
    view_.sizes = sizes_.data(), view_.strides = strides_.data();
  }
  const fl_tensor& view() const { return view_; }
  const fl_tensor* operator&() const { return &view_; }
  const Sizes& sizes() const { return sizes_; }
  int dtype() const { return base_.dtype(); }
  int64_t numel() const {
    return std::accumulate(sizes_.begin(), sizes_.end(), int64_t{1}, std::multiplies<>());
  }
  int64_t place(int64_t number) const {
    Sizes index(sizes_.size());
    for (size_t d = sizes_.size(); d-- > 0;)
      index[d] = shared_ >> d & 1 ? 0 : number % sizes_[d], number /= sizes_[d];
    int64_t at = 0;
    for (size_t k = 0; k < order_.size(); ++k) at = at * base_.sizes()[k] + index[size_t(order_[k])];
    return at;
  }
  double get(int64_t number) const { return base_.get(place(number)); }
  double get_imag(int64_t number) const { return base_.get_imag(place(number)); }
  int64_t get_int(int64_t number) const { return base_.get_int(place(number)); }
  void set(int64_t number, double v, double imag = 0) { base_.set(place(number), v, imag); }
  void randomise(double size = 1) {
    bool real = floats(dtype()) || dtype() == FL_C64 || dtype() == FL_C128;
    for (int64_t i = 0, n = numel(); i < n; ++i) {
      set(i, real ? uniform(-size, size) : double(below(201) - 100), uniform(-size, size));
    }
  }

 private:
  static std::vector<int> iota(size_t n) {
    std::vector<int> v(n);
    std::iota(v.begin(), v.end(), 0);
    return v;
  }
  Sizes base_sizes(int64_t pad) const {
    Sizes s;
    for (int d : order_) s.push_back(shared_ >> d & 1 ? 1 : sizes_[size_t(d)]);
    s.back() += pad;
    return s;
  }
  Sizes sizes_;
  std::vector<int> order_;
  unsigned shared_;
  Tensor base_;
  Sizes strides_;
  fl_tensor view_;
};

inline bool is_complex(int dtype) { return dtype == FL_C64 || dtype == FL_C128; }
inline bool is_double(int dtype) { return dtype == FL_F64 || dtype == FL_C128; }

// What n additions of values up to `size` may be off by, after one rounding of `value`.
inline double allowed(int dtype, double value, double size) {
  double sums = (is_double(dtype) ? 1e-14 : 2e-6) * size;
  return sums + (is_complex(dtype) ? 0 : 1.1 * epsilon(dtype) * std::fabs(value)) +
         (dtype == FL_F16 ? 1e-7 : 0);
}

}  // namespace sim_test
