// Finding, loading and checking chips; the table of devices.
//
// Loading happens once, at the first question about devices, never at import.
// A chip that is broken, missing or mismatched is refused with a reason and
// costs nothing but its own devices.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "fl/ops.h"

namespace fl {

// A loaded chip.  The tables are full-size copies: entries that the chip's
// (older, smaller) tables lack are null, so callers test entries, not sizes.
// Chips are never unloaded; a Chip& stays valid for the life of the process.
struct Chip {
  std::string name;     // "sim"
  std::string release;  // the library's own version
  std::string path;
  uint32_t version = 0;  // FL_ABI_VERSION it was written for
  uint32_t flags = 0;    // FL_CHIP_…
  fl_device_api device{};
  fl_memory_api memory{};
  fl_stream_api stream{};
  fl_op_api op{};
  const void* (*extension)(const char* name, uint32_t version) = nullptr;

  // Whether the chip claims entry × kind for the dtype.  Two loads and a mask.
  bool claims(unsigned entry, unsigned kind, unsigned dtype) const noexcept {
    unsigned row = entry < FL_ENTRY_COUNT && (kind < kKinds) ? kind : kKinds;
    return (claimed[entry][row] | claimed[entry][kKinds]) >> dtype & 1u;
  }

  static constexpr unsigned kKinds = 128;  // > FL_OP_COUNT; the last row holds FL_ANY
  std::array<std::array<uint32_t, kKinds + 1>, FL_ENTRY_COUNT> claimed{};
};

constexpr int32_t kMaxDevices = 64;

struct Device {
  int32_t index;  // ours, over all chips: what PyTorch calls fl:index
  int32_t local;  // the chip's own
  const Chip* chip;
  std::string name;  // "sim:0": the chip's first device by identity, whatever is visible
  fl_device_properties properties;
  std::mutex* serial = nullptr;  // set for FL_CHIP_SERIAL_LAUNCH: launch.h's LaunchScope takes it
};

// A chip library that was looked at and not used.
struct Refusal {
  std::string path;
  std::string reason;  // a sentence with the remedy; the loader's own words where it spoke
};

// Where chip libraries come from besides FL_CHIP_PATH: called once, when
// loading; returns paths.  Set by the Python package (the chip in the wheel,
// entry points of chip packages).  Exceptions are reported as a Refusal.
void set_chip_finder(std::function<std::vector<std::string>()> finder);

// Loaded on the first call (thread-safe).  Order: real chips before software
// ones, then by chip name, then by identity; FL_VISIBLE_DEVICES chooses and
// orders.  Never throws for a bad chip; throws Error for a bad
// FL_VISIBLE_DEVICES value.
const std::vector<Device>& devices();
const std::vector<const Chip*>& chips();
const std::vector<Refusal>& refusals();

// Whether devices() has run; never loads.
bool loaded() noexcept;

// Throws Error, with the devices that exist, when index is not one of them.
const Device& device(int64_t index);

// Our index for "sim:1", "sim" (its first), or -1 when no chip has that name.
// Throws Error when the chip is there and the device is not.
int32_t find_device(const std::string& name);

// fl_device_api.open, once for each device.  Throws Error in a bad fork.
void open_device(int32_t index);

// Has open_device() succeeded for it?  Opens nothing.
bool is_open(int32_t index) noexcept;

// Is this a child, forked after its parent had opened a device?
bool forked() noexcept;

// The checks of one library, for the registry and for `doctor`'s child
// process.  Returns an empty reason and fills chip, or says why not.
std::string load_chip(const std::string& path, Chip& chip);

// The host table given to chips (log, error text, scratch).
const fl_host* host_table();

}  // namespace fl
