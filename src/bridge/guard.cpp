#include "bridge/guard.h"

#include <atomic>

#include "bridge/autograd_threads.h"
#include "bridge/device_allocator.h"
#include "bridge/sync_debug.h"
#include "runtime/capture.h"

namespace fl::bridge {

namespace {

c10::Device to_device(int32_t index) { return c10::Device(kDevice, static_cast<c10::DeviceIndex>(index)); }

// -1 is the current device, as everywhere in PyTorch.
int32_t resolve(c10::Device device) {
  TORCH_INTERNAL_ASSERT(device.type() == kDevice, "expected an fl device, got ", device);
  return device.has_index() ? device.index() : current_device();
}

// What PyTorch holds for an event.
struct UserEvent {
  Event event;
  uint64_t capture = 0;  // that it was last recorded in, or 0
};

UserEvent& to_event(void* event) {
  TORCH_CHECK(event, "the event has not been recorded yet: call record() first");
  return *static_cast<UserEvent*>(event);
}

// An event of a capture orders launches of the graph, and nothing else.
Event& in_time(void* recorded) {
  UserEvent& event = to_event(recorded);
  if (event.capture)
    throw Error(
        FL_INVALID,
        "the event was recorded while a graph was captured, and marks no point in time: record it again");
  return event.event;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDevice; }

  c10::Device exchangeDevice(c10::Device device) const override {
    return guarded([&] { return to_device(exchange_device(device.index())); });
  }
  c10::Device getDevice() const override { return to_device(current_device()); }
  void setDevice(c10::Device device) const override {
    guarded([&] { set_device(resolve(device)); });
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      exchange_device(device.index());
    } catch (const Error& error) {
      // Only a destructor that restores what was valid before calls this.
      log(FL_LOG_ERROR, error.what());
    }
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    note_device_count_asked();
    return usable_device_count();
  }

  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    return guarded([&] {
      const uint32_t storage = fl::device(resolve(device)).properties.storage;
      c10::DeviceCapability capability;
      uint64_t bits = 0;
      for (uint8_t dtype = 1; dtype < FL_DTYPE_COUNT; ++dtype)
        if (const auto index = static_cast<unsigned>(to_scalar_type(dtype));
            (storage & FL_BIT(dtype)) && index < c10::NUMBER_OF_DEVICE_CAPABILITIES)
          bits |= uint64_t{1} << index;
      capability.capability_data.capability_bits = bits;
      return capability;
    });
  }

  c10::Stream getStream(c10::Device device) const override {
    return guarded([&] { return to_torch(current_stream(resolve(device))); });
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return guarded([&] { return to_torch(stream(resolve(device), 0)); });
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return guarded([&] { return to_torch(pool_stream(resolve(device), high_priority)); });
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return guarded([&] { return to_torch(exchange_stream(to_fl(next))); });
  }
  void* getStreamNativeHandle(c10::Stream s) const override {
    return guarded([&] { return static_cast<void*>(to_fl(s).handle); });
  }
  bool queryStream(const c10::Stream& s) const override {
    return guarded([&] { return query(to_fl(s)); });
  }
  void synchronizeStream(const c10::Stream& s) const override {
    note_sync();
    guarded([&] { synchronize(to_fl(s)); });
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    guarded([&] { synchronize_device(index == -1 ? current_device() : device(index).index); });
  }
  bool isStreamCapturing(const c10::Stream& s) const override {
    const Stream* known = existing_stream(s.device_index(), s.id());
    return known && capture_of(*known);
  }

  // PyTorch makes an event when it is first recorded.
  void record(void** event, const c10::Stream& s, c10::DeviceIndex index,
              c10::EventFlag flag) const override {
    guarded([&] {
      Stream& on = to_fl(s);
      if (index != -1 && index != on.device)
        throw Error(FL_INVALID, "the event belongs to fl:" + std::to_string(index) +
                                    " and cannot be recorded on a stream of " + device(on.device).name);
      if (!*event) *event = new UserEvent{Event(on.device, flag == c10::EventFlag::BACKEND_DEFAULT)};
      UserEvent& recorded = to_event(*event);
      recorded.event.record(on);
      const Capture* capture = capture_of(on);
      recorded.capture = capture ? capture->id : 0;
    });
  }
  void block(void* event, const c10::Stream& s) const override {
    if (event)
      guarded([&] {
        join_capture(to_event(event).capture, to_fl(s));
        to_event(event).event.block(to_fl(s));
      });
  }
  bool queryEvent(void* event) const override {
    return !event || guarded([&] { return in_time(event).query(); });
  }
  void synchronizeEvent(void* event) const override {
    if (event) guarded([&] { in_time(event).synchronize(); });
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    return guarded([&] { return in_time(start).elapsed_ms(in_time(end)); });
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<UserEvent*>(event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& s) const override {
    guarded([&] { record_use(data, to_fl(s)); });
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

c10::DeviceIndex usable_device_count() noexcept {
  try {
    return in_bad_fork() ? c10::DeviceIndex{0} : static_cast<c10::DeviceIndex>(devices().size());
  } catch (const std::exception& error) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) log(FL_LOG_ERROR, error.what());
    return 0;
  }
}

Stream& to_fl(const c10::Stream& s) {
  if (s.device_type() != kDevice)
    throw Error(FL_INVALID, "expected a stream of an fl device, got one of " + s.device().str());
  return stream(s.device_index(), s.id());
}

}  // namespace fl::bridge
