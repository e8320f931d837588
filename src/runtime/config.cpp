#include "runtime/config.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>

#include "chip/error.h"
#include "chip/registry.h"
#include "runtime/config_file.h"
#include "runtime/log.h"

namespace fl {

namespace {

enum Index {
#define FL_SETTING_INDEX(name, environment, value, allowed, sentence) k_##name,
  FL_SETTINGS(FL_SETTING_INDEX)
#undef FL_SETTING_INDEX
      kCount
};

constexpr Setting kSettings[] = {
#define FL_SETTING_ROW(name, environment, value, allowed, sentence) \
  {#name, environment, value, allowed, sentence},
    FL_SETTINGS(FL_SETTING_ROW)
#undef FL_SETTING_ROW
};

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(by, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

std::optional<double> number(const std::string& text) {
  if (text.empty()) return {};
  char* end = nullptr;
  double value = strtod(text.c_str(), &end);
  if (*end || !std::isfinite(value)) return {};
  return value;
}
double known(const std::string& text) { return number(text).value_or(0); }  // has been parsed before

using Parsed = std::optional<std::string>;

Parsed parse_text(const std::string& text) { return text; }

Parsed parse_bool(const std::string& text) {
  std::string t = lower(text);
  if (t == "1" || t == "true" || t == "on" || t == "yes") return "1";
  if (t == "0" || t == "false" || t == "off" || t == "no") return "0";
  return {};
}

Parsed parse_whole(const std::string& text) {
  auto value = number(text);
  if (!value || *value != std::floor(*value) || *value < 0 || *value > 1e12) return {};
  return std::to_string(static_cast<int64_t>(*value));
}

Parsed parse_not_negative(const std::string& text) {
  auto value = number(text);
  return value && *value >= 0 ? Parsed(text) : std::nullopt;
}

Parsed parse_fraction(const std::string& text) {
  auto value = number(text);
  return value && *value >= 0 && *value <= 1 ? Parsed(text) : std::nullopt;
}

constexpr unsigned bit(Toml type) { return 1u << static_cast<unsigned>(type); }
constexpr unsigned kNumber = bit(Toml::kInteger) | bit(Toml::kFloat);
constexpr unsigned kList = bit(Toml::kString) | bit(Toml::kStrings);

struct Kind {
  const char* allowed;
  const char* words;  // for a person
  Parsed (*parse)(const std::string&);
  unsigned types;         // in a file
  const char* in_a_file;  // for a person
  char separator = 0;     // of a list
};
constexpr Kind kKinds[] = {
    {"text", "any text", parse_text, bit(Toml::kString), "a string in quotes"},
    {"names", "names separated by ','", parse_text, kList, "a string, or an array of strings", ','},
    {"paths", "paths separated by ':'", parse_text, kList, "a string, or an array of strings", ':'},
    {"bool", "1, 0, true, false, on, off, yes, no", parse_bool, bit(Toml::kBoolean), "true, false"},
    {"int>=0", "a whole number that is not negative", parse_whole, bit(Toml::kInteger),
     "a whole number that is not negative"},
    {"float>=0", "a number that is not negative", parse_not_negative, kNumber,
     "a number that is not negative"},
    {"float 0..1", "a number from 0 to 1", parse_fraction, kNumber, "a number from 0 to 1"},
};

const Kind* kind_of(const Setting& s) {
  for (const Kind& kind : kKinds)
    if (std::string(kind.allowed) == s.allowed) return &kind;
  return nullptr;  // a choice
}

// The value as it is kept, or nothing when it is not allowed.
Parsed parse(const Setting& s, const std::string& text) {
  if (const Kind* kind = kind_of(s)) return kind->parse(text);
  for (const std::string& choice : split(s.allowed, '|'))
    if (lower(text) == choice) return choice;
  return {};
}

std::string choices(const Setting& s) {
  std::string words;
  for (const std::string& choice : split(s.allowed, '|')) words += (words.empty() ? "" : ", ") + choice;
  return words;
}

std::string refusal(const Setting& s, const std::string& subject, const std::string& text) {
  const Kind* kind = kind_of(s);
  return subject + " is \"" + text +
         "\", which is not allowed; allowed: " + (kind ? kind->words : choices(s));
}

// A file's value as the environment would give it. Throws Error when it is of another type.
std::string to_text(const Setting& s, const FileSetting& line, const std::string& subject) {
  constexpr const char* kNames[] = {"a string", "an integer", "a float", "a boolean", "an array"};
  const Kind* kind = kind_of(s);
  // Of the choices, 1 and 0 may be written as numbers and as booleans.
  const unsigned types = kind ? kind->types : bit(Toml::kString) | bit(Toml::kInteger) | bit(Toml::kBoolean);
  if (!(types & bit(line.type)))
    throw Error(FL_INVALID,
                subject + " is " + kNames[static_cast<int>(line.type)] +
                    ", which is not allowed; allowed: " + (kind ? std::string(kind->in_a_file) : choices(s)));
  if (line.type != Toml::kStrings) return line.value;
  std::string text;
  for (const std::string& item : line.items) {
    if (item.find(kind->separator) != std::string::npos)
      throw Error(FL_INVALID, subject + " holds \"" + item + "\", which has a '" + kind->separator +
                                  "'; each one is a string of its own");
    text += (text.empty() ? "" : std::string(1, kind->separator)) + item;
  }
  return text;
}

std::string unknown(const std::string& name) {
  std::string names;
  for (const Setting& s : kSettings) names += (names.empty() ? "" : ", ") + std::string(s.name);
  return "there is no setting \"" + name + "\"; there are: " + names;
}

int index_of(const std::string& name) {
  for (int i = 0; i < kCount; ++i)
    if (name == kSettings[i].name) return i;
  return -1;
}

// What the process starts with: the environment, and below it the file.
struct Given {
  std::optional<std::string> text[kCount];
  std::string subject[kCount];   // what the text is called in a refusal
  std::string source[kCount];    // where it comes from
  std::string refusals[kCount];  // of single lines of the file
  std::string refusal;           // of the file as a whole

  Given() {
    for (std::string& s : source) s = "default";
    try {
      read_file();
    } catch (const Error& error) {
      refusal = error.what();
      for (auto& t : text) t.reset();
    }
    for (int i = 0; i < kCount; ++i)
      if (const char* value = getenv(kSettings[i].environment)) {
        text[i] = value;
        source[i] = subject[i] = kSettings[i].environment;
        refusals[i].clear();
      }
  }

  void read_file() {
    const char* named = getenv("FL_CONFIG");
    std::string path = named ? named : "";
    if (!named) {
      std::error_code ignored;
      const std::filesystem::path here = std::filesystem::current_path(ignored) / "torch-fl.toml";
      if (std::filesystem::exists(here, ignored)) path = here.string();
    }
    if (path.empty()) return;
    for (const FileSetting& line : read_config_file(path)) {
      const std::string place = path + ":" + std::to_string(line.line);
      const int i = index_of(line.name);
      if (i < 0) throw Error(FL_INVALID, place + ": " + unknown(line.name));
      subject[i] = place + ": " + line.name;
      source[i] = place;
      try {
        // A file that lies where Python happens to be started must not make it run foreign code.
        if (i == k_chip_path && !named)
          throw Error(FL_INVALID, subject[i] +
                                      " loads libraries, and is taken from a file that FL_CONFIG names, "
                                      "or from FL_CHIP_PATH, only");
        text[i] = to_text(kSettings[i], line, subject[i]);
      } catch (const Error& error) {
        refusals[i] = error.what();
      }
    }
  }
};

struct State {
  std::mutex mutex;
  std::string values[kCount];    // parsed
  std::string refusals[kCount];  // of what the process started with, until something is set
  std::string sources[kCount];

  std::atomic<int> log_level{FL_LOG_WARNING};
  std::atomic<bool> fault_lines{false};
  std::atomic<Fallback> fallback{Fallback::kWarn};
  std::atomic<double> sync_timeout{0}, memory_fraction{1}, garbage_collection{0};
  std::atomic<size_t> max_split{SIZE_MAX};

  State() {
    const Given given;
    for (int i = 0; i < kCount; ++i) {
      const Setting& s = kSettings[i];
      const std::string text = given.text[i].value_or(s.fallback_value);
      Parsed value = parse(s, text);
      if (!value) refusals[i] = refusal(s, given.subject[i], text);
      // Any setting may be what a file that is refused was meant to set.
      if (!given.text[i]) refusals[i] = given.refusal;
      if (!given.refusals[i].empty()) refusals[i] = given.refusals[i];
      sources[i] = given.source[i];
      values[i] = value ? *value : parse(s, s.fallback_value).value_or("");
      publish(i);
    }
  }

  // Keeps the hot settings parsed.
  void publish(int i) {
    const std::string& v = values[i];
    auto choice = [&] {
      auto choices = split(kSettings[i].allowed, '|');
      return static_cast<int>(std::find(choices.begin(), choices.end(), v) - choices.begin());
    };
    if (i == k_log) log_level = choice();  // in the order of FL_LOG_…
    if (i == k_fallback) fallback = static_cast<Fallback>(choice());
    if (i == k_fault_lines) fault_lines = v == "1";
    if (i == k_sync_timeout) sync_timeout = known(v);
    if (i == k_memory_fraction) memory_fraction = known(v);
    if (i == k_garbage_collection_threshold) garbage_collection = known(v);
    if (i == k_max_split_size_mb) max_split = v == "0" ? SIZE_MAX : static_cast<size_t>(known(v)) << 20;
  }
};

// Never destroyed: chips' threads may log while the process exits.
State& state() {
  static State* const s = [] {
    State* made = new State;
    // A child forked while another thread held the lock could never log.
    pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                   [] { state().mutex.unlock(); });
    std::set<std::string> told{""};
    for (const std::string& text : made->refusals)
      if (told.insert(text).second) write_log(made->values[k_log_file], FL_LOG_ERROR, text);
    return made;
  }();
  return *s;
}

int find_setting(const std::string& name) {
  const int i = index_of(name);
  if (i < 0) throw Error(FL_INVALID, unknown(name));
  return i;
}

}  // namespace

const std::vector<Setting>& settings() {
  static const auto& all = *new std::vector<Setting>(std::begin(kSettings), std::end(kSettings));
  return all;
}

std::string setting(const std::string& name) {
  int i = find_setting(name);
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.refusals[i].empty()) throw Error(FL_INVALID, s.refusals[i]);
  return s.values[i];
}

std::string setting_source(const std::string& name) {
  int i = find_setting(name);
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  return s.sources[i];
}

void set_setting(const std::string& name, const std::string& value) {
  int i = find_setting(name);
  Parsed parsed = parse(kSettings[i], value);
  if (!parsed) throw Error(FL_INVALID, refusal(kSettings[i], "setting " + name, value));
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if ((i == k_device || i == k_visible_devices || i == k_chip_path) && loaded() && *parsed != s.values[i])
    throw Error(FL_INVALID, "setting " + name + " cannot change after the devices were found; set it, or " +
                                kSettings[i].environment + ", before the first use of a device");
  s.values[i] = *parsed;
  s.refusals[i].clear();
  s.sources[i] = "torch.fl.config";
  s.publish(i);
}

bool fault_lines() noexcept { return state().fault_lines.load(std::memory_order_relaxed); }
Fallback fallback_policy() noexcept { return state().fallback.load(std::memory_order_relaxed); }
double sync_timeout_seconds() noexcept { return state().sync_timeout.load(std::memory_order_relaxed); }
size_t max_split_bytes() noexcept { return state().max_split.load(std::memory_order_relaxed); }
double garbage_collection_threshold() noexcept {
  return state().garbage_collection.load(std::memory_order_relaxed);
}
double memory_fraction_setting() noexcept { return state().memory_fraction.load(std::memory_order_relaxed); }

void log(int level, const std::string& text) {
  State& s = state();
  if (level > s.log_level.load(std::memory_order_relaxed)) return;
  std::string file;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    file = s.values[k_log_file];
  }
  write_log(file, level, text);
}

}  // namespace fl
