// --report: markdown or JSON, by the file's ending.
#include <cstdio>
#include <stdexcept>

#include "runner.h"

namespace kit {

namespace {

std::string quoted(const std::string& s) {
  std::string r = "\"";
  for (unsigned char c : s) {
    char escaped[8];
    if (c == '"' || c == '\\') (r += '\\') += static_cast<char>(c);
    else if (c < 0x20) snprintf(escaped, sizeof escaped, "\\u%04x", c), r += escaped;
    else r += static_cast<char>(c);
  }
  return r + "\"";
}

std::string json(const std::string& description, const std::vector<Outcome>& outcomes,
                 const std::string& bench_text) {
  std::string r =
      "{\"chip\": " + quoted(description) + ",\n \"bench\": " + quoted(bench_text) + ",\n \"tests\": [";
  const char* comma = "\n  ";
  for (const Outcome& o : outcomes) {
    r += comma + ("{\"tag\": " + quoted(o.tag)) + ", \"sentence\": " + quoted(o.sentence);
    r += ", \"not_applicable\": " + (o.not_applicable.empty() ? "null" : quoted(o.not_applicable)) +
         ", \"cases\": [";
    const char* inner = "";
    for (const Case& c : o.cases) {
      r += inner + ("{\"name\": " + quoted(c.name)) + ", \"passed\": " + (c.passed ? "true" : "false");
      r += (c.passed ? "" : ", \"message\": " + quoted(c.message)) + "}";
      inner = ", ";
    }
    r += "]}";
    comma = ",\n  ";
  }
  return r + "\n ]}\n";
}

std::string markdown(const std::string& description, const std::vector<Outcome>& outcomes,
                     const std::string& bench_text) {
  std::string r =
      "# Conformance of " + description + "\n\n| tag | requirement | passed | failed |\n|---|---|---|---|\n";
  std::string details;
  for (const Outcome& o : outcomes) {
    int failed = 0;
    for (const Case& c : o.cases) {
      if (c.passed) continue;
      ++failed;
      details += "- [" + o.tag + "] " + c.name + (c.name.empty() ? "" : ": ") + c.message + "\n";
    }
    std::string passed =
        o.not_applicable.empty() ? std::to_string(o.cases.size() - failed) : "n/a: " + o.not_applicable;
    r += "| " + o.tag + " | " + o.sentence + " | " + passed + " | " + std::to_string(failed) + " |\n";
  }
  if (!details.empty()) r += "\n## Failures\n\n" + details;
  if (!bench_text.empty()) r += "\n## Costs\n\n```\n" + bench_text + "```\n";
  return r;
}

}  // namespace

void write_report(const std::string& file, const std::string& description,
                  const std::vector<Outcome>& outcomes, const std::string& bench_text) {
  bool as_json = file.size() > 5 && file.compare(file.size() - 5, 5, ".json") == 0;
  std::string whole =
      as_json ? json(description, outcomes, bench_text) : markdown(description, outcomes, bench_text);
  FILE* f = fopen(file.c_str(), "w");
  if (!f || fwrite(whole.data(), 1, whole.size(), f) != whole.size() || fclose(f) != 0)
    throw std::runtime_error("cannot write " + file);
}

}  // namespace kit
