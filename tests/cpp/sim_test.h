// What the sim chip's tests share: a host, the chip, and memory on its devices.
#pragma once

#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "fl/author/tensor.h"

namespace sim_test {

using check::failures;
inline thread_local std::string last_error;

#define CHECK_STATUS(call, expected)                                                   \
  do {                                                                                 \
    fl_status got_ = (call);                                                           \
    CHECK_THAT(got_ == (expected), "%s gave %d, not %s  [%s]", #call, got_, #expected, \
               ::sim_test::last_error.c_str());                                        \
  } while (0)

inline const fl_host* test_host() {
  static const fl_host host = {sizeof(fl_host), FL_ABI_VERSION,
                               [](int, const char* text) { std::printf("log: %s\n", text); },
                               [](const char* text) { last_error = text; },
                               [](const fl_launch*, size_t, void**) -> fl_status { return FL_UNSUPPORTED; }};
  return &host;
}

// The library named by argv[1], or the one of this build: with a sanitizer, both are built with it.
inline const fl_chip* load_chip(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : FL_TEST_SIM;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::printf("%s\n", dlerror());
    std::exit(1);
  }
  auto entry = reinterpret_cast<fl_chip_entry_fn>(dlsym(library, FL_CHIP_ENTRY_NAME));
  const fl_chip* chip = entry ? entry(FL_ABI_VERSION, test_host()) : nullptr;
  if (!chip) {
    std::printf("no chip in %s: %s\n", path.c_str(), last_error.c_str());
    std::exit(1);
  }
  return chip;
}

// A device with one stream.
struct Device {
  const fl_chip* chip;
  int32_t index;
  fl_stream stream = nullptr;
  std::atomic<uint64_t> tag{0};

  Device(const fl_chip* c, int32_t i) : chip(c), index(i) {
    CHECK_STATUS(chip->device->open(index), FL_OK);
    CHECK_STATUS(chip->stream->create(index, 0, &stream), FL_OK);
  }
  ~Device() { chip->stream->destroy(stream); }
  fl_launch launch() { return {stream, ++tag, index, 0}; }
  void sync() { CHECK_STATUS(chip->stream->synchronize(stream, -1), FL_OK); }
};

// Device memory with its contents as the host last saw them.
struct Buffer {
  Device& device;
  size_t bytes;
  char* address = nullptr;

  Buffer(Device& d, size_t n) : device(d), bytes(n ? n : 1) {
    void* p = nullptr;
    CHECK_STATUS(device.chip->memory->malloc(device.index, bytes, &p), FL_OK);
    address = static_cast<char*>(p);
  }
  Buffer(Device& d, const void* from, size_t n) : Buffer(d, n) { write(from, n); }
  Buffer(const Buffer&) = delete;
  ~Buffer() {
    device.chip->stream->synchronize(device.stream, -1);
    device.chip->memory->free(device.index, address);
  }
  void write(const void* from, size_t n) {
    fl_launch l = device.launch();
    CHECK_STATUS(device.chip->memory->copy(&l, FL_HOST_TO_DEVICE, address, from, n), FL_OK);
  }
  void read(void* to, size_t n) {
    fl_launch l = device.launch();
    CHECK_STATUS(device.chip->memory->copy(&l, FL_DEVICE_TO_HOST, to, address, n), FL_OK);
    device.sync();
  }
  template <class T>
  std::vector<T> values(size_t n) {
    std::vector<T> out(n);
    read(out.data(), n * sizeof(T));
    return out;
  }
};

inline uint64_t hash_of(const std::vector<fl_instr>& code) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < code.size() * sizeof(fl_instr); ++i)
    hash = (hash ^ reinterpret_cast<const unsigned char*>(code.data())[i]) * 0x100000001b3u;
  return hash;
}

struct Program {
  std::vector<fl_instr> code;
  fl_program program{};
  Program(std::vector<fl_instr> c, int inputs, int outputs, int scalars) : code(std::move(c)) {
    program = {code.data(),
               hash_of(code),
               static_cast<uint16_t>(code.size()),
               static_cast<uint16_t>(inputs),
               static_cast<uint16_t>(outputs),
               static_cast<uint16_t>(scalars)};
  }
};

inline fl_instr load(int input, uint8_t memory, uint8_t type) {
  return {FL_OP_LOAD, type, memory, static_cast<uint16_t>(input), 0, 0, 0};
}
inline fl_instr store(int value, int output, uint8_t memory, uint8_t type) {
  return {FL_OP_STORE, type, memory, static_cast<uint16_t>(value), static_cast<uint16_t>(output), 0, 0};
}
inline fl_instr op(int opcode, uint8_t type, int a, int b = 0, int c = 0) {
  return {static_cast<uint16_t>(opcode), type, 0, static_cast<uint16_t>(a), static_cast<uint16_t>(b),
          static_cast<uint16_t>(c),      0};
}

inline size_t bytes_of(int dtype) { return fl::author::dtype_size(static_cast<uint8_t>(dtype)); }

inline int report(const char* what) {
  std::printf("%s: ", what);
  return check::result();
}

}  // namespace sim_test
