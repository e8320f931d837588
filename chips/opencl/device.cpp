// The devices: told by a process of their own, opened here when they are used.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "library.h"
#include "program.h"
#include "opencl.h"

extern char** environ;

namespace ocl {

namespace {

constexpr int kQueryMilliseconds = 60'000;  // a driver's first start may compile its own library

// Next to this library, wherever that is installed.
std::string query_program() {
  Dl_info self{};
  if (!dladdr(reinterpret_cast<void*>(&query_program), &self) || !self.dli_fname) return "fl-opencl-query";
  std::string path = self.dli_fname;
  size_t slash = path.rfind('/');
  return (slash == std::string::npos ? std::string("./") : path.substr(0, slash + 1)) + "fl-opencl-query";
}

// What the program writes to both of its outputs, in order of arrival; false when it takes too long.
bool read_all(int out, int err, std::string* bytes, std::string* text) {
  auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kQueryMilliseconds);
  pollfd fds[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  std::string* to[2] = {bytes, text};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    int ready = left > 0 ? poll(fds, 2, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || !fds[i].revents) continue;
      char buffer[4096];
      ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
      if (n > 0) to[i]->append(buffer, static_cast<size_t>(n));
      else if (n == 0 || errno != EINTR) fds[i].fd = -1;
    }
  }
  return true;
}

std::vector<DeviceInfo> ask(std::string* problem) {
  std::string program = query_program();
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC))
    return *problem = "no pipe to ask for the devices through", std::vector<DeviceInfo>();
  if (pipe2(err, O_CLOEXEC)) {
    close(out[0]), close(out[1]);
    return *problem = "no pipe to ask for the devices through", std::vector<DeviceInfo>();
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  char* arguments[] = {program.data(), nullptr};
  pid_t child = 0;
  int error = posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]), close(err[1]);
  std::string bytes, text;
  bool in_time = error == 0 && read_all(out[0], err[0], &bytes, &text);
  close(out[0]), close(err[0]);
  if (error)
    return *problem = program + " does not start: " + std::strerror(error), std::vector<DeviceInfo>();
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::vector<DeviceInfo> found(bytes.size() / sizeof(DeviceInfo));
  if (!in_time) *problem = "the OpenCL drivers did not answer within a minute";
  else if (WIFSIGNALED(status))
    *problem = std::string("an OpenCL driver crashed when it was asked for its devices (") +
               strsignal(WTERMSIG(status)) + ")";
  else if (WEXITSTATUS(status)) *problem = text.empty() ? program + " failed" : text;
  else if (bytes.size() % sizeof(DeviceInfo))
    *problem = program + " is of another version than the chip library";
  else std::memcpy(found.data(), bytes.data(), bytes.size());
  return problem->empty() ? found : std::vector<DeviceInfo>();
}

// FL_OPENCL_STYLE has kernels written for the other kind of device, so that one machine can test both.
bool choose_style(DeviceInfo& info, std::string* problem) {
  const char* style = std::getenv("FL_OPENCL_STYLE");
  if (!style || !*style) return true;
  info.processor = std::strcmp(style, "processor") == 0;
  if (info.processor || std::strcmp(style, "gpu") == 0) return true;
  return *problem = std::string("FL_OPENCL_STYLE=") + style + ": wanted is gpu or processor", false;
}

struct Known {
  std::vector<Device*> devices;
  std::string problem;
};
const Known& known() {
  static const Known& k = *[] {
    auto* made = new Known;
    for (const DeviceInfo& info : ask(&made->problem)) {
      auto* d = new Device;
      d->index = static_cast<int32_t>(made->devices.size());
      d->info = info;
      if (!choose_style(d->info, &made->problem)) {
        delete d;
        break;
      }
      made->devices.push_back(d);
    }
    return made;
  }();
  return k;
}

std::mutex opening;

bool start(Device& d) {
  std::string why;
  if (!load_api(&why)) return refuse(FL_FAILED, "%s", why.c_str()), false;
  // The same drivers list the same devices; equal identities (drivers without any) in the same order.
  int32_t before = 0;
  for (Device* other : known().devices) {
    if (other == &d) break;
    before += std::strcmp(other->info.identity, d.info.identity) == 0;
  }
  const FoundDevice* match = nullptr;
  const std::vector<FoundDevice> all = find_devices();
  for (const FoundDevice& f : all)
    if (std::strcmp(f.info.identity, d.info.identity) == 0 && before-- == 0) match = &f;
  if (!match) return refuse(FL_FAILED, "%s (%s) is gone", d.info.name, d.info.identity), false;
  d.id = match->id;
  cl_int error;
  intptr_t properties[] = {0x1084 /* CL_CONTEXT_PLATFORM */, reinterpret_cast<intptr_t>(match->platform), 0};
  d.context = cl.clCreateContext(properties, 1, &d.id, nullptr, nullptr, &error);
  if (!d.context) return failed(error, "clCreateContext"), false;
  d.service = cl.clCreateCommandQueue(d.context, d.id, 0, &error);
  if (!d.service) return failed(error, "clCreateCommandQueue"), false;
  uint64_t total = d.info.memory;
  if (const char* limit = std::getenv("FL_OPENCL_MEMORY")) {
    char* end;
    unsigned long long bytes = std::strtoull(limit, &end, 10);
    if (*end || end == limit || bytes == 0)
      return refuse(FL_INVALID, "FL_OPENCL_MEMORY=%s: wanted is a number of bytes, at least 1", limit), false;
    if (bytes < total) total = bytes;
  }
  if (!d.memory.reserve(total, d.info.max_alloc))
    return refuse(
               FL_OUT_OF_MEMORY,
               "no room for twice its memory in addresses (is there a limit on address space, ulimit -v?)"),
           false;
  d.library = make_library(d);
  return true;
}

fl_status count(int32_t* out) {
  const Known& k = known();
  if (!k.problem.empty()) return refuse(FL_FAILED, "%s", k.problem.c_str());
  *out = static_cast<int32_t>(k.devices.size());
  return FL_OK;
}

fl_status properties(int32_t index, fl_device_properties* out) {
  const Known& k = known();
  if (index < 0 || index >= std::ssize(k.devices)) return refuse(FL_INVALID, "there is no device %d", index);
  const DeviceInfo& info = k.devices[index]->info;
  fl_device_properties p{};
  p.size = out->size < sizeof p ? out->size : static_cast<uint32_t>(sizeof p);
  p.flags = info.processor ? FL_DEVICE_SOFTWARE : 0;
  std::snprintf(p.name, sizeof p.name, "%s", info.name);
  std::snprintf(p.identity, sizeof p.identity, "%s", info.identity);
  p.total_memory = info.memory;
  p.max_alloc = info.max_alloc;
  p.alignment = info.alignment;
  p.compute_units = info.units;
  p.major = info.major, p.minor = info.minor;
  p.storage = kStorage;
  p.arithmetic = FL_BIT(FL_BOOL) | FL_BIT(FL_I32) | FL_BIT(FL_I64) | FL_BIT(FL_F32) | FL_BIT(FL_C64);
  if (info.fp64) p.arithmetic |= FL_BIT(FL_F64) | FL_BIT(FL_C128);
  std::memcpy(out, &p, p.size);
  return FL_OK;
}

fl_status open(int32_t index) { return open_device(index) ? FL_OK : FL_INVALID; }

}  // namespace

Device& device_at(int32_t index) { return *known().devices[index]; }

Device* open_device(int32_t index) {
  const Known& k = known();
  if (index < 0 || index >= std::ssize(k.devices))
    return refuse(FL_INVALID, "there is no device %d", index), nullptr;
  Device* d = k.devices[index];
  if (d->opened.load(std::memory_order_acquire)) return d;
  std::lock_guard<std::mutex> guard(opening);
  if (!d->opened.load(std::memory_order_relaxed)) {
    if (!start(*d)) return nullptr;
    d->opened.store(true, std::memory_order_release);
  }
  return d;
}

extern const fl_device_api device_api;
const fl_device_api device_api = {sizeof device_api, 0, count, properties, open};

}  // namespace ocl
