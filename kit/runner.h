// Running tests in forked children and collecting what they say.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace kit {

struct Case {
  std::string tag, name;
  bool passed;
  std::string message;
};

struct Outcome {
  std::string tag, sentence;
  std::vector<Case> cases;
  std::string not_applicable;  // why, when there was nothing to test
  double seconds = 0;
};

struct Options {
  std::string path, report, only;
  bool list = false, bench = false, verbose = false;
};

// Empty when the chip loads (tried in a child), otherwise why not.
std::string try_load(const std::string& path, std::string& description);
// `each` hears of every test as it ends.
std::vector<Outcome> run_tests(const Options& options, const std::function<void(const Outcome&)>& each);

// Runs in a child and returns what it wrote (for --bench).
std::string run_bench(const Options& options);
std::string bench();  // bench.cpp

void write_report(const std::string& file, const std::string& description,
                  const std::vector<Outcome>& outcomes, const std::string& bench_text);

}  // namespace kit
