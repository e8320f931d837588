#include "runner.h"

#include <poll.h>
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <regex>

#include "kit.h"

namespace kit {

namespace {

// ------------------------------------------------------- the child's side
// One line a message: kind, then fields separated by \x1f.

int out = -1;
bool in_case = false;
bool case_failed = false;
std::string case_message;
int messages = 0;

std::string one_line(std::string s) {
  for (char& c : s)
    if (c == '\n' || c == '\x1f') c = ' ';
  return s;
}

void send(const std::string& line) {
  std::string whole = line + "\n";
  size_t done = 0;
  while (done < whole.size()) {
    ssize_t n = write(out, whole.data() + done, whole.size() - done);
    if (n <= 0) _exit(3);
    done += static_cast<size_t>(n);
  }
}

void begin_case() {
  in_case = true;
  case_failed = false;
  case_message.clear();
  messages = 0;
}

void record(const std::string& message) {
  case_failed = true;
  if (++messages <= 3) case_message += (case_message.empty() ? "" : "; ") + message;
}

void guarded(const std::function<void()>& body) {
  try {
    body();
  } catch (const NotApplicable&) {
    throw;
  } catch (const std::exception& e) {
    record(e.what());
  }
}

bool sent_case = false;

void run_one(size_t index) {
  const Test& test = tests()[index];
  send("B\x1f" + std::to_string(index));
  sent_case = false;
  begin_case();
  in_case = false;
  try {
    guarded(test.run);
    if (case_failed || !sent_case) report_case("", !case_failed, case_message);
    send("E");
  } catch (const NotApplicable& e) {
    send("N\x1f" + one_line(e.what()));
  }
}

std::string why_it_died(int status) {
  if (WIFSIGNALED(status))
    return text("crashed with signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return text("the process ended with status %d", WEXITSTATUS(status));
}

// ------------------------------------------------------ the parent's side

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  int in = -1;
  std::string buffer;

  // The next line; false at the end of the pipe or, with *late set, past the limit.
  bool line(std::string& to, Clock::time_point limit, bool* late) {
    for (;;) {
      size_t end = buffer.find('\n');
      if (end != std::string::npos) {
        to = buffer.substr(0, end);
        buffer.erase(0, end + 1);
        return true;
      }
      auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
      pollfd p{in, POLLIN, 0};
      int ready = left > 0 ? poll(&p, 1, static_cast<int>(left)) : 0;
      if (ready == 0) return *late = true, false;
      char chunk[4096];
      ssize_t n = read(in, chunk, sizeof chunk);
      if (n <= 0) return false;
      buffer.append(chunk, static_cast<size_t>(n));
    }
  }

  int end() {
    int status = 0;
    close(in);
    waitpid(pid, &status, 0);
    return status;
  }
};

Child start(const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe: " + std::string(strerror(errno)));
  fflush(nullptr);
  Child child;
  child.pid = fork();
  if (child.pid < 0) throw std::runtime_error("fork: " + std::string(strerror(errno)));
  if (child.pid == 0) {
    close(ends[0]);
    out = ends[1];
    body();
    // Not exit(): the chip's own exit handlers are tested where they matter.
    _exit(0);
  }
  close(ends[1]);
  child.in = ends[0];
  return child;
}

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> parts(1);
  for (char c : line)
    if (c == '\x1f') parts.emplace_back();
    else parts.back() += c;
  return parts;
}

std::string group_of(const Test& test) {
  std::string tag = test.tag;
  return tag.substr(0, tag.find('-'));
}

// Runs the tests and fills their outcomes; starts another child behind one that dies.
void run_group(const std::string& path, const std::vector<size_t>& group, std::vector<Outcome>& outcomes,
               const std::function<void(const Outcome&)>& each) {
  size_t next = 0;
  while (next < group.size()) {
    Child child = start([&] {
      std::string why = load(path);
      if (!why.empty()) _exit(4);
      for (size_t i = next; i < group.size(); ++i) run_one(group[i]);
    });
    Outcome* running = nullptr;
    bool late = false;
    auto began = Clock::now();
    auto limit = began + std::chrono::seconds(tests()[group[next]].seconds);
    std::string line;
    while (child.line(line, limit, &late)) {
      std::vector<std::string> f = fields(line);
      if (f[0] == "B") {
        size_t index = std::stoul(f[1]);
        running = &outcomes[index];
        began = Clock::now();
        limit = began + std::chrono::seconds(tests()[index].seconds);
      } else if (f[0] == "C" && running) {
        running->cases.push_back({running->tag, f[2], f[1] == "1", f[3]});
        limit = Clock::now() + std::chrono::seconds(tests()[group[next]].seconds);  // the next case's
      } else if ((f[0] == "E" || f[0] == "N") && running) {
        if (f[0] == "N") running->not_applicable = f[1];
        running->seconds = std::chrono::duration<double>(Clock::now() - began).count();
        each(*running);
        running = nullptr;
        if (++next == group.size()) break;
        limit = Clock::now() + std::chrono::seconds(30);
      }
    }
    if (late) kill(child.pid, SIGKILL);
    int status = child.end();
    if (next == group.size()) return;
    if (!running) running = &outcomes[group[next]];
    std::string why =
        late ? text("no answer for %d s: hung", tests()[group[next]].seconds) : why_it_died(status);
    running->cases.push_back({running->tag, "", false, why});
    running->seconds = std::chrono::duration<double>(Clock::now() - began).count();
    each(*running);
    ++next;
  }
}

uint64_t the_seed = 1;

}  // namespace

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

uint64_t seed() { return the_seed; }
void set_seed(uint64_t value) { the_seed = value; }

std::string text(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

void fail(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  record(line);
}

void stop(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  throw Failure(line);
}

void not_applicable(const char* why) { throw NotApplicable(why); }

void report_case(const std::string& name, bool passed, const std::string& message) {
  sent_case = true;
  send(std::string("C\x1f") + (passed ? "1" : "0") + "\x1f" + one_line(name) + "\x1f" + one_line(message));
}

void run_case(const std::string& name, const std::function<void()>& body) {
  begin_case();
  guarded(body);
  report_case(name, !case_failed, case_message);
  begin_case();
  in_case = false;
}

std::string try_load(const std::string& path, std::string& description) {
  Child child = start([&] {
    std::string why = load(path);
    if (!why.empty()) send("X\x1f" + one_line(why));
    else send(std::string("D\x1f") + chip().table->name + " " + chip().table->release);
  });
  std::string line;
  bool late = false;
  bool heard = child.line(line, Clock::now() + std::chrono::seconds(30), &late);
  if (late) kill(child.pid, SIGKILL);
  int status = child.end();
  if (!heard) return late ? "loading it took more than 30 s" : "loading it " + why_it_died(status);
  std::vector<std::string> f = fields(line);
  if (f[0] == "D") description = f[1];
  return f[0] == "X" ? f[1] : "";
}

std::vector<Outcome> run_tests(const Options& options, const std::function<void(const Outcome&)>& each) {
  std::vector<Outcome> outcomes;
  std::vector<std::vector<size_t>> groups;
  std::regex only(options.only.empty() ? ".*" : options.only);
  std::string last;
  for (size_t i = 0; i < tests().size(); ++i) {
    const Test& test = tests()[i];
    outcomes.push_back({test.tag, test.sentence, {}, {}, 0});
    if (!std::regex_search(test.tag, only)) continue;
    if (groups.empty() || group_of(test) != last) groups.emplace_back();
    last = group_of(test);
    groups.back().push_back(i);
  }
  for (auto& group : groups) run_group(options.path, group, outcomes, each);
  std::erase_if(outcomes, [](const Outcome& o) { return o.cases.empty() && o.not_applicable.empty(); });
  return outcomes;
}

std::string run_bench(const Options& options) {
  Child child = start([&] {
    std::string why = load(options.path);
    if (!why.empty()) _exit(4);
    try {
      send(bench());
    } catch (const std::exception& e) {
      send(std::string("bench failed: ") + e.what());
    }
  });
  std::string all, line;
  bool late = false;
  while (child.line(line, Clock::now() + std::chrono::seconds(60), &late)) all += line + "\n";
  if (late) kill(child.pid, SIGKILL);
  int status = child.end();
  if (late || status != 0) all += late ? "bench: hung\n" : "bench: " + why_it_died(status) + "\n";
  return all;
}

}  // namespace kit
