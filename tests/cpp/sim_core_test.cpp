// The sim chip as a device: memory, streams, events, transfers, faults, forks.
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "../../chips/sim/faults.h"
#include "sim_test.h"

using namespace sim_test;

namespace {

const fl_chip* chip;
const sim_faults* faults;
constexpr int64_t kMs = 1000000;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// x = x + scalar, in place.
const Program& step_program() {
  static const Program program({load(0, FL_F32, FL_F32),
                                {FL_OP_SCALAR, FL_F32, 0, 0, 0, 0, 0},
                                op(FL_OP_ADD, FL_F32, 0, 1),
                                store(2, 0, FL_F32, FL_F32)},
                               1, 1, 1);
  return program;
}
fl_status add_scalar(Device& d, Buffer& b, int64_t n, double value, fl_stream stream = nullptr) {
  int64_t one = 1;
  fl_tensor t{b.address, &n, &one, 1, FL_F32, 0, 0};
  fl_scalar scalar{};
  scalar.v.f = value;
  fl_launch l = d.launch();
  if (stream) l.stream = stream;
  fl_pointwise_args args{&step_program().program, &t, &t, &scalar};
  return chip->op->pointwise(&l, &args);
}

void devices() {
  int32_t count = 0;
  CHECK_STATUS(chip->device->count(&count), FL_OK);
  CHECK(count == 2);
  fl_device_properties p{}, q{};
  p.size = q.size = sizeof p;
  CHECK_STATUS(chip->device->properties(0, &p), FL_OK);
  CHECK_STATUS(chip->device->properties(1, &q), FL_OK);
  CHECK_STATUS(chip->device->properties(2, &p), FL_INVALID);
  CHECK_STATUS(chip->device->properties(-1, &p), FL_INVALID);
  CHECK(std::strcmp(p.identity, q.identity) != 0);
  CHECK(p.total_memory == uint64_t{256} << 20);
  CHECK(p.flags == (FL_DEVICE_SOFTWARE | FL_DEVICE_HOST_ADDRESSABLE));
  CHECK_STATUS(chip->device->open(2), FL_INVALID);
  CHECK_STATUS(chip->device->open(0), FL_OK);
  CHECK_STATUS(chip->device->open(0), FL_OK);
  CHECK(chip->extension("nothing", 1) == nullptr);
}

void memory() {
  Device d(chip, 0);
  void *a, *b, *c;
  CHECK_STATUS(chip->memory->malloc(0, 0, &a), FL_INVALID);
  CHECK_STATUS(chip->memory->malloc(0, uint64_t{1} << 40, &a), FL_OUT_OF_MEMORY);
  uint64_t before, after, total;
  CHECK_STATUS(chip->memory->info(0, &before, &total), FL_OK);
  CHECK_STATUS(chip->memory->malloc(0, 100 << 20, &a), FL_OK);
  CHECK_STATUS(chip->memory->malloc(0, 100 << 20, &b), FL_OK);
  CHECK_STATUS(chip->memory->malloc(0, 100 << 20, &c), FL_OUT_OF_MEMORY);
  CHECK_STATUS(chip->memory->malloc(0, 1000, &c), FL_OK);
  CHECK(reinterpret_cast<uintptr_t>(c) % 512 == 0);
  CHECK_STATUS(chip->memory->free(0, a), FL_OK);
  CHECK_STATUS(chip->memory->free(0, a), FL_INVALID);
  CHECK_STATUS(chip->memory->free(0, b), FL_OK);
  CHECK_STATUS(chip->memory->malloc(0, 200 << 20, &a), FL_OK);  // the two came together again
  CHECK_STATUS(chip->memory->free(0, a), FL_OK);
  CHECK_STATUS(chip->memory->free(0, c), FL_OK);
  CHECK_STATUS(chip->memory->free(0, nullptr), FL_OK);
  CHECK_STATUS(chip->memory->info(0, &after, &total), FL_OK);
  CHECK(before == after && total == uint64_t{256} << 20);

  // map: the same bytes.
  std::vector<int> numbers(1000);
  for (int i = 0; i < 1000; ++i) numbers[size_t(i)] = i * 3;
  Buffer buffer(d, numbers.data(), 4000);
  d.sync();
  void* host;
  CHECK_STATUS(chip->memory->map(0, buffer.address + 400, 3600, &host), FL_OK);
  CHECK(std::memcmp(host, numbers.data() + 100, 3600) == 0);
  static_cast<int*>(host)[0] = -1;
  CHECK(buffer.values<int>(1000)[100] == -1);
  CHECK_STATUS(chip->memory->map(0, buffer.address, 5000, &host), FL_INVALID);
  // What was freed is given back to the host: fresh memory reads as zeros.
  CHECK_STATUS(chip->memory->malloc(0, 4000, &a), FL_OK);
  CHECK_STATUS(chip->memory->map(0, a, 4000, &host), FL_OK);
  std::memset(host, 1, 4000);
  CHECK_STATUS(chip->memory->free(0, a), FL_OK);
  CHECK_STATUS(chip->memory->malloc(0, 4000, &b), FL_OK);
  CHECK(a == b);
  CHECK(static_cast<char*>(host)[17] == 0);
  CHECK_STATUS(chip->memory->free(0, b), FL_OK);
}

sigjmp_buf after_fault;
void on_fault(int) { siglongjmp(after_fault, 1); }

// A host read of a device address faults.
void host_cannot_read() {
  Device d(chip, 0);
  Buffer buffer(d, 4096);
  struct sigaction action{}, before{};
  action.sa_handler = on_fault;
  sigaction(SIGSEGV, &action, &before);
  volatile bool faulted = false;
  if (sigsetjmp(after_fault, 1) == 0) (void)*static_cast<volatile char*>(buffer.address);
  else faulted = true;
  sigaction(SIGSEGV, &before, nullptr);
  CHECK(faulted);
}

void transfers() {
  Device d(chip, 0), e(chip, 1);
  for (size_t n : {size_t{1}, size_t{1000}, size_t{300000}, size_t{20} << 20}) {
    std::vector<unsigned char> data(n), back(n);
    for (size_t i = 0; i < n; ++i) data[i] = static_cast<unsigned char>(i * 7 + i / 251);
    Buffer a(d, n), b(d, n), c(e, n);
    a.write(data.data(), n);
    std::vector<unsigned char> kept = data;
    std::fill(data.begin(), data.end(), 0);  // [MEM-6] it has been read
    fl_launch l = d.launch();
    CHECK_STATUS(chip->memory->copy(&l, FL_DEVICE_TO_DEVICE, b.address, a.address, n), FL_OK);
    CHECK_STATUS(chip->memory->copy_peer(&l, 1, c.address, b.address, n), FL_OK);
    d.sync();
    c.read(back.data(), n);
    CHECK(back == kept);
  }
  // [MEM-5] Pinned memory is read when the stream gets there.
  CHECK_STATUS(faults->set("hang=fill:1"), FL_OK);
  void* pinned;
  CHECK_STATUS(chip->memory->host_alloc(4096, &pinned), FL_OK);
  CHECK(reinterpret_cast<uintptr_t>(pinned) % 64 == 0);
  std::memset(pinned, 1, 4096);
  Buffer a(d, 4096);
  int64_t n = 1, one = 1;
  fl_fill_args fill{{a.address, &n, &one, 1, FL_U8, 0, 0}, {}};
  fl_launch l = d.launch();
  uint64_t tag = l.tag;
  CHECK_STATUS(chip->op->fill(&l, &fill), FL_OK);
  l = d.launch();
  CHECK_STATUS(chip->memory->copy(&l, FL_HOST_TO_DEVICE, a.address, pinned, 4096), FL_OK);
  CHECK_STATUS(chip->stream->query(d.stream), FL_NOT_READY);
  std::memset(pinned, 2, 4096);
  CHECK_STATUS(chip->stream->synchronize(d.stream, 20 * kMs), FL_TIMEOUT);
  CHECK_STATUS(faults->set(""), FL_OK);
  CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_FAILED);
  fl_fault fault{};
  fault.size = sizeof fault;
  CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_OK);
  CHECK(fault.tag == tag && fault.status == FL_FAILED && std::strstr(fault.text, "fill"));
  CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_NOT_READY);
  CHECK(a.values<char>(4096)[4095] == 2);
  CHECK_STATUS(chip->memory->host_free(pinned), FL_OK);
  CHECK_STATUS(chip->memory->host_free(pinned), FL_INVALID);
  CHECK_STATUS(chip->memory->copy(&l, FL_HOST_TO_DEVICE, &fill, &fill, 8), FL_INVALID);
}

void order() {
  Device d(chip, 0);
  constexpr int64_t n = 100000;
  Buffer a(d, n * 4);
  std::vector<float> zeros(n);
  a.write(zeros.data(), n * 4);
  // From two threads at once, and more than the ring holds.
  auto many = [&] {
    for (int i = 0; i < 500; ++i) CHECK_STATUS(add_scalar(d, a, 1000, 1), FL_OK);
  };
  std::thread other(many);
  many();
  other.join();
  CHECK(a.values<float>(1000)[999] == 1000);
  Buffer small(d, 4);
  small.write(zeros.data(), 4);
  for (int i = 0; i < 200000; ++i) add_scalar(d, small, 1, 1);
  CHECK(small.values<float>(1)[0] == 200000);

  // Across streams order comes from events alone.
  fl_stream second;
  CHECK_STATUS(chip->stream->create(0, -1, &second), FL_OK);
  fl_event event;
  CHECK_STATUS(chip->stream->event_create(0, 0, &event), FL_OK);
  CHECK_STATUS(chip->stream->event_query(event), FL_OK);  // [EVT-1]
  CHECK_STATUS(chip->stream->wait_event(second, event), FL_OK);
  a.write(zeros.data(), n * 4);
  CHECK_STATUS(faults->set("hang=fill:1"), FL_OK);
  int64_t length = 1, one = 1;
  fl_fill_args fill{{a.address, &length, &one, 1, FL_F32, 0, 0}, {}};
  fl_launch l = d.launch();
  CHECK_STATUS(chip->op->fill(&l, &fill), FL_OK);
  add_scalar(d, a, n, 5);
  CHECK_STATUS(chip->stream->event_record(event, d.stream), FL_OK);
  CHECK_STATUS(chip->stream->event_query(event), FL_NOT_READY);
  CHECK_STATUS(chip->stream->wait_event(second, event), FL_OK);
  Buffer b(d, n * 4);
  l = d.launch();
  l.stream = second;
  CHECK_STATUS(chip->memory->copy(&l, FL_DEVICE_TO_DEVICE, b.address, a.address, n * 4), FL_OK);
  CHECK_STATUS(chip->stream->synchronize(second, 10 * kMs), FL_TIMEOUT);
  CHECK_STATUS(chip->stream->event_synchronize(event, 5 * kMs), FL_TIMEOUT);
  CHECK_STATUS(faults->set(nullptr), FL_OK);
  CHECK_STATUS(chip->stream->event_synchronize(event, -1), FL_OK);
  CHECK_STATUS(chip->stream->synchronize(second, -1), FL_OK);  // [STR-8]
  CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_FAILED);
  fl_fault fault{};
  fault.size = sizeof fault;
  CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_OK);
  CHECK(b.values<float>(n)[n - 1] == 5);

  // [STR-6] An event of another device; [STR-1] work that is queued is done.
  Device e(chip, 1);
  CHECK_STATUS(chip->stream->event_record(event, e.stream), FL_INVALID);
  CHECK_STATUS(chip->stream->wait_event(e.stream, event), FL_OK);
  add_scalar(d, a, n, 1, second);
  CHECK_STATUS(chip->stream->event_record(event, second), FL_OK);
  CHECK_STATUS(chip->stream->destroy(second), FL_OK);
  CHECK_STATUS(chip->stream->event_synchronize(event, -1), FL_OK);
  CHECK(a.values<float>(n)[0] == 6);
  CHECK_STATUS(chip->stream->event_destroy(event), FL_OK);
}

void timing() {
  Device d(chip, 0);
  fl_event start, end, plain;
  CHECK_STATUS(chip->stream->event_create(0, FL_EVENT_TIMING, &start), FL_OK);
  CHECK_STATUS(chip->stream->event_create(0, FL_EVENT_TIMING, &end), FL_OK);
  CHECK_STATUS(chip->stream->event_create(0, 0, &plain), FL_OK);
  double ms;
  CHECK_STATUS(chip->stream->event_elapsed(start, end, &ms), FL_INVALID);  // [EVT-4]
  CHECK_STATUS(faults->set("hang=fill:1"), FL_OK);
  Buffer a(d, 64);
  int64_t n = 1, one = 1;
  fl_fill_args fill{{a.address, &n, &one, 1, FL_U8, 0, 0}, {}};
  fl_launch l = d.launch();
  CHECK_STATUS(chip->stream->event_record(start, d.stream), FL_OK);
  CHECK_STATUS(chip->op->fill(&l, &fill), FL_OK);
  CHECK_STATUS(chip->stream->event_record(end, d.stream), FL_OK);
  CHECK_STATUS(chip->stream->event_elapsed(start, end, &ms), FL_NOT_READY);  // [EVT-3]
  CHECK_STATUS(chip->stream->event_synchronize(start, -1), FL_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK_STATUS(faults->set(""), FL_OK);
  CHECK_STATUS(chip->stream->event_synchronize(end, -1), FL_OK);
  CHECK_STATUS(chip->stream->event_elapsed(start, end, &ms), FL_OK);
  CHECK(ms > 29 && ms < 60000);
  CHECK_STATUS(chip->stream->event_record(plain, d.stream), FL_OK);
  CHECK_STATUS(chip->stream->event_elapsed(plain, end, &ms), FL_INVALID);
  fl_fault fault{};
  fault.size = sizeof fault;
  CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_OK);
  for (fl_event e : {start, end, plain}) CHECK_STATUS(chip->stream->event_destroy(e), FL_OK);
}

void ordered_faults() {
  Device d(chip, 0);
  for (const char* bad :
       {"gemm", "kernel=gemm", "kernel=nothing:1", "alloc:0", "alloc:x", "lost=7:1", "limit:1s", "hang:2"}) {
    CHECK_STATUS(faults->set(bad), FL_INVALID);
    CHECK(last_error.find(bad) != std::string::npos);
  }
  CHECK_STATUS(faults->set("alloc:2,kernel=pointwise:2"), FL_OK);
  void *a, *b;
  CHECK_STATUS(chip->memory->malloc(0, 100, &a), FL_OK);
  CHECK_STATUS(chip->memory->malloc(0, 100, &b), FL_OUT_OF_MEMORY);
  CHECK_STATUS(chip->memory->malloc(0, 100, &b), FL_OK);
  CHECK_STATUS(chip->memory->free(0, a), FL_OK);
  CHECK_STATUS(chip->memory->free(0, b), FL_OK);
  float zero = 0;
  Buffer x(d, &zero, 4);
  for (int i = 0; i < 3; ++i) CHECK_STATUS(add_scalar(d, x, 1, 1), FL_OK);
  CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_FAILED);  // [STR-3], each time
  CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_FAILED);
  CHECK_STATUS(chip->stream->query(d.stream), FL_FAILED);
  fl_fault fault{};
  fault.size = sizeof fault;
  CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_OK);
  CHECK(std::strstr(fault.text, "pointwise"));
  d.sync();
  CHECK(x.values<float>(1)[0] == 2);  // the failed one did nothing, the one behind it ran
  sim_fault_counters counters;
  faults->counters(&counters);
  CHECK(counters.allocations == 4 && counters.delivered == 2);
  // A hang ends at its limit, and when its stream is destroyed.
  CHECK_STATUS(faults->set("hang=pointwise:1,limit:20"), FL_OK);
  double began = seconds();
  CHECK_STATUS(add_scalar(d, x, 1, 1), FL_OK);
  CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_FAILED);
  CHECK(seconds() - began > 0.015);
  CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_OK);
  fl_stream other;
  CHECK_STATUS(chip->stream->create(0, 0, &other), FL_OK);
  CHECK_STATUS(faults->set("hang=any:1"), FL_OK);
  CHECK_STATUS(add_scalar(d, x, 1, 1, other), FL_OK);
  CHECK_STATUS(add_scalar(d, x, 1, 1, other), FL_OK);
  fl_event event;
  CHECK_STATUS(chip->stream->event_create(0, 0, &event), FL_OK);
  CHECK_STATUS(chip->stream->event_record(event, other), FL_OK);
  CHECK_STATUS(chip->stream->destroy(other), FL_OK);
  CHECK_STATUS(chip->stream->event_synchronize(event, 5000 * kMs), FL_OK);
  CHECK_STATUS(chip->stream->event_destroy(event), FL_OK);
  CHECK_STATUS(faults->set(""), FL_OK);
  CHECK(x.values<float>(1)[0] == 3);
}

// After a fork the child has no workers: it is told so, and does not hang.
void forks() {
  Device d(chip, 0);
  Buffer a(d, 4);
  d.sync();
  std::fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    failures = 0;
    int32_t count;
    CHECK_STATUS(chip->device->count(&count), FL_OK);
    CHECK_STATUS(add_scalar(d, a, 1, 1), FL_FAILED);
    CHECK(last_error.find("fork") != std::string::npos);
    CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_FAILED);
    void* p;
    CHECK_STATUS(chip->memory->malloc(0, 10, &p), FL_FAILED);
    CHECK_STATUS(chip->device->open(0), FL_FAILED);
    fl_stream s;
    CHECK_STATUS(chip->stream->create(0, 0, &s), FL_FAILED);
    std::fflush(stdout);
    _exit(failures != 0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Last: the device does not come back.
void lost() {
  Device d(chip, 1), other(chip, 0);
  float zero = 0;
  Buffer x(d, &zero, 4), y(other, &zero, 4);
  d.sync();
  CHECK_STATUS(faults->set("lost=1:3"), FL_OK);
  fl_status status = FL_OK;
  for (int i = 0; i < 100 && status == FL_OK; ++i) {
    status = add_scalar(d, x, 1, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(status == FL_DEVICE_LOST);
  CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_DEVICE_LOST);
  fl_fault fault{};
  fault.size = sizeof fault;
  CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_OK);
  CHECK(fault.status == FL_DEVICE_LOST && fault.tag != 0);
  CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_NOT_READY);
  void* p;
  CHECK_STATUS(chip->memory->malloc(1, 10, &p), FL_DEVICE_LOST);
  CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_DEVICE_LOST);
  CHECK_STATUS(faults->set(""), FL_OK);
  CHECK_STATUS(add_scalar(other, y, 1, 1), FL_OK);
  CHECK(y.values<float>(1)[0] == 1);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("FL_SIM_DEVICES", "2", 1);
  setenv("FL_SIM_MEMORY", "256M", 1);
  unsetenv("FL_SIM_FAULTS");
  chip = load_chip(argc, argv);
  faults = static_cast<const sim_faults*>(chip->extension("sim.faults", 1));
  devices();
  memory();
  host_cannot_read();
  transfers();
  order();
  timing();
  ordered_faults();
  forks();
  lost();
  return report("sim_core_test");
}
