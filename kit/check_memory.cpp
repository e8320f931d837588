// [MEM-n]: device and host memory, and copies between them.
#include <cstring>

#include "actions.h"

namespace kit {

namespace {

constexpr size_t kMiB = 1 << 20;

void raw_copy(const fl_launch& launch, int kind, void* to, const void* from, size_t bytes) {
  LaunchLock lock;
  ok(chip().memory.copy(&launch, kind, to, from, bytes), "copy");
}

fl_device_properties properties(int32_t device) {
  fl_device_properties p{};
  p.size = sizeof p;
  ok(chip().device.properties(device, &p), "properties");
  return p;
}

std::vector<char> pattern(size_t bytes, uint64_t salt) {
  Random random(salt);
  std::vector<char> v(bytes);
  for (char& c : v) c = static_cast<char>(random.next());
  return v;
}

struct Pinned {
  explicit Pinned(size_t bytes) { ok(chip().memory.host_alloc(bytes, &address), "host_alloc"); }
  ~Pinned() { chip().memory.host_free(address); }
  Pinned(const Pinned&) = delete;
  float* floats() { return static_cast<float*>(address); }
  void* address = nullptr;
};

KIT_TEST("MEM-1", "malloc's addresses are multiples of the device's alignment") {
  Session session;
  uint32_t alignment = properties(0).alignment;
  std::vector<void*> all;
  for (size_t bytes : {1, 2, 3, 63, 64, 65, 100, 4095, 4097, 1 << 20, 12345}) {
    all.push_back(session.allocate(bytes));
    if (reinterpret_cast<uintptr_t>(all.back()) % alignment)
      fail("malloc(%zu) gave %p, no multiple of %u", bytes, all.back(), alignment);
  }
  for (void* p : all) session.release(p);
  expect_status(chip().memory.free(0, nullptr), FL_OK, "free(NULL)");
}

KIT_TEST("MEM-2", "malloc of 0 bytes gives FL_INVALID") {
  Session session;
  void* address = nullptr;
  expect_status(chip().memory.malloc(0, 0, &address), FL_INVALID, "malloc(0)");
  REQUIRE(!address, "the output was written although the call failed");
}

KIT_TEST("MEM-3", "exhaustion gives FL_OUT_OF_MEMORY, and smaller requests go on working") {
  Session session;
  uint64_t total = properties(0).total_memory;
  void* address = nullptr;
  expect_status(chip().memory.malloc(0, total + 1, &address), FL_OUT_OF_MEMORY, "malloc(total_memory + 1)");
  expect_status(chip().memory.malloc(0, SIZE_MAX - 100, &address), FL_OUT_OF_MEMORY,
                "malloc(SIZE_MAX - 100)");
  uint64_t limit = properties(0).max_alloc ? properties(0).max_alloc : total;
  uint64_t piece = std::min(total / 16, limit);
  std::vector<void*> all;
  fl_status status = FL_OK;
  while (all.size() <= total / piece + 1 && (status = chip().memory.malloc(0, piece, &address)) == FL_OK)
    all.push_back(address);
  uint64_t free_bytes = 0, total_bytes = 0;
  fl_status asked = chip().memory.info(0, &free_bytes, &total_bytes);
  // A small request still works when a big one does not.
  void* small = nullptr;
  fl_status small_status = chip().memory.malloc(0, 4096, &small);
  for (void* p : all) chip().memory.free(0, p);
  if (small_status == FL_OK) chip().memory.free(0, small);
  REQUIRE(status == FL_OUT_OF_MEMORY, "%zu pieces of %llu bytes gave %s", all.size(),
          static_cast<unsigned long long>(piece), status_name(status));
  REQUIRE(all.size() >= 2, "no more than %zu pieces of a 16th of total_memory could be had", all.size());
  ok(asked, "info");
  REQUIRE(total_bytes <= total && free_bytes < total_bytes, "info, when full: %llu of %llu bytes are free",
          static_cast<unsigned long long>(free_bytes), static_cast<unsigned long long>(total_bytes));
  REQUIRE(small_status == FL_OK || total_bytes - free_bytes + 4096 > total_bytes,
          "malloc(4096) gave %s beside a big failure", status_name(small_status));
  Array a = Array(FL_F32, {1000});
  Tensor t = session.put(a);  // and everything works after it
  REQUIRE(session.get(t).bytes == a.bytes, "memory does not hold what was copied to it");
}

KIT_TEST("MEM-4", "copies are ordered on their stream like operators") {
  Session session;
  Tensor x = session.output(FL_F32, {1000});
  std::vector<char> after(x.image.size()), zero(x.image.size());
  busy(session, 20);
  fill(session.launch, x, Number::floating(1));
  raw_copy(session.launch, FL_DEVICE_TO_HOST, after.data(), x.block, after.size());
  fill(session.launch, x, Number::floating(2));
  Tensor y = session.output(FL_F32, {1000});
  raw_copy(session.launch, FL_DEVICE_TO_DEVICE, y.block, x.block, x.image.size());
  fill(session.launch, x, Number::floating(3));
  raw_copy(session.launch, FL_HOST_TO_DEVICE, x.block, zero.data(), zero.size());
  session.synchronize();
  float seen;
  memcpy(&seen, &after[after.size() / 2 / 4 * 4], 4);
  REQUIRE(seen == 1, "device to host, between two fills, read %g, not 1", static_cast<double>(seen));
  std::vector<char> got(x.image.size());
  session.download(got.data(), y.block, got.size());
  memcpy(&seen, &got[got.size() / 2 / 4 * 4], 4);
  REQUIRE(seen == 2, "device to device, between two fills, read %g, not 2", static_cast<double>(seen));
  session.download(got.data(), x.block, got.size());
  REQUIRE(got == zero, "host to device, behind a fill, did not come last");
}

KIT_TEST("MEM-5",
         "host_alloc memory is read or written when the stream gets there, and the call returns at once") {
  Session session;
  Tensor x = session.output(FL_F32, {1});
  char* first = static_cast<char*>(x.block) + 256;
  Pinned from(64), to(64);
  Event before(0);
  from.floats()[0] = 1;
  to.floats()[0] = 0;
  session.synchronize();
  busy(session, 60);
  ok(chip().stream.event_record(before, session.stream), "event record");
  double start = now_ms();
  bool pending = chip().stream.event_query(before) == FL_NOT_READY;
  raw_copy(session.launch, FL_HOST_TO_DEVICE, first, from.address, 4);
  raw_copy(session.launch, FL_DEVICE_TO_HOST, to.address, first, 4);
  double took = now_ms() - start;
  *static_cast<volatile float*>(from.address) = 2;
  // Still pending now: neither copy has begun, so both see what comes later.
  bool surely = chip().stream.event_query(before) == FL_NOT_READY;
  bool unwritten = *static_cast<volatile float*>(to.address) == 0;
  session.synchronize();
  float seen = to.floats()[0];
  REQUIRE(seen == 1 || seen == 2, "the value that came back is %g", static_cast<double>(seen));
  REQUIRE(!surely || unwritten, "host memory was written before the stream got there");
  REQUIRE(!surely || seen == 2,
          "host memory was read when the copy was queued, not when the stream got there");
  REQUIRE(!pending || took < 30, "queueing two copies behind work of 60 ms took %.1f ms", took);
}

KIT_TEST("MEM-6", "any other host source has been read when the call returns") {
  Session session;
  for (size_t bytes : {size_t{4}, size_t{1000}, size_t{70000}, 3 * kMiB}) {
    run_case(text("%zu bytes", bytes), [&] {
      std::vector<char> want = pattern(bytes, bytes), source = want, got(bytes);
      void* x = session.allocate(bytes);
      busy(session, 10);
      raw_copy(session.launch, FL_HOST_TO_DEVICE, x, source.data(), bytes);
      memset(source.data(), 0x11, bytes);
      session.download(got.data(), x, bytes);
      session.release(x);
      REQUIRE(got == want, "what the host wrote after the call arrived");
    });
  }
}

KIT_TEST("MEM-7", "any other host destination is complete when the stream has been synchronized") {
  Session session;
  for (size_t bytes : {size_t{4}, size_t{1001}, size_t{70000}, 3 * kMiB}) {
    run_case(text("%zu bytes", bytes), [&] {
      std::vector<char> want = pattern(bytes, bytes + 1), got(bytes);
      void* x = session.allocate(bytes);
      raw_copy(session.launch, FL_HOST_TO_DEVICE, x, want.data(), bytes);
      busy(session, 10);
      raw_copy(session.launch, FL_DEVICE_TO_HOST, got.data(), x, bytes);
      session.synchronize();
      session.release(x);
      REQUIRE(got == want, "the bytes are not those of the device");
    });
  }
}

KIT_TEST("MEM-8", "copy_peer copies between two devices, ordered on the source's stream") {
  int32_t count = 0;
  ok(chip().device.count(&count), "count");
  if (!chip().memory.copy_peer) not_applicable("the chip has no copy_peer");
  if (count < 2) not_applicable("there is one device");
  Session a(0), b(1);
  Tensor x = a.output(FL_F32, {1000}), y = b.output(FL_F32, {1000});
  b.synchronize();
  busy(a, 20);
  fill(a.launch, x, Number::floating(7));
  {
    LaunchLock lock;
    ok(chip().memory.copy_peer(&a.launch, 1, y.block, x.block, x.image.size()), "copy_peer");
  }
  fill(a.launch, x, Number::floating(8));
  a.synchronize();
  expect_close(b.get(y), std::vector<Number>(1000, Number::floating(7)), {}, "the copy");
}

KIT_TEST("MEM-9", "host_alloc memory is aligned to 64 bytes and usable with every device") {
  REQUIRE(chip().memory.host_alloc && chip().memory.host_free, "host_alloc or host_free is missing");
  int32_t count = 0;
  ok(chip().device.count(&count), "count");
  for (size_t bytes : {size_t{1}, size_t{100}, kMiB}) {
    Pinned pinned(bytes), back(bytes);
    if (reinterpret_cast<uintptr_t>(pinned.address) % 64)
      fail("host_alloc(%zu) gave %p", bytes, pinned.address);
    std::vector<char> want = pattern(bytes, 3);
    memcpy(pinned.address, want.data(), bytes);
    for (int32_t d = 0; d < count; ++d) {
      Session session(d);
      void* x = session.allocate(bytes);
      memset(back.address, 0, bytes);
      raw_copy(session.launch, FL_HOST_TO_DEVICE, x, pinned.address, bytes);
      raw_copy(session.launch, FL_DEVICE_TO_HOST, back.address, x, bytes);
      session.synchronize();
      session.release(x);
      if (memcmp(back.address, want.data(), bytes) != 0)
        fail("%zu bytes did not come back from device %d", bytes, d);
    }
  }
}

KIT_TEST("MEM-10", "map gives an address at which host code sees the device's bytes") {
  bool says = properties(0).flags & FL_DEVICE_HOST_ADDRESSABLE;
  REQUIRE(!says || chip().memory.map, "FL_DEVICE_HOST_ADDRESSABLE without map");
  if (!says) not_applicable("the host cannot address the device's memory");
  Session session;
  constexpr size_t bytes = 10000;
  std::vector<char> want = pattern(bytes, 5), got(bytes);
  char* x = static_cast<char*>(session.allocate(bytes));
  session.upload(x, want.data(), bytes);
  session.synchronize();
  void* seen = nullptr;
  ok(chip().memory.map(0, x, bytes, &seen), "map");
  REQUIRE(memcmp(seen, want.data(), bytes) == 0, "the host sees other bytes");
  memset(seen, 0x33, bytes / 2);
  session.download(got.data(), x, bytes);
  memset(want.data(), 0x33, bytes / 2);
  REQUIRE(got == want, "the device does not see what the host wrote");
  void* inner = nullptr;
  ok(chip().memory.map(0, x + 1000, 100, &inner), "map of a part");
  REQUIRE(inner == static_cast<char*>(seen) + 1000, "a part of the memory lies elsewhere");
  session.release(x);
}

}  // namespace

}  // namespace kit
