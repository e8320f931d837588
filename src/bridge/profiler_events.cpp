// Device times in torch.profiler, by events around each operator: what PyTorch does for a GPU that its
// tracing library does not know (ProfilerState::KINETO_…_FALLBACK). Nothing is recorded unless a profiler
// runs.
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "bridge/bridge.h"
#include "bridge/cuda_view.h"

namespace fl::bridge {
namespace {

using torch::profiler::impl::ProfilerStubs;
using Mark = std::shared_ptr<void>;

struct Events final : ProfilerStubs {
  // A device that no one has used is not started for it: no mark, and no time.
  void record(c10::DeviceIndex* device, Mark* mark, int64_t* cpu_ns) const override {
    const int32_t index = current_device();
    if (device) *device = static_cast<c10::DeviceIndex>(index);
    if (cpu_ns) *cpu_ns = c10::getTime();
    mark->reset();
    if (!is_open(index) || forked()) return;
    guarded([&] {
      auto event = std::make_shared<Event>(index, true);
      event->record(current_stream(index));
      *mark = std::move(event);
    });
  }

  // Microseconds. Between devices there is no time.
  float elapsed(const Mark* begin, const Mark* end) const override {
    const auto *from = static_cast<const Event*>(begin->get()), *to = static_cast<const Event*>(end->get());
    if (!from || !to || from->device() != to->device()) return 0;
    return guarded([&] {
      to->synchronize();
      return static_cast<float>(from->elapsed_ms(*to) * 1000);
    });
  }

  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }

  void onEachDevice(std::function<void(int)> op) const override {
    const int32_t before = current_device();
    for (const Device& d : devices()) {
      if (!is_open(d.index)) continue;
      set_device(d.index);
      op(d.index);
    }
    exchange_device(before);
  }
  void synchronize() const override {
    if (is_open(current_device())) guarded([] { synchronize_device(current_device()); });
  }
};

Events events;

struct Register {
  Register() { torch::profiler::impl::registerPrivateUse1Methods(&events); }
} const registered;

}  // namespace

void profile_as_cuda(bool on) {
  static const ProfilerStubs* before = nullptr;
  if (on == (torch::profiler::impl::cudaStubs() == &events)) return;
  if (on) before = torch::profiler::impl::cudaStubs();
  torch::profiler::impl::registerCUDAMethods(on ? &events : const_cast<ProfilerStubs*>(before));
}

}  // namespace fl::bridge
