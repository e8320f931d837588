// --bench: what a launch, a copy and memory cost on this machine.
#include <algorithm>
#include <cstring>

#include "actions.h"
#include "program/program.h"
#include "runner.h"

namespace kit {

namespace {

// The median of `rounds` times of body, in ns per call; `settle` runs between them, outside the timing.
template <class Body, class Settle>
double cost(int calls, int rounds, Body&& body, Settle&& settle) {
  std::vector<double> times;
  for (int r = 0; r < rounds; ++r) {
    double start = now_ms();
    for (int i = 0; i < calls; ++i) body();
    times.push_back((now_ms() - start) * 1e6 / calls);
    settle();
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}

}  // namespace

std::string bench() {
  Session session;
  auto settle = [&] { session.synchronize(); };
  std::string lines;
  auto row = [&](const char* what, double value, const char* unit) {
    lines += text("%-44s %10.1f %s\n", what, value, unit);
  };

  Tensor x = session.put(Array(FL_F32, {1})), y = session.output(FL_F32, {1});
  fl::Builder b;
  b.store(0, b.op(FL_OP_ADD, b.load(0, FL_F32), b.load(1, FL_F32)), FL_F32);
  fl_tensor inputs[2] = {*x, *x}, output = *y;
  fl_pointwise_args add{b.finish(), inputs, &output, nullptr};
  const fl_launch* launch = &session.launch;
  const fl_op_api& op = chip().op;
  row("launch: add of 1 element, queued", cost(200, 101, [&] { op.pointwise(launch, &add); }, settle), "ns");
  fl_copy_args copy_args{*x, *y};
  row("launch: copy of 1 element, queued",
      cost(200, 101, [&] { op.copy(launch, &copy_args); }, settle), "ns");
  row("launch and wait: add of 1 element",
      cost(
          1, 501,
          [&] {
            op.pointwise(launch, &add);
            session.synchronize();
          },
          [] {}),
      "ns");
  auto allocate = [&](size_t bytes) {
    void* p = nullptr;
    chip().memory.malloc(0, bytes, &p);
    chip().memory.free(0, p);
  };
  row("malloc and free, 4 KiB", cost(50, 21, [&] { allocate(4096); }, [] {}), "ns");
  row("malloc and free, 64 MiB", cost(5, 11, [&] { allocate(64 << 20); }, [] {}), "ns");

  constexpr size_t kBytes = 64 << 20;
  std::vector<char> pageable(kBytes, 1);
  void *pinned = nullptr, *device = session.allocate(kBytes);
  ok(chip().memory.host_alloc(kBytes, &pinned), "host_alloc");
  memset(pinned, 1, kBytes);
  struct {
    const char* what;
    int kind;
    bool fast;
  } transfers[] = {{"host to device, host_alloc memory", FL_HOST_TO_DEVICE, true},
                   {"host to device, other memory", FL_HOST_TO_DEVICE, false},
                   {"device to host, host_alloc memory", FL_DEVICE_TO_HOST, true},
                   {"device to host, other memory", FL_DEVICE_TO_HOST, false}};
  for (auto& t : transfers) {
    void* hosts = t.fast ? pinned : pageable.data();
    bool up = t.kind == FL_HOST_TO_DEVICE;
    double ns = cost(
        1, 7,
        [&] {
          chip().memory.copy(launch, t.kind, up ? device : hosts, up ? hosts : device, kBytes);
          session.synchronize();
        },
        [] {});
    row(t.what, static_cast<double>(kBytes) / ns, "GB/s");
  }
  session.release(device);
  chip().memory.host_free(pinned);
  lines.pop_back();
  return lines;
}

}  // namespace kit
