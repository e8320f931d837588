// PyTorch's own functions that go by the first operand's device: they would read or write others' memory as
// if it were there, or copy to it.
#pragma once

#include "bridge/devices.h"

namespace fl::bridge {

inline void check_with(const Op& op, const Tensor& self, const Tensor& t) { check_devices(op, {&self, &t}); }
inline void check_with(const Op& op, const Tensor& self, const std::optional<Tensor>& t) {
  if (t) check_devices(op, {&self, &*t});
}
inline void check_with(const Op& op, const Tensor& self, at::TensorList list) {
  for (const Tensor& t : list) check_devices(op, {&self, &t});
}
template <class T>
void check_with(const Op&, const Tensor&, const T&) {}

// `run` is `function`, one of at::native, with the check before it.  Schema: the operator in at::_ops.
template <class Schema, auto function>
struct OnOneDevice;
template <class Schema, class R, class... Rest, R (*function)(const Tensor&, Rest...)>
struct OnOneDevice<Schema, function> {
  static R run(const Tensor& self, Rest... rest) {
    static Op op(Schema::name);
    (check_with(op, self, rest), ...);
    return function(self, std::forward<Rest>(rest)...);
  }
};

// clang-format off
#define ON_ONE_DEVICE(op, overload, function)                                                     \
  m.impl(#op "." #overload,                                                                       \
         ::fl::bridge::OnOneDevice<at::_ops::op##_##overload,                                     \
                                   static_cast<at::_ops::op##_##overload::schema*>(&at::native::function)>::run);
#define ON_ONE_DEVICE0(op, function)                                                              \
  m.impl(#op, ::fl::bridge::OnOneDevice<at::_ops::op,                                             \
                                        static_cast<at::_ops::op::schema*>(&at::native::function)>::run);
// clang-format on

}  // namespace fl::bridge
