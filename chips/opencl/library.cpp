// Compiling, and the cache of compiled programs on disk.
//
// A file is named after the kernel's key, the driver and what all kernels begin with: whether there is one is
// known without the kernel's text. It holds the whole text that its binary was compiled from, so that a
// collision of names is seen, and a checksum, so that damage is. It is written under another name and
// renamed: a process killed in between leaves the old one, or none. What cannot be used is compiled again and
// replaced.
#include "library.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "kernel_sources.h"

namespace ocl {

namespace {

constexpr char kMagic[8] = {'f', 'l', 'o', 'c', 'l', '0', '0', '1'};
// A driver may compile for the file: PoCL makes each kernel once more, for any size of a group, which takes
// longer than all before. Files are written when nothing has been compiled for a while: kSettle times what
// all compilations and files took, so that a busy machine is no other and what runs meanwhile keeps most of
// it, within limits. By then kernels have run, and PoCL's binaries hold their machine code as well. A process
// that ends before writes for kAtExit: PoCL has a cache of its own.
constexpr int kSettle = 4;
constexpr auto kSettleLeast = std::chrono::milliseconds(1500), kSettleMost = std::chrono::milliseconds(60000),
               kAtExit = std::chrono::milliseconds(1000);
// One compiler at a time: what is compiled behind the scenes leaves it to callers that wait for theirs, but
// not for ever.
constexpr auto kYield = std::chrono::milliseconds(300), kPatience = std::chrono::milliseconds(10000);

struct Header {
  char magic[8];
  uint64_t key_bytes, binary_bytes, checksum;
};

// Fowler, Noll and Vo's hash FNV-1a, 64 bits: names files and finds damage; nothing depends on it being
// unique.
constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;
uint64_t fnv(const void* data, size_t n, uint64_t h = kFnvStart) {
  auto* p = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < n; ++i) h = (h ^ p[i]) * 0x100000001b3u;
  return h;
}

bool make_directories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    if (mkdir(path.substr(0, slash).c_str(), 0700) && errno != EEXIST) return false;
    if (slash == std::string::npos) return true;
  }
}

// FL_OPENCL_CACHE names the folder; set but empty, nothing is kept.
std::string cache_directory() {
  std::string path;
  if (const char* given = std::getenv("FL_OPENCL_CACHE")) path = given;
  else if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg)
    path = std::string(xdg) + "/torch-fl/opencl";
  else if (const char* home = std::getenv("HOME"); home && *home)
    path = std::string(home) + "/.cache/torch-fl/opencl";
  if (path.empty()) return path;
  if (!make_directories(path)) {
    log(FL_LOG_WARNING, "opencl: compiled kernels are not kept: %s: %s", path.c_str(), std::strerror(errno));
    return {};
  }
  return path;
}

template <class F>
void each_file(const std::string& directory, F&& f) {
  DIR* entries = directory.empty() ? nullptr : ::opendir(directory.c_str());
  if (!entries) return;
  while (const dirent* entry = ::readdir(entries)) f(std::string(entry->d_name));
  ::closedir(entries);
}

// What processes that were killed while writing left behind. Not what one may be writing now, here or
// elsewhere.
void remove_leftovers(const std::string& directory) {
  constexpr time_t kLongAgo = 3600;
  each_file(directory, [&](const std::string& name) {
    const std::string path = directory + "/" + name;
    struct stat about;
    if (name.find(".bin.") != std::string::npos && ::stat(path.c_str(), &about) == 0 &&
        about.st_mtime < std::time(nullptr) - kLongAgo)
      ::unlink(path.c_str());
  });
}

std::string build_log(cl_program program, cl_device_id id) {
  size_t n = 0;
  cl.clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &n);
  std::string text(n, '\0');
  if (n) cl.clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, n, text.data(), nullptr);
  if (text.size() > 2000) text.resize(2000);
  return text.c_str();
}

std::string read_file(const std::string& path) {
  std::string bytes;
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return bytes;
  char buffer[1 << 16];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      bytes.clear();
      break;
    }
    bytes.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return bytes;
}

}  // namespace

// Those with a thread.
static std::vector<Library*>& all_libraries = *new std::vector<Library*>;

void Library::end_all() {
  for (Library* l : all_libraries) l->at_exit();
}

// A thread that still compiles while the process ends would meet what the driver's compiler has torn down.
// exit() destroys the objects of its own thread before it runs any handler: that is the first that is heard
// of it. Where another thread than the first ends the process, end_all's registration as a handler has to do.
struct AtEnd {
  ~AtEnd() {
    if (getpid() == gettid()) Library::end_all();
  }
  void watch() {}
};
thread_local AtEnd at_end;

Library* make_library(Device& device) { return new Library(device); }

Library::Library(Device& d) : device_(d), directory_(cache_directory()) {
  at_end.watch();
  options_ = " -w";  // what a compiler has to say of the kernels is nothing for the user's terminal
  if (d.info.fp64) options_ += " -DFP64";
  if (d.info.processor) options_ += " -DPROCESSOR";
  if (d.info.exact_division) options_ += " -cl-fp32-correctly-rounded-divide-sqrt";
  seed_ = kFnvStart;
  for (const std::string_view part :
       {std::string_view(d.info.release), std::string_view(options_), std::string_view(kernel_source_ops),
        std::string_view(kernel_source_complex)})
    seed_ = fnv(part.data(), part.size(), seed_);
  each_file(directory_, [&](const std::string& name) {
    char* end;
    const uint64_t number = std::strtoull(name.c_str(), &end, 16);
    if (!std::strcmp(end, ".bin")) kept_.insert(number);
  });
}

uint64_t Library::file_of(Family family, uint64_t key) const {
  return fnv(&key, sizeof key, fnv(&family, sizeof family, seed_));
}

Kernel* Library::add(Family family, uint64_t key, Source source, bool now) {
  at_end.watch();
  Entry* e;
  {
    std::lock_guard<std::mutex> guard(adding_);
    e = find(family, key);
    if (!e) {
      auto& head = chains_[chain(family, key)];
      e = new Entry;
      e->key = key, e->family = family, e->source = std::move(source);
      e->next = head.load(std::memory_order_relaxed);
      head.store(e, std::memory_order_release);
    }
  }
  if (now) return use(*e);
  std::lock_guard<std::mutex> guard(mutex_);
  wanted_.push_back({e, Clock::now()});
  start_thread();
  wake_.notify_one();
  return nullptr;
}

Kernel* Library::use(Entry& e) {
  if (Kernel* k = e.kernel.load(std::memory_order_acquire)) return k;
  auto count = [this](int callers) {
    std::lock_guard<std::mutex> guard(mutex_);
    waiting_ += callers, waited_ = Clock::now();
  };
  count(1);
  build(e);
  count(-1);
  if (Kernel* k = e.kernel.load(std::memory_order_acquire)) return k;
  refuse(FL_FAILED, "%s", e.problem.c_str());
  return nullptr;
}

void Library::build(Entry& e) {
  std::call_once(e.built, [&] {
    const std::string options = options_ + e.source.options;
    std::string text = kernel_source_ops;
    if (e.source.text.find("_C64(") != std::string::npos || e.source.text.find("_C128(") != std::string::npos)
      text += kernel_source_complex;
    text += e.source.text;
    std::string key = std::string(device_.info.release) + "\n" + options + "\n" + text;
    std::string path;
    if (!directory_.empty()) {
      char name[40];
      std::snprintf(name, sizeof name, "/%016llx.bin",
                    static_cast<unsigned long long>(file_of(e.family, e.key)));
      path = directory_ + name;
    }
    cl_program program = path.empty() ? nullptr : load(path, key, options);
    bool fresh = !program;
    cl_int error = CL_SUCCESS;
    const auto start = Clock::now();
    if (fresh) {
      const char* strings[] = {text.c_str()};
      program = cl.clCreateProgramWithSource(device_.context, 1, strings, nullptr, &error);
      if (program) error = cl.clBuildProgram(program, 1, &device_.id, options.c_str(), nullptr, nullptr);
      if (error != CL_SUCCESS) {
        e.problem = "kernel " + e.source.kernel + " does not compile on " + device_.info.name + ": " +
                    error_name(error) + (program ? "\n" + build_log(program, device_.id) : "");
        log(FL_LOG_ERROR, "opencl: %s", e.problem.c_str());
        e.failed = true;
        return;
      }
    }
    auto* kernel = new Kernel;
    kernel->handle = cl.clCreateKernel(program, e.source.kernel.c_str(), &error);
    if (!kernel->handle) {
      e.problem = "kernel " + e.source.kernel + ": " + error_name(error);
      e.failed = true;
      delete kernel;
      return;
    }
    log(FL_LOG_DEBUG, "opencl: kernel %s%s: %s in %.0f ms", e.source.kernel.c_str(), e.source.options.c_str(),
        fresh ? "compiled" : "read", std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    e.kernel.store(kernel, std::memory_order_release);
    if (fresh && !path.empty()) {
      // Empty until its turn to be written comes. Another process may end before: it compiled the kernel, and
      // drivers have caches of their own, so that the next one need not wait until it is worth compiling.
      if (int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600); fd >= 0) ::close(fd);
      std::lock_guard<std::mutex> guard(mutex_);
      unsaved_.push_back({program, path, key});
      compiled_ = Clock::now();
      spent_ += compiled_ - start;
      start_thread();
      wake_.notify_one();
    }
    e.source = {};
    // Again after each compilation: what the driver's compiler registered meanwhile must run after this.
    std::atexit(end_all);
  });
}

cl_program Library::load(const std::string& path, const std::string& key, const std::string& options) {
  std::string bytes = read_file(path);
  Header h;
  if (bytes.size() < sizeof h) return nullptr;
  std::memcpy(&h, bytes.data(), sizeof h);
  const char* rest = bytes.data() + sizeof h;
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) || h.key_bytes != key.size() ||
      h.binary_bytes > bytes.size() || bytes.size() != sizeof h + h.key_bytes + h.binary_bytes ||
      std::memcmp(rest, key.data(), key.size()) || fnv(rest, bytes.size() - sizeof h) != h.checksum)
    return nullptr;
  auto* binary = reinterpret_cast<const unsigned char*>(rest + h.key_bytes);
  size_t n = h.binary_bytes;
  cl_int status, error;
  cl_program program =
      cl.clCreateProgramWithBinary(device_.context, 1, &device_.id, &n, &binary, &status, &error);
  if (!program) return nullptr;
  if (status == CL_SUCCESS &&
      cl.clBuildProgram(program, 1, &device_.id, options.c_str(), nullptr, nullptr) == CL_SUCCESS)
    return program;
  cl.clReleaseProgram(program);
  return nullptr;
}

void Library::save(const Unsaved& u) {
  size_t n = 0;
  if (cl.clGetProgramInfo(u.program, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, nullptr) != CL_SUCCESS || n == 0)
    return;
  std::string bytes(sizeof(Header) + u.key.size() + n, '\0');
  std::memcpy(bytes.data() + sizeof(Header), u.key.data(), u.key.size());
  char* binary = bytes.data() + sizeof(Header) + u.key.size();
  if (cl.clGetProgramInfo(u.program, CL_PROGRAM_BINARIES, sizeof binary, &binary, nullptr) != CL_SUCCESS)
    return;
  Header h{{}, u.key.size(), n, fnv(bytes.data() + sizeof(Header), bytes.size() - sizeof(Header))};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  std::memcpy(bytes.data(), &h, sizeof h);
  std::string part = u.path + "." + std::to_string(getpid());
  int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  bool whole = true;
  for (size_t done = 0; whole && done < bytes.size();) {
    ssize_t wrote = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) whole = false;
    else done += static_cast<size_t>(wrote);
  }
  whole = ::close(fd) == 0 && whole;
  if (!whole || std::rename(part.c_str(), u.path.c_str())) {
    log(FL_LOG_WARNING, "opencl: %s could not be written: %s", u.path.c_str(), std::strerror(errno));
    ::unlink(part.c_str());
  }
}

// With the lock held.
void Library::start_thread() {
  if (running_) return;
  running_ = true;
  process_ = getpid();
  thread_ = std::thread([this] { work(); });
  all_libraries.push_back(this);
}

void Library::work() {
  if (!directory_.empty()) remove_leftovers(directory_);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    const auto now = Clock::now();
    if (!wanted_.empty()) {
      const Wanted first = wanted_.front();
      const auto start = std::min((waiting_ ? now : waited_) + kYield, first.since + kPatience);
      if (now < start) {
        wake_.wait_until(lock, start);
        continue;
      }
      wanted_.pop_front();
      lock.unlock();
      build(*first.entry);
      lock.lock();
    } else if (unsaved_.empty()) {
      wake_.wait(lock);
    } else if (const auto settled =
                   compiled_ + std::clamp<Clock::duration>(kSettle * spent_, kSettleLeast, kSettleMost);
               now < settled) {
      wake_.wait_until(lock, settled);
    } else {
      save_next(lock);
    }
  }
}

void Library::save_next(std::unique_lock<std::mutex>& lock) {
  const Unsaved u = std::move(unsaved_.front());
  unsaved_.pop_front();
  lock.unlock();
  const auto start = Clock::now();
  save(u);
  lock.lock();
  spent_ += Clock::now() - start;
}

// What was still to be compiled is not.
void Library::at_exit() {
  if (process_ != getpid()) return;  // a fork has no such thread
  const auto end = Clock::now() + kAtExit;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    stop_ = true;
    wanted_.clear();
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!unsaved_.empty() && Clock::now() < end) save_next(lock);
  unsaved_.clear();
}

}  // namespace ocl
