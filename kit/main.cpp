// fl-kit CHIP.so: conformance of a chip with include/fl, requirement by
// requirement.  Exit status: 0 all passed, 1 failures, 2 not loaded or wrong use.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>

#include "kit.h"
#include "runner.h"

namespace kit {
void set_seed(uint64_t value);
int fork_check();  // check_chip.cpp
void print_devices();
}  // namespace kit

namespace {

int usage(const char* problem) {
  fprintf(stderr,
          "fl-kit: %s\n"
          "usage: fl-kit CHIP.so [--only TAG-REGEX] [--report FILE.md|FILE.json] [--bench] [--seed N] "
          "[--verbose]\n"
          "       fl-kit --list [--only TAG-REGEX]\n"
          "       fl-kit --devices CHIP.so\n",
          problem);
  return 2;
}

void list(const std::string& only) {
  std::regex pattern(only.empty() ? ".*" : only);
  for (const kit::Test& test : kit::tests())
    if (std::regex_search(test.tag, pattern)) printf("%-14s %s\n", test.tag, test.sentence);
}

}  // namespace

int main(int argc, char** argv) {
  kit::Options options;
  // Both open the chip in this process: what they start is the whole process.
  if (argc == 3 && (!strcmp(argv[1], "--devices") || !strcmp(argv[1], "--fork-check"))) {
    std::string why = kit::load(argv[2]);
    if (!why.empty()) return fprintf(stderr, "fl-kit: %s: %s\n", argv[2], why.c_str()), 2;
    if (!strcmp(argv[1], "--fork-check")) return kit::fork_check();
    kit::print_devices();
    return 0;
  }
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    bool takes_value = word == "--report" || word == "--only" || word == "--seed";
    if (takes_value && i + 1 == argc) return usage((word + " needs a value").c_str());
    if (word == "--report") options.report = argv[++i];
    else if (word == "--only") options.only = argv[++i];
    else if (word == "--seed") kit::set_seed(strtoull(argv[++i], nullptr, 0));
    else if (word == "--list") options.list = true;
    else if (word == "--bench") options.bench = true;
    else if (word == "--verbose") options.verbose = true;
    else if (word[0] == '-') return usage(("unknown option " + word).c_str());
    else if (options.path.empty()) options.path = word;
    else return usage("one chip at a time");
  }
  // Registration order depends on the linker; the header's order of areas does not.
  static const char* const kAreas[] = {"CHP", "DEV", "MEM", "STR", "EVT", "OPS", "PGM", "CPY", "FIL", "PTW",
                                       "RED", "GEM", "GAT", "SCA", "RND", "SMX", "NRM", "ATT", "SCN", "SRT"};
  auto area = [](const kit::Test& t) {
    for (size_t i = 0; i < std::size(kAreas); ++i)
      if (strncmp(t.tag, kAreas[i], 3) == 0) return i;
    return std::size(kAreas);
  };
  std::stable_sort(kit::tests().begin(), kit::tests().end(), [&](const kit::Test& a, const kit::Test& b) {
    if (area(a) != area(b)) return area(a) < area(b);
    int order = strcmp(a.tag, b.tag);
    return order < 0;
  });
  try {
    if (options.list) return list(options.only), 0;
    if (options.path.empty()) return usage("which chip?");
    std::string description, why = kit::try_load(options.path, description);
    if (!why.empty()) {
      fprintf(stderr, "fl-kit: %s: %s\n", options.path.c_str(), why.c_str());
      return 2;
    }
    printf("%s (%s)\n", description.c_str(), options.path.c_str());
    int passed = 0, failed = 0;
    auto print = [&](const kit::Outcome& o) {
      int bad = 0, shown = 0;
      for (const kit::Case& c : o.cases) bad += !c.passed;
      failed += bad;
      passed += static_cast<int>(o.cases.size()) - bad;
      if (!o.not_applicable.empty())
        printf("  --   [%s] %s: %s\n", o.tag.c_str(), o.sentence.c_str(), o.not_applicable.c_str());
      else if (!bad)
        printf("  ok   [%s] %s (%zu, %.2f s)\n", o.tag.c_str(), o.sentence.c_str(), o.cases.size(),
               o.seconds);
      else printf("  FAIL [%s] %s (%d of %zu)\n", o.tag.c_str(), o.sentence.c_str(), bad, o.cases.size());
      for (const kit::Case& c : o.cases)
        if (!c.passed && (options.verbose || ++shown <= 5))
          printf("         %s%s%s\n", c.name.c_str(), c.name.empty() ? "" : ": ", c.message.c_str());
      fflush(stdout);
    };
    std::vector<kit::Outcome> outcomes = kit::run_tests(options, print);
    std::string bench_text = options.bench ? kit::run_bench(options) : "";
    if (options.bench) printf("\n%s", bench_text.c_str());
    if (!options.report.empty()) kit::write_report(options.report, description, outcomes, bench_text);
    printf("%d passed, %d failed\n", passed, failed);
    return passed + failed == 0 ? usage("no test has such a tag") : failed ? 1 : 0;
  } catch (const std::exception& e) {
    return usage(e.what());
  }
}
