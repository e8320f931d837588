#include "bridge/lazy_init.h"

#include <torch/csrc/utils/device_lazy_init.h>

#include "bridge/bridge.h"

namespace fl::bridge {

bool forked_after_use() { return in_bad_fork() || torch::utils::is_device_in_bad_fork(kDevice); }

void lazy_init() {
  TORCH_CHECK(!forked_after_use(),
              "Cannot re-initialize fl in forked subprocess. To use fl with multiprocessing, you "
              "must use the 'spawn' start method");
  static std::once_flag once;
  std::call_once(once, [] { torch::utils::register_fork_handler_for_device_init(kDevice); });
}

}  // namespace fl::bridge
