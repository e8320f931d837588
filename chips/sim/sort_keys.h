// What sort compares: unsigned keys in the order of the values, and entries
// that carry a key with the position that it came from.
#pragma once

#include <cstdint>

namespace sim {

// A value's key, and back.  `lost` keys stand for several values: those are read
// again where they came from.
template <class B>
struct UnsignedKey {
  using Bits = B;
  static Bits key(Bits bits) { return bits; }
  static Bits bits(Bits key) { return key; }
  static bool lost(Bits) { return false; }
  static constexpr bool kLoses = false;
};

// Both zeros have one key, and all NaN the largest.
template <class B, B kInfinity>
struct FloatKey {
  using Bits = B;
  static constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(B) - 1)), kAll = Bits(~Bits(0));
  static Bits key(Bits bits) {
    const Bits magnitude = bits & Bits(~kSign);
    Bits key = bits ^ (bits & kSign ? kAll : kSign);
    key = magnitude == 0 ? kSign : key;
    return magnitude > kInfinity ? kAll : key;
  }
  static Bits bits(Bits key) { return key ^ (key & kSign ? kSign : kAll); }
  static bool lost(Bits key) { return key == kAll || key == kSign; }
  static constexpr bool kLoses = true;
};

// Keys of up to 32 bits of slices of up to 2^32 elements: one number orders both,
// so that the order of equal values is settled too.
struct PackedEntry {
  uint64_t word;
  PackedEntry() = default;
  PackedEntry(uint64_t key, int64_t index) : word(key << 32 | uint64_t(index)) {}
  uint64_t key() const { return word >> 32; }
  int64_t index() const { return int64_t(word & 0xffffffffu); }
  bool operator<(const PackedEntry& other) const { return word < other.word; }
};
struct WideEntry {
  uint64_t word;
  int64_t at;
  WideEntry() = default;
  WideEntry(uint64_t key, int64_t index) : word(key), at(index) {}
  uint64_t key() const { return word; }
  int64_t index() const { return at; }
  bool operator<(const WideEntry& other) const {
    return word < other.word || (word == other.word && at < other.at);
  }
};

}  // namespace sim
