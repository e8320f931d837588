// Capture and replay without PyTorch: what a graph keeps, what a capture leaves alone, pools.
#include "runtime/capture.h"

#include <algorithm>
#include <thread>

#include "errors.h"
#include "fl/ops.h"
#include "runtime/pool.h"
#include "sim_device.h"

namespace {

constexpr size_t kN = 1000;

struct Buffer {
  explicit Buffer(fl::Stream& s, float value) : block(fl::allocate(s, kN * 4)), data(fl::address(block)) {
    std::vector<float> host(kN, value);
    REQUIRE(transfer(s, FL_HOST_TO_DEVICE, data, host.data(), kN * 4) == FL_OK);
    fl::synchronize(s);
  }
  ~Buffer() { fl::free(block); }
  Buffer(const Buffer&) = delete;
  std::vector<float> read(fl::Stream& s) const {
    std::vector<float> host(kN);
    REQUIRE(transfer(s, FL_DEVICE_TO_HOST, host.data(), data, kN * 4) == FL_OK);
    fl::synchronize(s);
    return host;
  }
  fl::Block* block;
  void* data;
};

const int64_t kSize = kN, kStride = 1;
fl_tensor view(void* data, int64_t first = 0, const int64_t* size = &kSize) {
  return {static_cast<float*>(data) + first, size, &kStride, 1, FL_F32, 0, 0};
}

// As an operator launches: through the table of the stream.
fl_status fill(fl::Stream& s, const fl_tensor& to, double value) {
  static fl::Op op("test::fill");
  const fl_tensor* shown[] = {&to};
  fl_launch launch = fl::make_launch(op, s, shown, 1);
  fl_fill_args args{to, {}};
  args.value.v.f = value;
  fl::LaunchScope scope(s);
  return s.chip->op.fill(&launch, &args);
}
fl_status copy(fl::Stream& s, const fl_tensor& from, const fl_tensor& to) {
  static fl::Op op("test::copy_entry");
  fl_launch launch = fl::make_launch(op, s, nullptr, 0);
  fl_copy_args args{from, to};
  fl::LaunchScope scope(s);
  return s.chip->op.copy(&launch, &args);
}

bool all(const std::vector<float>& values, float value) {
  return std::all_of(values.begin(), values.end(), [=](float v) { return v == value; });
}

void test_capture_and_replay(fl::Stream& s) {
  Buffer x(s, 1), y(s, 2);
  fl::Graph graph;
  const fl::Chip* const chip = s.chip;
  graph.begin(s, {});
  CHECK(s.chip != chip && fl::capture_of(s) && graph.pool());
  {
    // What the arguments point to is gone after the launch.
    int64_t half = kN / 2;
    CHECK(fill(s, view(x.data, kN / 2, &half), 7) == FL_OK);
    half = -1;
  }
  CHECK(copy(s, view(x.data), view(y.data)) == FL_OK);
  fl::Block* own = fl::allocate(s, kN * 4);
  CHECK(copy(s, view(y.data), view(fl::address(own))) == FL_OK);
  graph.end();
  CHECK(s.chip == chip && !fl::capture_of(s) && graph.size() == 3);
  CHECK(all(x.read(s), 1) && all(y.read(s), 2));

  fill(s, view(x.data), 3);
  fl::synchronize(s);
  graph.replay();  // on the device's current stream, another one
  fl::synchronize_device(s.device);
  std::vector<float> got = y.read(s);
  CHECK(got.front() == 3 && got.back() == 7);
  std::vector<float> in_pool(kN);
  transfer(s, FL_DEVICE_TO_HOST, in_pool.data(), fl::address(own), kN * 4);
  fl::synchronize(s);
  CHECK(in_pool == got);
  fl::free(own);
  CHECK(graph.dot().find("test::fill") != std::string::npos);
}

void test_unsupported_is_not_recorded(fl::Stream& s) {
  Buffer x(s, 1);
  fl::Graph graph;
  graph.begin(s, {});
  REQUIRE(!s.chip->claims(FL_ENTRY_RANDOM, FL_RANDOM_NORMAL32, FL_BOOL));
  static fl::Op op("test::unclaimed");
  const fl_launch launch = fl::make_launch(op, s, nullptr, 0);
  fl_random_args args{};
  args.out = view(x.data);
  args.out.dtype = FL_BOOL;
  args.distribution = FL_RANDOM_NORMAL32;
  CHECK(s.chip->op.random(&launch, &args) == FL_UNSUPPORTED);
  graph.end();
  CHECK(graph.size() == 0);
  graph.replay();
}

void test_refusals(fl::Stream& s) {
  fl::Graph graph, other;
  CHECK_ERROR(graph.replay(), FL_INVALID, "no capture");
  CHECK_ERROR(graph.end(), FL_INVALID, "not being captured");
  CHECK_ERROR(graph.begin(fl::stream(s.device, 0), {}), FL_INVALID, "default");
  graph.begin(s, {});
  CHECK_ERROR(fl::synchronize(s), FL_INVALID, "wait for the device");
  CHECK_ERROR(fl::query(s), FL_INVALID, "wait for the device");
  CHECK_ERROR(other.begin(s, {}), FL_INVALID, "already");
  CHECK_ERROR(graph.replay(), FL_INVALID, "end the capture");
  CHECK_ERROR(fl::join_capture(0, s), FL_INVALID, "not recorded in the capture");
  CHECK_ERROR(graph.end(), FL_FAILED, "of no use", "wait for the device");
  CHECK_ERROR(graph.replay(), FL_INVALID, "no capture");
  fl::synchronize(s);
  graph.begin(s, {});
  const uint64_t over = fl::capture_of(s)->id;
  graph.end();
  CHECK_ERROR(fl::join_capture(over, s), FL_INVALID, "no point in time");
}

void test_random_numbers(fl::Stream& s) {
  auto state = std::make_shared<fl::RandomState>(fl::PhiloxState{5, 100});
  auto twin = std::make_shared<fl::RandomState>(fl::PhiloxState{5, 100});
  Buffer x(s, 0), y(s, 0), want(s, 0);
  auto draw = [&](const Buffer& to, fl::PhiloxState from) {
    static fl::Op op("test::random");
    fl_launch launch = fl::make_launch(op, s, nullptr, 0);
    fl_random_args args{};
    args.out = view(to.data);
    args.seed = from.seed, args.offset = from.offset;
    args.b.v.f = 1;
    args.distribution = FL_RANDOM_UNIFORM32;
    fl::LaunchScope scope(s);
    CHECK(s.chip->op.random(&launch, &args) == FL_OK);
  };
  fl::Graph graph;
  graph.begin(s, {});
  fl::Capture& capture = *fl::capture_of(s);
  capture.draw(state, 3);
  draw(x, capture.draw(state, 250));
  draw(y, capture.draw(twin, 250));
  graph.end();
  CHECK(state->get().offset == 100);
  twin->set({9, 0});
  for (uint64_t offset : {100, 353}) {
    graph.replay();
    fl::synchronize_device(s.device);
    draw(want, {5, offset + 3});
    CHECK(x.read(s) == want.read(s));
  }
  CHECK(state->get().offset == 100 + 2 * 253);
  draw(want, {9, 250});
  CHECK(y.read(s) == want.read(s));
}

void test_pools(fl::Stream& s) {
  const fl::PoolId id = fl::new_pool_id(true);
  CHECK(!id.graph && id.user && fl::pool_holders(s.device, id) == 0);
  fl::empty_cache();
  const int64_t before = fl::memory_stats(s.device).reserved_bytes[fl::kAggregate].current;
  fl::hold_pool(s.device, id);
  fl::begin_pool_route(s.device, id);
  CHECK(fl::pool_holders(s.device, id) == 2);
  fl::Block* a = fl::allocate(s, 5 << 20);
  std::thread([&] {
    fl::Block* elsewhere = fl::allocate(s, 5 << 20);
    fl::free(elsewhere);
  }).join();
  fl::end_pool_route(s.device, id);
  CHECK_ERROR(fl::end_pool_route(s.device, id), FL_INVALID, "do not go to");
  void* const address = fl::address(a);
  fl::free(a);
  fl::empty_cache();
  auto stats = fl::pool_stats(s.device);
  CHECK(stats.size() == 1 && stats[0].first == id && stats[0].second[fl::kAggregate].current == 20 << 20);
  fl::Block* again = fl::allocate(s, 5 << 20, id);
  CHECK(fl::address(again) == address);
  fl::release_pool(s.device, id);
  fl::empty_cache();
  CHECK(fl::memory_stats(s.device).reserved_bytes[fl::kAggregate].current == before + (20 << 20));
  fl::free(again);
  fl::empty_cache();
  CHECK(fl::memory_stats(s.device).reserved_bytes[fl::kAggregate].current == before);
  CHECK(fl::pool_stats(s.device).empty());
}

// Launches, allocations and replays of other threads while captures come and go.
void test_threads() {
  auto work = [](int number) {
    fl::Stream& s = fl::stream(0, 10 + number);
    Buffer x(s, 0);
    for (int round = 0; round < 20; ++round) {
      fl::Graph graph;
      if (number % 2) graph.begin(s, {});
      for (int i = 0; i < 5; ++i) CHECK(fill(s, view(x.data), round * 10 + i) == FL_OK);
      fl::Block* block = fl::allocate(s, 4096);
      CHECK(fill(s, view(fl::address(block)), 1) == FL_OK);
      fl::free(block);
      if (number % 2) {
        graph.end();
        fl::exchange_stream(s);
        graph.replay();
      }
      CHECK(all(x.read(s), static_cast<float>(round * 10 + 4)));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& t : threads) t.join();
}

}  // namespace

int main() {
  use_sim(1, "256M");
  fl::Stream& s = fl::pool_stream(0, false);
  test_capture_and_replay(s);
  test_unsupported_is_not_recorded(s);
  test_refusals(s);
  test_random_numbers(s);
  test_pools(s);
  test_threads();
  return check::result();
}
