// Chips that are refused, each for its own reason, and the table of devices.
// The registry loads once in a process: each case has a process of its own.
#include "chip/registry.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "errors.h"
#include "runtime/config.h"

namespace {

std::string chip(const char* name) { return std::string(FL_TEST_CHIPS) + "/" + name + ".so"; }
const std::string kTemplate = std::string(FL_TEST_CHIPS) + "/libfl_template.so";

std::string reason_of(const std::string& path) {
  fl::Chip loaded;
  return fl::load_chip(path, loaded);
}

void refusals_have_reasons() {
  struct Case {
    std::string path;
    std::vector<const char*> parts;
  };
  std::string text_file = "/tmp/fl_not_a_library." + std::to_string(getpid());
  std::ofstream(text_file) << "this is no library\n";
  const Case cases[] = {
      {"/nowhere/chip.so", {"does not load", "cannot open shared object file"}},
      {text_file, {"does not load", "file too short"}},
      {chip("broken_missing_library"), {"does not load", "libvendor_driver.so"}},
      {chip("broken_no_symbol"), {"no chip library", "fl_chip_entry"}},
      {chip("broken_null_entry"), {"refuses", "the driver is version 3, this chip needs 5 or newer"}},
      {chip("broken_throws"), {"C++ exception", "no license server"}},
      {chip("broken_wrong_major"), {"version 2.3", "version 1.0", "newer torch-fl"}},
      {chip("broken_bad_name"), {"Bad-Name", "CHP-1"}},
      {chip("broken_no_method"), {"lacks", "memory.info", "stream.synchronize"}},
      {chip("broken_no_table"), {"lacks", "the table stream"}},
      {chip("broken_no_entry"), {"lacks", "op.gemm"}},
      {chip("broken_false_claims"), {"claims are false", "SOFTMAX"}},
      {chip("broken_few_claims"), {"does not claim", "REDUCE SUM for int64", "GEMM for float32"}},
  };
  for (const Case& c : cases) {
    std::string reason = reason_of(c.path);
    for (const char* part : c.parts)
      CHECK_THAT(contains(reason, part), "%s: \"%s\" is not in: %s", c.path.c_str(), part, reason.c_str());
  }
  unlink(text_file.c_str());
}

void older_and_newer_load() {
  fl::Chip older, newer;
  std::string reason = fl::load_chip(chip("broken_older"), older);
  CHECK_THAT(reason.empty(), "older: %s", reason.c_str());
  CHECK(older.extension == nullptr && older.memory.map == nullptr && older.op.softmax == nullptr);
  CHECK(older.op.random != nullptr && older.claims(FL_ENTRY_GEMM, FL_ANY, FL_F32));

  reason = fl::load_chip(chip("broken_newer"), newer);
  CHECK_THAT(reason.empty(), "newer: %s", reason.c_str());
  CHECK(newer.version == FL_ABI_VERSION + 7);
  CHECK(newer.claims(FL_ENTRY_POINTWISE, FL_OP_ADD, FL_F32));
  CHECK(newer.claims(FL_ENTRY_POINTWISE, FL_OP_ADD, 31));  // a dtype of later: kept, and harmless
  CHECK(!newer.claims(FL_ENTRY_SOFTMAX, FL_ANY, FL_F32));
  CHECK(!newer.claims(FL_ENTRY_GEMM, FL_ANY, FL_I64));
}

// ---------------------------------------------------------- one load a process

void set_paths(std::initializer_list<std::string> paths) {
  std::string joined;
  for (const std::string& path : paths) joined += (joined.empty() ? "" : ":") + path;
  setenv("FL_CHIP_PATH", joined.c_str(), 1);
}

std::string names() {
  std::string text;
  for (const fl::Device& d : fl::devices()) {
    CHECK(d.index == &d - fl::devices().data());
    text += (text.empty() ? "" : " ") + d.name;
  }
  return text;
}

// The reason why something at the path was refused.
std::string refused(const std::string& path) {
  std::string reasons;
  for (const fl::Refusal& r : fl::refusals())
    if (r.path == path) reasons += r.reason + "\n";
  return reasons;
}

void order_is_stable() {
  setenv("FL_SIM_DEVICES", "12", 1);
  set_paths({FL_TEST_SIM, kTemplate, chip("broken_older")});
  CHECK(!fl::loaded());
  std::string all = names();
  CHECK(fl::loaded());
  // Real before software, then by name, then by identity: 2 before 10.
  CHECK_THAT(
      all == "older:0 sim:0 sim:1 sim:2 sim:3 sim:4 sim:5 sim:6 sim:7 sim:8 sim:9 sim:10 sim:11 template:0",
      "%s", all.c_str());
  for (const fl::Device& d : fl::devices())
    if (d.chip->name == "sim")
      CHECK_THAT(d.name == "sim:" + std::to_string(d.local), "%s is %d", d.name.c_str(), d.local);
  CHECK(fl::find_device("sim") == 1 && fl::find_device("sim:3") == 4 && fl::find_device("template") == 13);
  CHECK(fl::find_device("cuda") == -1 && fl::find_device("") == -1);
  CHECK_ERROR(fl::find_device("sim:12"), FL_INVALID, "sim:12", "sim:11");
  CHECK_ERROR(fl::device(14), FL_INVALID, "no device 14", "there are 14", "older:0");
  CHECK_ERROR(fl::device(-1), FL_INVALID, "no device -1");
  CHECK(fl::device(0).serial != nullptr);  // as the template, it takes one launch at a time
  CHECK(fl::device(1).serial == nullptr);
  CHECK(!fl::is_open(1));
  fl::open_device(1);
  fl::open_device(1);
  CHECK(fl::is_open(1) && !fl::is_open(2) && !fl::is_open(-1) && !fl::is_open(1000));
}

void visible_devices_choose_and_order() {
  setenv("FL_SIM_DEVICES", "3", 1);
  setenv("FL_VISIBLE_DEVICES", "template, sim:2,sim:0", 1);
  set_paths({FL_TEST_SIM, kTemplate});
  std::string all = names();
  CHECK_THAT(all == "template:0 sim:2 sim:0", "%s", all.c_str());
  CHECK(fl::find_device("sim") == 1);
  CHECK_ERROR(fl::find_device("sim:1"), FL_INVALID, "sim:1", "among FL_VISIBLE_DEVICES", "sim:2");
  CHECK_ERROR(fl::set_setting("visible_devices", "sim:1"), FL_INVALID, "visible_devices",
              "before the first use");
}

void bad_visible_devices_are_refused_until_set_right() {
  setenv("FL_VISIBLE_DEVICES", "sim:1,gpu", 1);
  setenv("FL_SIM_DEVICES", "2", 1);
  set_paths({FL_TEST_SIM});
  for (int i = 0; i < 2; ++i) CHECK_ERROR(fl::devices(), FL_INVALID, "\"gpu\"", "sim:0, sim:1");
  CHECK(!fl::loaded());
  CHECK(fl::chips().size() == 1);  // the chip is there, whatever is visible
  fl::set_setting("visible_devices", "sim,sim:1");
  CHECK_ERROR(fl::devices(), FL_INVALID, "sim:1 twice");
  fl::set_setting("visible_devices", "sim:1");
  CHECK(names() == "sim:1");
}

void broken_chips_cost_only_themselves() {
  set_paths({chip("broken_throws"), chip("broken_no_devices"), chip("broken_bad_devices"), kTemplate,
             chip("broken_twin"), "", "/nowhere.so", kTemplate});
  std::string all = names();
  CHECK_THAT(all == "bad_devices:0 bad_devices:1 template:0", "%s", all.c_str());
  CHECK(fl::device(0).local == 2 && fl::device(1).local == 0);  // board-2 before board-12
  CHECK(contains(refused(chip("broken_no_devices")), "has no devices"));
  CHECK(contains(refused(chip("broken_throws")), "exception"));
  CHECK(contains(refused("/nowhere.so"), "cannot open"));
  std::string twin = refused(chip("broken_twin"));
  CHECK_THAT(contains(twin, "\"template\"") && contains(twin, kTemplate), "%s", twin.c_str());
  CHECK(refused(kTemplate).empty());  // twice the same file is one chip
  std::string boards = refused(chip("broken_bad_devices"));
  CHECK_THAT(contains(boards, "device 1 is not used: its alignment is 3"), "%s", boards.c_str());
  CHECK_THAT(contains(boards, "device 3 is not used: device.properties failed: the board does not answer"),
             "%s", boards.c_str());
  CHECK_THAT(contains(boards, "device 4 is not used: it has the identity of device 0"), "%s", boards.c_str());
}

void an_exception_costs_its_chip_or_device() {
  set_paths({chip("broken_throws_in_count"), chip("broken_throws_in_properties"), kTemplate});
  std::string all = names();
  CHECK_THAT(all == "template:0 throws_in_properties:0", "%s", all.c_str());
  std::string count = refused(chip("broken_throws_in_count"));
  CHECK_THAT(contains(count, "device.count failed") && contains(count, "the driver's socket is gone"), "%s",
             count.c_str());
  std::string boards = refused(chip("broken_throws_in_properties"));
  CHECK_THAT(contains(boards,
                      "device 1 is not used: device.properties failed: it threw a C++ exception: "
                      "board 1 has no power; the ABI is C"),
             "%s", boards.c_str());
  CHECK_THAT(contains(boards, "device 2 is not used: device.properties failed: it threw a C++ exception; "),
             "%s", boards.c_str());
  CHECK(!contains(boards, "device 0"));
  for (int i = 0; i < 2; ++i)
    CHECK_ERROR(fl::open_device(1), FL_FAILED, "cannot start throws_in_properties:0", "no firmware");
  CHECK(!fl::is_open(1));
  fl::open_device(0);
}

void no_chip_is_no_device() {
  unsetenv("FL_CHIP_PATH");
  CHECK(fl::devices().empty() && fl::chips().empty());
  CHECK_ERROR(fl::device(0), FL_INVALID, "no chip was found", "doctor");
}

void finder_adds_chips() {
  set_paths({FL_TEST_SIM});
  fl::set_chip_finder([] { return std::vector<std::string>{kTemplate, FL_TEST_SIM}; });
  CHECK(names() == "sim:0 template:0");
}

void a_failing_finder_is_reported() {
  set_paths({FL_TEST_SIM});
  fl::set_chip_finder(
      []() -> std::vector<std::string> { throw std::runtime_error("entry point fell over"); });
  CHECK(names() == "sim:0");
  REQUIRE(fl::refusals().size() == 1);
  CHECK(contains(fl::refusals()[0].reason, "entry point fell over"));
}

// The finder takes Python's lock, which other callers of devices() hold.
void loading_does_not_deadlock_with_the_finder() {
  alarm(60);
  static std::recursive_mutex gil;
  static std::atomic<int> inside{0};
  set_paths({FL_TEST_SIM});
  fl::set_chip_finder([] {
    ++inside;
    std::lock_guard<std::recursive_mutex> lock(gil);
    return std::vector<std::string>{kTemplate};
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([i] {
      std::unique_lock<std::recursive_mutex> lock(gil, std::defer_lock);
      if (i % 2) {
        lock.lock();
        while (inside == 0) std::this_thread::yield();  // another one is in the finder, waiting for the lock
      }
      if (fl::devices().size() != 2) abort();
    });
  for (std::thread& t : threads) t.join();
  CHECK(names() == "sim:0 template:0");
}

void a_forked_child_opens_nothing() {
  set_paths({FL_TEST_SIM});
  pid_t early = fork();  // before a device is open: a child of its own right
  if (early == 0) {
    fl::open_device(0);
    _exit(fl::forked() ? 1 : 0);
  }
  int status = -1;
  waitpid(early, &status, 0);
  CHECK(status == 0);
  fl::open_device(0);
  CHECK(!fl::forked());
  pid_t child = fork();
  if (child == 0) {
    auto error = error_of([] { fl::open_device(0); });
    _exit(fl::forked() && error && contains(error->what(), "spawn") ? 0 : 1);
  }
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

void in_a_process(void (*test)(), const char* name) {
  fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    check::checks = check::failures = 0;
    test();
    exit(check::result());
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_THAT(status == 0, "%s: %s %d", name, WIFSIGNALED(status) ? "killed by signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}
#define IN_A_PROCESS(test) in_a_process(test, #test)

}  // namespace

int main() {
  setenv("FL_LOG", "error", 1);  // refusals are warnings, and expected here
  IN_A_PROCESS(refusals_have_reasons);
  IN_A_PROCESS(older_and_newer_load);
  IN_A_PROCESS(order_is_stable);
  IN_A_PROCESS(visible_devices_choose_and_order);
  IN_A_PROCESS(bad_visible_devices_are_refused_until_set_right);
  IN_A_PROCESS(broken_chips_cost_only_themselves);
  IN_A_PROCESS(an_exception_costs_its_chip_or_device);
  IN_A_PROCESS(no_chip_is_no_device);
  IN_A_PROCESS(finder_adds_chips);
  IN_A_PROCESS(a_failing_finder_is_reported);
  IN_A_PROCESS(loading_does_not_deadlock_with_the_finder);
  IN_A_PROCESS(a_forked_child_opens_nothing);
  return check::result();
}
