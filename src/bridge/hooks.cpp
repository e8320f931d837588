// What PyTorch asks an accelerator for, by name of the device type.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "bridge/device_allocator.h"
#include "bridge/generator.h"
#include "bridge/guard.h"
#include "bridge/host_allocator.h"
#include "bridge/lazy_init.h"

namespace fl::bridge {

namespace {

c10::DeviceIndex narrow(int32_t index) { return static_cast<c10::DeviceIndex>(index); }

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override { lazy_init(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return usable_device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return is_open(index) && !in_bad_fork(); }

  c10::DeviceIndex deviceCount() const override { return usable_device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return narrow(current_device()); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    guarded([&] { set_device(index); });
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return guarded([&] { return narrow(exchange_device(index)); });
  }
  // The same: changing the current device starts nothing here.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return make_generator(index); }

  at::Device getDeviceFromPtr(void* data) const override {
    int32_t index = -1;
    TORCH_CHECK(find_block(data, &index), "the address ", data, " is not memory of an fl device");
    return at::Device(kDevice, narrow(index));
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &host_allocator(); }

  // Grows or shrinks a storage in place, keeping what fits; the copy is queued
  // on the current stream.  FSDP2 frees and refills its buffers in this way.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
    const c10::Device device = impl->device();
    const size_t kept = std::min(impl->nbytes(), bytes);
    c10::DataPtr grown = allocate_data(device, bytes);
    if (kept)
      guarded([&] {
        static Op op("fl::resize_storage");
        Stream& stream = current_stream(device.index());
        const fl_launch launch = make_launch(op, stream, nullptr, 0);
        LaunchScope scope(stream);
        check(stream.chip->memory.copy(&launch, FL_DEVICE_TO_DEVICE, grown.get(), impl->data(), kept),
              op.name);
        record_use(impl->data_ptr(), stream);
      });
    impl->set_data_ptr_noswap(std::move(grown));
    impl->set_nbytes(bytes);
  }
};

struct Register {
  Register() { at::RegisterPrivateUse1HooksInterface(new Hooks); }
} const registered;

}  // namespace

}  // namespace fl::bridge
