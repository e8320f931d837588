// Assertions on the device's values.  They wait for the value: an assertion that
// is found later could not name what it asserts.
#include "bridge/bridge.h"

namespace fl::bridge {
namespace {

void assert_value(const Tensor& condition, c10::string_view message) {
  static Op op("aten::_assert_async");
  Call call(op, condition);
  call.composed();
  TORCH_CHECK(condition.numel() == 1, "aten::_assert_async: expected one value, but got ", condition.sizes());
  TORCH_CHECK(condition.item().toBool(), message);
}

void assert_async(const Tensor& condition) {
  assert_value(condition, "Expected Tensor with single nonzero value");
}
void assert_async_msg(const Tensor& condition, c10::string_view message) { assert_value(condition, message); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async", assert_async);
  m.impl("_assert_async.msg", assert_async_msg);
}

}  // namespace fl::bridge
