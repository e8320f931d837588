#include "bridge/generator.h"

#include <ATen/Utils.h>

#include <array>
#include <cstring>
#include <memory>

#include "runtime/capture.h"

namespace fl::bridge {

namespace {

constexpr size_t kStateBytes = 16;

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex index) : PhiloxGenerator(index, c10::default_rng_seed_val) {}
  PhiloxGenerator(c10::DeviceIndex index, uint64_t seed)
      : PhiloxGenerator(index, std::make_shared<RandomState>(PhiloxState{seed, 0})) {}
  PhiloxGenerator(c10::DeviceIndex index, std::shared_ptr<RandomState> state)
      : GeneratorImpl(c10::Device(kDevice, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        state_(std::move(state)) {}

  static c10::DeviceType device_type() { return kDevice; }

  void set_current_seed(uint64_t seed) override {
    if (current_capture(device().index()) && seed == state_->get().seed) return;  // as on CUDA
    set({seed, 0});
  }
  uint64_t current_seed() const override { return state_->get().seed; }
  void set_offset(uint64_t offset) override { set({state_->get().seed, offset}); }
  uint64_t get_offset() const override { return state_->get().offset; }
  uint64_t seed() override {
    const uint64_t seed = c10::detail::getNonDeterministicRandom();
    set_current_seed(seed);
    return seed;
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    Tensor bytes = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte, std::nullopt,
                                         std::nullopt, std::nullopt, std::nullopt);
    uint8_t* to = bytes.mutable_data_ptr<uint8_t>();
    const PhiloxState now = state_->get();
    std::memcpy(to, &now.seed, 8);
    std::memcpy(to + 8, &now.offset, 8);
    return bytes.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& from) override {
    at::detail::check_rng_state(from);  // on the CPU, uint8, contiguous
    TORCH_CHECK(from.numel() == static_cast<int64_t>(kStateBytes), "the random state of an fl generator has ",
                kStateBytes, " bytes (seed, offset), but this one has ", from.numel());
    const auto* bytes = static_cast<const uint8_t*>(from.data());
    PhiloxState next;
    std::memcpy(&next.seed, bytes, 8);
    std::memcpy(&next.offset, bytes + 8, 8);
    set(next);
  }

  // Handles to one state: what a captured graph holds moves with the generator.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<PhiloxGenerator>(device().index(), state_);
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& from) override {
    auto* other = dynamic_cast<PhiloxGenerator*>(from.get());
    TORCH_CHECK(other, "graphsafe_set_state: expected the state of an fl generator, got one of a ",
                from->device());
    state_ = other->state_;
  }

  PhiloxState advance(uint64_t blocks) {
    if (Capture* capture = current_capture(device().index())) return capture->draw(state_, blocks);
    return state_->take(blocks);
  }

 private:
  PhiloxGenerator* clone_impl() const override {
    return new PhiloxGenerator(device().index(), std::make_shared<RandomState>(state_->get()));
  }

  void set(PhiloxState state) {
    if (Capture* capture = current_capture(device().index()))
      guarded([&] { capture->refuse("a new seed or state of a generator"); });
    state_->set(state);
  }

  std::shared_ptr<RandomState> state_;
};

// Checked, with -1 as the current device; starts no device.
c10::DeviceIndex resolve(c10::DeviceIndex index) {
  return guarded(
      [&] { return static_cast<c10::DeviceIndex>(device(index == -1 ? current_device() : index).index); });
}

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex index) {
  static auto& generators = *new std::array<at::Generator, kMaxDevices>;
  static auto& made = *new std::array<std::once_flag, kMaxDevices>;
  const auto i = static_cast<size_t>(resolve(index));
  std::call_once(made[i], [&] {
    generators[i] = at::make_generator<PhiloxGenerator>(static_cast<c10::DeviceIndex>(i),
                                                        c10::detail::getNonDeterministicRandom());
  });
  return generators[i];
}

at::Generator make_generator(c10::DeviceIndex index) {
  return at::make_generator<PhiloxGenerator>(resolve(index));
}

PhiloxState reserve(const std::optional<at::Generator>& generator, c10::Device device, uint64_t blocks) {
  const bool given = generator.has_value() && generator->defined();
  const at::Generator& chosen = given ? *generator : default_generator(device.index());
  TORCH_CHECK(
      chosen.device().type() == kDevice && (!device.has_index() || chosen.device().index() == device.index()),
      "Expected a '", device, "' generator device but found '", chosen.device(), "'");
  auto* philox = static_cast<PhiloxGenerator*>(chosen.unsafeGetGeneratorImpl());
  std::lock_guard lock(philox->mutex_);
  return philox->advance(blocks);
}

}  // namespace fl::bridge
