#include "runtime/log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fl/chip.h"

namespace fl {

namespace {

constexpr off_t kLogBytes = 10 << 20;
constexpr int kBackups = 3;  // file.1 is the newest

// Closing the descriptor drops its lock.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool write_all(int fd, const std::string& line) {
  for (size_t done = 0; done < line.size();) {
    ssize_t n = write(fd, line.data() + done, line.size() - done);
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) done += static_cast<size_t>(n);
  }
  return true;
}

void rotate(const std::string& file) {
  for (int i = kBackups; i > 0; --i) {
    std::string from = i == 1 ? file : file + "." + std::to_string(i - 1);
    rename(from.c_str(), (file + "." + std::to_string(i)).c_str());  // a missing one is no fault
  }
}

// Opened for each line and locked through the descriptor: threads and
// processes may share the file, and none writes into one that was moved away.
bool write_file(const std::string& file, const std::string& line) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    File f(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (f.fd() < 0) return false;
    while (flock(f.fd(), LOCK_EX) != 0)
      if (errno != EINTR) return false;
    struct stat opened, named;
    if (fstat(f.fd(), &opened) != 0) return false;
    if (stat(file.c_str(), &named) != 0 || named.st_ino != opened.st_ino || named.st_dev != opened.st_dev)
      continue;
    if (S_ISREG(opened.st_mode) && opened.st_size > 0 &&
        opened.st_size + static_cast<off_t>(line.size()) > kLogBytes) {
      rotate(file);
      continue;
    }
    return write_all(f.fd(), line);
  }
  return false;
}

}  // namespace

void write_log(const std::string& file, int level, const std::string& text) noexcept {
  static constexpr const char* kLevels[] = {"ERROR", "WARNING", "INFO", "DEBUG"};
  try {
    std::string line = std::string("torch-fl ") +
                       kLevels[level < 0   ? 0
                               : level > 3 ? 3
                                           : level] +
                       ": " + text;
    for (char& c : line)
      if (c == '\n' || c == '\r') c = ' ';
    line += '\n';
    if (!file.empty() && write_file(file, line)) return;
    if (!file.empty())
      write_all(STDERR_FILENO,
                "torch-fl ERROR: cannot write to FL_LOG_FILE " + file + ": " + strerror(errno) + "\n");
    write_all(STDERR_FILENO, line);
  } catch (const std::exception& e) {
    // Only memory can run out here; the words themselves need none.
    fprintf(stderr, "torch-fl: a line of the log was lost: %s\n", e.what());
  }
}

}  // namespace fl
