// Settings from the environment and from code; the log and its files.
#include "runtime/config.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "errors.h"
#include "fl/chip.h"
#include "runtime/config_file.h"

namespace {

const std::string kFolder = "/tmp/fl_config_test." + std::to_string(getpid());

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int64_t size_of(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 ? static_cast<int64_t>(s.st_size) : -1;
}

void the_environment_is_read() {
  CHECK(fl::setting("fault_lines") == "1" && fl::fault_lines());  // FL_FAULT_LINES=TRUE
  CHECK(fl::setting("sync_timeout") == "2.5" && fl::sync_timeout_seconds() == 2.5);
  CHECK(fl::setting("cuda_view") == "auto" && fl::setting("memory_fraction") == "1");
  CHECK(fl::max_split_bytes() == SIZE_MAX);
}

void a_bad_environment_is_reported_once_and_refused() {
  CHECK(fl::fallback_policy() == fl::Fallback::kWarn);  // the default
  CHECK_ERROR(fl::setting("fallback"), FL_INVALID, "FL_FALLBACK", "\"never\"", "warn, error, quiet");
  std::string log = read(kFolder + "/log");
  CHECK_THAT(contains(log, "torch-fl ERROR: FL_FALLBACK is \"never\""), "%s", log.c_str());
  CHECK(log.find("FL_FALLBACK") == log.rfind("FL_FALLBACK is"));
  fl::set_setting("fallback", "ERROR");
  CHECK(fl::setting("fallback") == "error" && fl::fallback_policy() == fl::Fallback::kError);
}

void bad_values_are_refused_by_name() {
  CHECK_ERROR(fl::setting("colour"), FL_INVALID, "\"colour\"", "fallback", "sync_timeout");
  CHECK_ERROR(fl::set_setting("colour", "1"), FL_INVALID, "\"colour\"");
  CHECK_ERROR(fl::set_setting("log", "loud"), FL_INVALID, "setting log", "\"loud\"",
              "error, warning, info, debug");
  CHECK_ERROR(fl::set_setting("fault_lines", "maybe"), FL_INVALID, "fault_lines", "true, false");
  CHECK_ERROR(fl::set_setting("sync_timeout", "-1"), FL_INVALID, "sync_timeout", "not negative");
  CHECK_ERROR(fl::set_setting("sync_timeout", "nan"), FL_INVALID, "sync_timeout");
  CHECK_ERROR(fl::set_setting("sync_timeout", "1s"), FL_INVALID, "sync_timeout");
  CHECK_ERROR(fl::set_setting("memory_fraction", "1.5"), FL_INVALID, "memory_fraction", "from 0 to 1");
  CHECK_ERROR(fl::set_setting("max_split_size_mb", "0.5"), FL_INVALID, "max_split_size_mb", "whole");
  CHECK(fl::setting("sync_timeout") == "2.5");  // what is refused changes nothing
}

void hot_settings_follow() {
  fl::set_setting("fault_lines", "off");
  CHECK(!fl::fault_lines() && fl::setting("fault_lines") == "0");
  fl::set_setting("max_split_size_mb", "64");
  CHECK(fl::max_split_bytes() == size_t{64} << 20);
  fl::set_setting("max_split_size_mb", "0");
  CHECK(fl::max_split_bytes() == SIZE_MAX);
  fl::set_setting("garbage_collection_threshold", "0.75");
  CHECK(fl::garbage_collection_threshold() == 0.75);
}

void a_file_is_read() {
  CHECK(fl::setting("garbage_collection_threshold") == "0.5" && fl::garbage_collection_threshold() == 0.5);
  CHECK(fl::setting("fallback_deny") == "aten::sort # 1");
  CHECK(fl::setting("sync_timeout") == "2.5");  // the environment's
  const std::string where = kFolder + "/settings:4: max_split_size_mb";
  CHECK_ERROR(fl::setting("max_split_size_mb"), FL_INVALID, where.c_str(), "\"-1\"");
}

void files_are_refused_by_line() {
  const std::string path = kFolder + "/refused";
  auto refused = [&](const char* text, const char* words) {
    std::ofstream(path) << text;
    CHECK_ERROR(fl::read_config_file(path), FL_INVALID, words);
  };
  refused("a = 1\nb\n", "refused:2: \"b\" is not of the form");
  refused(" = 1\n", "refused:1: ");
  refused("a = \"1\n", "refused:1: a string has no end");
  refused("a = 1\"\n", "refused:1: a = 1\": a value is");
  refused("a = \"1\" 2\n", "refused:1: \"2\" follows the value");
  refused("a =\n", "refused:1: a has no value");
  refused("a = b c\n", "refused:1: a = b c: a value is a string in quotes");
  refused("a = 1\n\n\na = 2\n", "refused:4: a is set in line 1 already");
  refused("a.b = 1\n", "has a dotted name");
  refused("\"a\" = 1\n", "written without quotes");
  refused("[a]\n", "is a table");
  refused("a = {b = 1}\n", "a value is");
  refused("a = \"\"\"x\"\"\"\n", "several lines");
  refused("a = '''x'''\n", "several lines");
  refused("a = \"\\q\"\n", "the escape \\q");
  refused("a = \"\\ud800\"\n", "the escape \\u");
  refused("a = \"\\u12\"\n", "the escape \\u");
  refused("a = \"\x01\"\n", "control character");
  refused("a = [\"1\" \"2\"]\n", "separated by ','");
  refused("a = [1]\n", "strings, in quotes, only");
  refused("a = [\"1\",\n\n", "refused:3: an array has no ']'");
  for (const char* number :
       {"01", "1_", "_1", "1__0", "0x10", "1.", ".5", "1e", "inf", "nan", "1979-05-27", "+-1"})
    refused(("a = " + std::string(number) + "\n").c_str(), "a value is");
  CHECK_ERROR(fl::read_config_file(kFolder), FL_INVALID, kFolder.c_str(), "cannot be read: Is a directory");
  CHECK_ERROR(fl::read_config_file(kFolder + "/none"), FL_INVALID, "No such file");
  std::ofstream(path, std::ios::trunc).close();
  CHECK(fl::read_config_file(path).empty());
}

void values_of_a_file_have_types() {
  const std::string path = kFolder + "/refused";
  std::ofstream(path) << "# all\r\n\r\na=''\r\nb = 'c\\d' # e\r\nc = \"\\u00e9\\\"\\t\"\nd = -1_000\n"
                      << "e = +1.5E-3\nf = false\ng = [\n  \"x\", # one\n 'y' ,\n]\nh-1 = []";
  const auto found = fl::read_config_file(path);
  const auto is = [&](size_t i, fl::Toml type, const char* value, int line) {
    CHECK_THAT(found[i].type == type && found[i].value == value && found[i].line == line,
               "%s = %s in line %d", found[i].name.c_str(), found[i].value.c_str(), found[i].line);
  };
  if (!CHECK(found.size() == 8)) return;
  is(0, fl::Toml::kString, "", 3);
  is(1, fl::Toml::kString, "c\\d", 4);
  is(2, fl::Toml::kString, "\u00e9\"\t", 5);
  is(3, fl::Toml::kInteger, "-1000", 6);
  is(4, fl::Toml::kFloat, "1.5e-3", 7);
  is(5, fl::Toml::kBoolean, "0", 8);
  is(6, fl::Toml::kStrings, "", 9);
  is(7, fl::Toml::kStrings, "", 13);
  CHECK(found[6].items == std::vector<std::string>({"x", "y"}) && found[7].items.empty());
  CHECK(found[7].name == "h-1");
}

void the_table_is_whole() {
  for (const fl::Setting& s : fl::settings()) {
    CHECK_THAT(std::string(s.environment).rfind("FL_", 0) == 0, "%s", s.name);
    std::string before = error_of([&] { fl::setting(s.name); }) ? "" : fl::setting(s.name);
    CHECK_THAT(!error_of([&] { fl::set_setting(s.name, s.fallback_value); }), "the default of %s is refused",
               s.name);
    CHECK(fl::setting(s.name) == s.fallback_value);
    fl::set_setting(s.name, before);
  }
}

void levels_are_kept() {
  std::string file = kFolder + "/levels";
  fl::set_setting("log_file", file);
  fl::set_setting("log", "warning");
  fl::log(FL_LOG_INFO, "not this");
  fl::log(FL_LOG_WARNING, "two\nlines");
  fl::set_setting("log", "DEBUG");
  fl::log(FL_LOG_DEBUG, "but this");
  fl::set_setting("log", "error");
  fl::log(FL_LOG_WARNING, "nor this");
  std::string log = read(file);
  CHECK_THAT(log == "torch-fl WARNING: two lines\ntorch-fl DEBUG: but this\n", "%s", log.c_str());
}

// Threads and a child share the file; no line is lost or torn, whenever it turns.
void files_turn_at_10_mb() {
  std::string file = kFolder + "/turning", line(999, 'x');
  fl::set_setting("log_file", file);
  constexpr int kThreads = 4, kLines = 14000;
  auto write = [&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads / 2; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < kLines / kThreads; ++i) fl::log(FL_LOG_ERROR, line);
      });
    for (std::thread& t : threads) t.join();
  };
  pid_t child = fork();
  if (child == 0) {
    write();
    _exit(0);
  }
  write();
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  int64_t lines = 0, each = static_cast<int64_t>(line.size() + std::string("torch-fl ERROR: \n").size());
  for (const char* suffix : {"", ".1", ".2", ".3"}) {
    int64_t bytes = size_of(file + suffix);
    CHECK_THAT(bytes <= 10 << 20 && (bytes < 0 || bytes % each == 0), "%s: %lld bytes", suffix,
               static_cast<long long>(bytes));
    lines += bytes > 0 ? bytes / each : 0;
  }
  CHECK_THAT(lines == kLines, "%lld lines", static_cast<long long>(lines));
  CHECK(size_of(file + ".1") > 10 * 1000 * 1000 && size_of(file + ".2") == -1);

  for (int i = 0; i < 40000; ++i) fl::log(FL_LOG_ERROR, line);
  CHECK(size_of(file + ".3") > 0 && size_of(file + ".4") == -1);
}

void a_forked_child_can_log_and_read_settings() {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) fl::set_setting("fallback_allow", "aten::sort");
  });
  for (int i = 0; i < 50; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a lock held at the fork would hang it
      fl::log(FL_LOG_DEBUG, "child");
      _exit(fl::setting("log").empty() ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (!CHECK(status == 0)) break;
  }
  stop = true;
  busy.join();
}

}  // namespace

int main() {
  mkdir(kFolder.c_str(), 0700);
  setenv("FL_FALLBACK", "never", 1);
  setenv("FL_FAULT_LINES", "TRUE", 1);
  setenv("FL_SYNC_TIMEOUT", "2.5", 1);
  setenv("FL_LOG_FILE", (kFolder + "/log").c_str(), 1);
  setenv("FL_CONFIG", (kFolder + "/settings").c_str(), 1);
  std::ofstream(kFolder + "/settings") << "garbage_collection_threshold = 0.5\nsync_timeout = 3\n"
                                       << "fallback_deny = \"aten::sort # 1\"\nmax_split_size_mb = -1\n";
  the_environment_is_read();
  a_file_is_read();
  files_are_refused_by_line();
  values_of_a_file_have_types();
  a_bad_environment_is_reported_once_and_refused();
  bad_values_are_refused_by_name();
  hot_settings_follow();
  the_table_is_whole();
  levels_are_kept();
  files_turn_at_10_mb();
  a_forked_child_can_log_and_read_settings();
  int result = check::result();
  for (const char* name :
       {"log", "settings", "refused", "levels", "turning", "turning.1", "turning.2", "turning.3"})
    unlink((kFolder + "/" + name).c_str());
  rmdir(kFolder.c_str());
  return result;
}
