// Streams, events, launches and their faults, on the sim chip.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "errors.h"
#include "runtime/allocator.h"
#include "runtime/config.h"
#include "sim_device.h"

namespace {

using fl::Event;
using fl::Stream;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasure = false;
#else
constexpr bool kMeasure = true;
#endif

double ns_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - t).count();
}

void devices_are_checked() {
  CHECK(fl::current_device() == 0);
  CHECK_ERROR(fl::set_device(9), FL_INVALID, "no device 9", "sim:0, sim:1");
  CHECK_ERROR(fl::exchange_device(-2), FL_INVALID, "no device -2");
  CHECK_ERROR(fl::current_stream(9), FL_INVALID, "no device 9");
  CHECK_ERROR(fl::current_stream(-1), FL_INVALID, "no device -1");
  CHECK(fl::exchange_device(-1) == 0 && fl::current_device() == 0);
  CHECK(fl::exchange_device(1) == 0 && fl::current_device() == 1);
  int32_t other = -1;
  std::thread([&] { other = fl::current_device(); }).join();
  CHECK(other == 0);  // a thread begins with the first
  fl::set_device(0);
  CHECK(!fl::is_open(0) && !fl::is_open(1));  // none of this starts a device
}

void streams_have_stable_ids() {
  Stream& main = fl::current_stream(0);
  CHECK(main.id == 0 && main.device == 0 && &main == &fl::stream(0, 0) && fl::is_open(0) && !fl::is_open(1));
  std::set<int64_t> normal, high;
  for (int i = 0; i < 64; ++i) {
    Stream &a = fl::pool_stream(0, false), &b = fl::pool_stream(0, true);
    CHECK(a.priority == 0 && b.priority == -1 && &a == &fl::stream(0, a.id));
    normal.insert(a.id);
    high.insert(b.id);
  }
  CHECK(normal.size() == 32 && *normal.begin() == 1 && *normal.rbegin() == 32);
  CHECK(high.size() == 32 && *high.begin() == 33 && *high.rbegin() == 64);
  CHECK_ERROR(fl::stream(0, 65), FL_INVALID, "no stream 65 on sim:0");
  CHECK_ERROR(fl::stream(0, -1), FL_INVALID, "no stream -1");
  CHECK(fl::existing_stream(1, 0) == nullptr && fl::existing_stream(0, 0) == &main);

  Stream& side = fl::stream(0, 1);
  CHECK(&fl::exchange_stream(side) == &main && &fl::current_stream(0) == &side);
  Stream* other = nullptr;
  std::thread([&] { other = &fl::current_stream(0); }).join();
  CHECK(other == &main);
  CHECK(&fl::exchange_stream(main) == &side);
}

void threads_get_the_same_streams() {
  std::vector<Stream*> got(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < got.size(); ++t)
    threads.emplace_back([&, t] {
      for (int64_t id = 0; id < fl::kStreams; ++id) fl::stream(1, id);
      got[t] = &fl::stream(1, 7);
    });
  for (std::thread& t : threads) t.join();
  for (Stream* s : got) CHECK(s == got[0]);
}

void transfers_come_back() {
  Stream& s = fl::current_stream(0);
  std::vector<float> from(1000), to(1000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  Memory memory(0, 4000);
  fl::check(transfer(s, FL_HOST_TO_DEVICE, memory.address, from.data(), 4000), "to");
  fl::check(transfer(s, FL_DEVICE_TO_HOST, to.data(), memory.address, 4000), "from");
  fl::synchronize(s);
  CHECK(from == to);
  CHECK(fl::query(s));
}

void streams_wait_for_events_alone() {
  Stream &a = fl::stream(0, 1), &b = fl::stream(0, 2);
  Memory x(0, 4096), y(0, 4096);
  std::vector<char> host(4096, 1);
  Event event(0, false), after(0, false);
  CHECK(event.query());  // never recorded
  event.block(b);
  event.synchronize();
  {
    Faults hang("hang=transfer:1");
    fl::check(transfer(a, FL_DEVICE_TO_DEVICE, x.address, y.address, 4096), "hangs");
    event.record(a);
    CHECK(!event.query() && !fl::query(a));
    event.block(b);
    fl::check(transfer(b, FL_DEVICE_TO_DEVICE, y.address, x.address, 4096), "waits");
    after.record(b);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(!after.query());
    CHECK(fl::query(fl::stream(0, 3)));  // other streams are not held up
  }
  after.synchronize();  // the hung launch has failed: a fault of stream a, not of b
  CHECK(event.query());
  CHECK_ERROR(fl::synchronize(a), FL_FAILED, "test::copy on sim:0, stream 1");
  fl::synchronize(b);
}

void events_measure_time() {
  Stream& s = fl::current_stream(0);
  Event start(0, true), end(0, true), plain(0, false);
  CHECK_ERROR(start.elapsed_ms(end), FL_INVALID, "recorded");
  start.record(s);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  end.record(s);
  end.synchronize();
  double ms = start.elapsed_ms(end);
  CHECK_THAT(ms >= 25 && ms < 5000, "%g ms", ms);
  plain.record(s);
  CHECK_ERROR(start.elapsed_ms(plain), FL_INVALID, "enable_timing");
  CHECK_ERROR(start.record(fl::stream(1, 0)), FL_INVALID, "sim:0", "sim:1");

  Event moved = std::move(start);
  CHECK(moved.handle() && !start.handle() && moved.elapsed_ms(end) == ms);
  // A chip's event is used again, and a new Event has no past.
  fl_event handle = moved.handle();
  moved = Event(0, true);
  Event again(0, true);
  CHECK(moved.handle() == handle || again.handle() == handle);
  CHECK(again.query() && moved.query());
  Faults hang("hang=transfer:1");
  Memory x(0, 64), y(0, 64);
  fl::check(transfer(s, FL_DEVICE_TO_DEVICE, x.address, y.address, 64), "hangs");
  moved.record(s);
  again.record(s);
  CHECK_ERROR(moved.elapsed_ms(again), FL_NOT_READY, "synchronize");
  order_faults("");
  error_of([&] { fl::synchronize(s); });
}

// Faults: who did it, and the process goes on.
void faults_name_the_launch() {
  Stream& s = fl::current_stream(0);
  Memory x(0, 4000), y(0, 4000);
  auto copy = [&] { fl::check(transfer(s, FL_DEVICE_TO_DEVICE, x.address, y.address, 4000), "copy"); };
  {
    Faults fail("kernel=transfer:2");
    copy();
    copy();
    CHECK_ERROR(fl::synchronize(s), FL_FAILED, "test::copy on sim:0, stream 0: float32[1000]",
                "FL_FAULT_LINES=1", "torch.fl.config.fault_lines = True");
  }
  fl::synchronize(s);
  copy();
  fl::synchronize(s);
  CHECK(fl::query(s));

  fl::set_setting("fault_lines", "1");
  fl::set_line_finder([]() -> const char* { return "train.py:31"; });
  {
    Faults fail("kernel=transfer:1+");
    copy();
    copy();
    copy();
    auto error = error_of([&] { fl::synchronize(s); });
    REQUIRE(error.has_value());
    CHECK_THAT(contains(error->what(), "; submitted at train.py:31"), "%s", error->what());
    CHECK_THAT(contains(error->what(), "2 later faults") && !contains(error->what(), "FL_FAULT_LINES"), "%s",
               error->what());
  }
  fl::synchronize(s);  // all were taken
  {
    Faults fail("kernel=transfer:1");
    copy();
    while (!error_of([&] {
      if (fl::query(s)) abort();
    }))
      std::this_thread::yield();
    fl::synchronize(s);
  }
  {
    Faults fail("kernel=transfer:1");
    copy();
    Event event(0, false);
    event.record(s);
    CHECK_ERROR(event.synchronize(), FL_FAILED, "test::copy");
  }
  fl::set_line_finder(nullptr);
  fl::set_setting("fault_lines", "0");
}

void a_device_is_synchronized_whole() {
  Memory x(0, 64), y(0, 64);
  Stream &a = fl::stream(0, 5), &b = fl::stream(0, 6);
  {
    Faults fail("kernel=transfer:1+");
    fl::check(transfer(b, FL_DEVICE_TO_DEVICE, x.address, y.address, 64), "copy");
    fl::check(transfer(a, FL_DEVICE_TO_DEVICE, x.address, y.address, 64), "copy");
    CHECK_ERROR(fl::synchronize_device(0), FL_FAILED, "stream 5");
  }
  fl::synchronize_device(0);  // the fault of stream 6 was taken as well
  CHECK_ERROR(fl::synchronize_device(7), FL_INVALID, "no device 7");
}

void waiting_ends_at_the_limit() {
  Stream& s = fl::stream(0, 9);
  Memory x(0, 64), y(0, 64);
  fl::set_setting("sync_timeout", "0.05");
  {
    Faults hang("hang=transfer:1");
    fl::check(transfer(s, FL_DEVICE_TO_DEVICE, x.address, y.address, 64), "hangs");
    fl::check(transfer(s, FL_DEVICE_TO_DEVICE, y.address, x.address, 64), "waits");
    auto start = std::chrono::steady_clock::now();
    CHECK_ERROR(fl::synchronize(s), FL_TIMEOUT, "sim:0, stream 9", "FL_SYNC_TIMEOUT", "0.05 s",
                "test::copy on sim:0, stream 9: float32[16]; then test::copy");
    CHECK(ns_since(start) > 45e6);
    CHECK_ERROR(fl::synchronize_device(0), FL_TIMEOUT, "stream 9");
    Event event(0, false);
    event.record(s);
    CHECK_ERROR(event.synchronize(), FL_TIMEOUT, "an event on sim:0, stream 9");
  }
  fl::set_setting("sync_timeout", "0");
  CHECK_ERROR(fl::synchronize(s), FL_FAILED, "test::copy");
  fl::synchronize(s);
}

void launches_are_described() {
  Stream& s = fl::current_stream(0);
  int64_t sizes[] = {64, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9}, big[] = {int64_t{1} << 40}, strides[11] = {};
  fl_tensor matrix{nullptr, sizes, strides, 2, FL_BF16, 0, 0},
      scalar{nullptr, nullptr, nullptr, 0, FL_I64, 0, 0};
  fl_tensor deep{nullptr, sizes, strides, 11, FL_F32, 0, 0}, huge{nullptr, big, strides, 1, FL_U8, 0, 0};
  const fl_tensor* all[] = {&matrix, &scalar, &huge, &deep, &matrix, &matrix, &matrix, &matrix};
  static fl::Op op("aten::mm");
  auto text = [&](int n) { return fl::describe_launch(fl::make_launch(op, s, all, n).tag); };
  CHECK(text(0) == "aten::mm on sim:0, stream 0");
  CHECK_THAT(text(2) == "aten::mm on sim:0, stream 0: bfloat16[64, 10], int64[]", "%s", text(2).c_str());
  CHECK_THAT(contains(text(3), "uint8[>=4294967295]"), "%s", text(3).c_str());
  CHECK_THAT(contains(text(4), "float32[64, 10, 1, 2, 3, 4, 5, 6, …]"), "%s", text(4).c_str());
  CHECK_THAT(contains(text(8), ", …"), "%s", text(8).c_str());
  CHECK(contains(fl::describe_launch(0), "does not name"));
  uint64_t first = fl::make_launch(op, s, all, 1).tag;
  for (int i = 0; i < 16384; ++i) fl::make_launch(op, fl::stream(0, 1), nullptr, 0);
  CHECK(contains(fl::describe_launch(first), "no longer recorded"));
  CHECK(fl::describe_last_launches(s, 3).empty());
  fl_launch launch = fl::make_launch(op, s, all, 1);
  CHECK(launch.stream == s.handle && launch.device == s.local && launch.flags == 0);
  CHECK(fl::launch_stream(launch) == &s);
  launch.tag = first;  // overtaken: found by its handle
  CHECK(fl::launch_stream(launch) == &s);
  launch.stream = nullptr;
  CHECK(fl::launch_stream(launch) == nullptr);
}

void operators_register_themselves() {
  CHECK(&fl::find_op("test::copy") == &copy_op());
  fl::Op& made = fl::find_op("test::made");
  CHECK(&made == &fl::find_op("test::made") && !strcmp(made.name, "test::made"));
  int found = 0;
  for (fl::Op* op = fl::first_op(); op; op = op->next) found += op == &made || op == &copy_op();
  CHECK(found == 2);
}

void launches_race_with_readers() {
  Stream& s = fl::current_stream(0);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> last{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      int64_t sizes[] = {t + 1, t + 1, t + 1, t + 1, t + 1}, strides[5] = {};
      fl_tensor x{nullptr, sizes, strides, t + 1, FL_F32, 0, 0};
      const fl_tensor* tensors[] = {&x, &x};
      while (!stop) last = fl::make_launch(copy_op(), s, tensors, 2).tag;
    });
  const std::set<std::string> possible = {
      "test::copy on sim:0, stream 0: float32[1], float32[1]",
      "test::copy on sim:0, stream 0: float32[2, 2], float32[2, 2]",
      "test::copy on sim:0, stream 0: float32[3, 3, 3], float32[3, 3, 3]"};
  int whole = 0;
  auto start = std::chrono::steady_clock::now();
  while (whole < 5000 && ns_since(start) < 30e9) {
    std::string text = fl::describe_launch(last);
    if (contains(text, "does not name") || contains(text, "no longer recorded")) continue;
    ++whole;
    if (!CHECK_THAT(possible.count(text), "torn: %s", text.c_str())) break;
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  CHECK_THAT(whole > 0, "no record was seen whole");
}

// fl_host.scratch: distinct within a launch, the same memory for the next one.
void scratch_lasts_for_the_launch() {
  Stream& s = fl::current_stream(0);
  const fl_host* host = fl::host_table();
  int64_t before = fl::memory_stats(0).allocated_bytes[fl::kAggregate].current;
  void *a = nullptr, *b = nullptr, *c = nullptr;
  {
    fl_launch launch = fl::make_launch(copy_op(), s, nullptr, 0);
    fl::LaunchScope scope(s);
    CHECK(host->scratch(&launch, 1000, &a) == FL_OK && host->scratch(&launch, 1000, &b) == FL_OK);
    CHECK(a && b && a != b);
    CHECK(host->scratch(&launch, 0, &c) == FL_INVALID && host->scratch(nullptr, 8, &c) == FL_INVALID);
    CHECK(contains(fl::take_chip_error(), "scratch()"));
    CHECK(fl::memory_stats(0).allocated_bytes[fl::kAggregate].current == before + 2048);
  }
  CHECK(fl::memory_stats(0).allocated_bytes[fl::kAggregate].current == before && s.scratch == 0);
  fl_launch launch = fl::make_launch(copy_op(), s, nullptr, 0);
  fl::LaunchScope scope(s);
  CHECK(host->scratch(&launch, 1000, &c) == FL_OK && (c == a || c == b));
  CHECK(host->scratch(&launch, size_t{1} << 40, &c) == FL_OUT_OF_MEMORY);
  CHECK(contains(fl::take_chip_error(), "out of memory"));
}

// Two chips: nothing on the devices can wait, so the host does.
void chips_wait_for_each_other() {
  int32_t other = fl::find_device("template");
  Stream &s = fl::stream(0, 11), &t = fl::current_stream(other);
  CHECK(t.serial != nullptr && s.serial == nullptr);
  Memory x(0, 64), y(0, 64);
  Event event(0, false);
  std::atomic<bool> passed{false};
  {
    Faults hang("hang=transfer:1");
    fl::check(transfer(s, FL_DEVICE_TO_DEVICE, x.address, y.address, 64), "hangs");
    event.record(s);
    std::thread waiter([&] {
      error_of([&] { event.block(t); });
      passed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(!passed);
    order_faults("");
    waiter.join();
  }
  CHECK(passed);
  error_of([&] { fl::synchronize(s); });
}

// FL_CHIP_SERIAL_LAUNCH: no two launches at once.
void serial_chips_get_one_launch_at_a_time() {
  Stream& t = fl::current_stream(fl::find_device("template"));
  int inside = 0, most = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) {
        fl::LaunchScope scope(t);
        most = std::max(most, ++inside);
        --inside;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(most == 1);
}

void a_forked_child_touches_no_device() {
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    auto refuses = [](const std::function<void()>& f) {
      auto error = error_of(f);
      return error && contains(error->what(), "spawn");
    };
    bool good = fl::in_bad_fork() && refuses([] { fl::current_stream(0); }) &&
                refuses([] { fl::synchronize_device(0); }) && refuses([] { Event(0, false); }) &&
                refuses([] { fl::stream(0, 0); }) && refuses([] { fl::empty_cache(); });
    fl::shutdown();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_THAT(status == 0, "status %d", status);
  CHECK(!fl::in_bad_fork());
}

void a_lost_device_costs_only_itself() {
  Stream& s = fl::current_stream(1);
  Memory x(1, 64), y(1, 64);
  {
    Faults lost("lost=1:1");
    transfer(s, FL_DEVICE_TO_DEVICE, x.address, y.address, 64);
    CHECK_ERROR(fl::synchronize(s), FL_DEVICE_LOST, "sim:1");
  }
  CHECK_ERROR(fl::synchronize(s), FL_DEVICE_LOST, "sim:1");
  CHECK_ERROR(fl::synchronize_device(1), FL_DEVICE_LOST, "sim:1");
  transfers_come_back();  // on device 0
}

void costs() {
  Stream& s = fl::current_stream(0);
  int64_t sizes[] = {64, 128}, strides[] = {128, 1};
  fl_tensor t{nullptr, sizes, strides, 2, FL_F32, 0, 0};
  const fl_tensor* tensors[] = {&t, &t, &t};
  double best[2] = {1e9, 1e9};
  uint64_t sum = 0;
  for (int round = 0; round < 50; ++round) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10000; ++i) sum += fl::make_launch(copy_op(), s, tensors, 3).tag;
    best[0] = std::min(best[0], ns_since(start) / 10000);
    start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10000; ++i) {
      fl::LaunchScope scope(fl::current_stream(0));
      sum += static_cast<uint64_t>(fl::current_device());
    }
    best[1] = std::min(best[1], ns_since(start) / 10000);
  }
  printf("make_launch %.1f ns, current_stream and LaunchScope %.1f ns\n", best[0], best[1]);
  CHECK(sum > 0);
  if (kMeasure) CHECK_THAT(best[0] < 60 && best[1] < 30, "budgets are 20 and 5 ns, on a quiet machine");
}

}  // namespace

int main() {
  use_sim(2, "64M", FL_TEST_CHIPS "/libfl_template.so");
  devices_are_checked();
  streams_have_stable_ids();
  threads_get_the_same_streams();
  transfers_come_back();
  streams_wait_for_events_alone();
  events_measure_time();
  faults_name_the_launch();
  a_device_is_synchronized_whole();
  waiting_ends_at_the_limit();
  launches_are_described();
  operators_register_themselves();
  launches_race_with_readers();
  scratch_lasts_for_the_launch();
  chips_wait_for_each_other();
  serial_chips_get_one_launch_at_a_time();
  a_forked_child_touches_no_device();
  costs();
  a_lost_device_costs_only_itself();
  fl::shutdown();
  return check::result();
}
