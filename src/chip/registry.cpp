#include "chip/registry.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "chip/error.h"
#include "chip/host.h"
#include "chip/visible.h"

namespace fl {

namespace {

struct Table {
  std::vector<const Chip*> chips;
  std::vector<Refusal> refusals;
  std::vector<Device> all;  // in order, named; the index is set when visible
};

std::mutex finder_mutex;
std::function<std::vector<std::string>()> finder;
std::function<std::optional<std::string>()> index_choice;
const char* index_choice_name = "";

std::mutex load_mutex;
std::atomic<const Table*> loaded_table{nullptr};
std::atomic<const std::vector<Device>*> visible_devices{nullptr};

std::atomic<bool> any_open{false}, in_child{false};
std::array<std::atomic<bool>, kMaxDevices> opened{};

std::string trim(const std::string& text) {
  size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(by, begin), text.size());
    std::string part = trim(text.substr(begin, end - begin));
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

struct Sources {
  std::vector<std::string> paths;
  std::vector<Refusal> refusals;
};

// Called with no lock held: the finder takes Python's interpreter lock, and a
// thread that has that one may be waiting for ours.
Sources find_sources() {
  Sources found;
  std::function<std::vector<std::string>()> ask;
  {
    std::lock_guard<std::mutex> lock(finder_mutex);
    ask = finder;
  }
  try {
    if (ask) found.paths = ask();
  } catch (const std::exception& e) {
    found.refusals.push_back(
        {"(installed chips)", std::string("finding the installed chips failed: ") + e.what()});
  }
  for (std::string& path : split(host_setting("chip_path"), ':')) found.paths.push_back(std::move(path));
  return found;
}

// One file under two names is one chip.
std::string canonical(const std::string& path) {
  std::unique_ptr<char, decltype(&::free)> real(realpath(path.c_str(), nullptr), &::free);
  return real ? real.get() : path;
}

bool power_of_two(uint32_t n) { return n && !(n & (n - 1)); }

// The device's properties, or why it is not used.
std::string read_device(const Chip& chip, int32_t local, fl_device_properties& p) {
  p = fl_device_properties{};
  p.size = sizeof p;
  if (fl_status status = contained([&] { return chip.device.properties(local, &p); }); status != FL_OK)
    return "device.properties failed: " + failure_text(status);
  p.name[sizeof p.name - 1] = 0;
  p.identity[sizeof p.identity - 1] = 0;
  if (!*p.identity) return "it has no identity [DEV-4]";
  if (p.alignment < 64 || !power_of_two(p.alignment))
    return "its alignment is " + std::to_string(p.alignment) + ", not a power of two from 64 on";
  if (!p.total_memory) return "it has no memory";
  return "";
}

// Shorter first, so that sim-10 comes after sim-2.
bool identity_before(const char* x, const char* y) {
  size_t a = strlen(x), b = strlen(y);
  return a != b ? a < b : strcmp(x, y) < 0;
}

bool device_before(const Device& x, const Device& y) {
  bool soft_x = x.properties.flags & FL_DEVICE_SOFTWARE, soft_y = y.properties.flags & FL_DEVICE_SOFTWARE;
  if (soft_x != soft_y) return soft_y;
  if (x.chip != y.chip) return x.chip->name < y.chip->name;
  return identity_before(x.properties.identity, y.properties.identity);
}

void add_devices(const Chip& chip, Table& table) {
  int32_t count = 0;
  if (fl_status status = contained([&] { return chip.device.count(&count); }); status != FL_OK) {
    table.refusals.push_back({chip.path, "device.count failed: " + failure_text(status)});
    return;
  }
  if (count <= 0) {
    table.refusals.push_back({chip.path, "the chip \"" + chip.name + "\" has no devices"});
    return;
  }
  for (int32_t local = 0; local < count; ++local) {
    Device d{-1, local, &chip, "", {}, nullptr};
    std::string reason = read_device(chip, local, d.properties);
    if (reason.empty() && table.all.size() == kMaxDevices)
      reason =
          "it is one more than the " + std::to_string(kMaxDevices) + " devices that one process can have";
    for (const Device& other : table.all)
      if (reason.empty() && other.chip == &chip && !strcmp(other.properties.identity, d.properties.identity))
        reason = "it has the identity of device " + std::to_string(other.local) + " [DEV-4]";
    if (!reason.empty()) {
      table.refusals.push_back({chip.path, "device " + std::to_string(local) + " is not used: " + reason});
      continue;
    }
    if (chip.flags & FL_CHIP_SERIAL_LAUNCH) d.serial = new std::mutex;  // as long-lived as the device
    table.all.push_back(d);
  }
}

void name_devices(std::vector<Device>& all) {
  std::stable_sort(all.begin(), all.end(), device_before);
  for (Device& d : all) {
    auto before = std::count_if(all.data(), &d, [&](const Device& other) { return other.chip == d.chip; });
    d.name = d.chip->name + ":" + std::to_string(before);
  }
}

Table* build_table(Sources& sources) {
  auto table = std::make_unique<Table>();
  table->refusals = std::move(sources.refusals);
  std::vector<std::string> seen;
  for (const std::string& path : sources.paths) {
    std::string real = canonical(path);
    if (std::find(seen.begin(), seen.end(), real) != seen.end()) continue;
    seen.push_back(real);
    auto chip = std::make_unique<Chip>();
    host_log(FL_LOG_DEBUG, ("loading the chip " + path).c_str());  // where it crashes, this names it
    std::string reason = load_chip(path, *chip);
    for (const Chip* other : table->chips)
      if (reason.empty() && other->name == chip->name)
        reason = "a chip named \"" + chip->name + "\" was already loaded from " + other->path +
                 "; uninstall one of the two, or take it out of FL_CHIP_PATH";
    if (!reason.empty()) {
      table->refusals.push_back({path, reason});
      continue;
    }
    table->chips.push_back(chip.get());
    add_devices(*chip.release(), *table);  // chips are never unloaded
  }
  name_devices(table->all);
  for (const Refusal& r : table->refusals)
    host_log(FL_LOG_WARNING, ("chip " + r.path + " is not used: " + r.reason).c_str());
  return table.release();
}

const Table& table() {
  if (const Table* t = loaded_table.load(std::memory_order_acquire)) return *t;
  Sources sources = find_sources();
  std::lock_guard<std::mutex> lock(load_mutex);
  if (!loaded_table.load(std::memory_order_acquire))
    loaded_table.store(build_table(sources), std::memory_order_release);
  return *loaded_table.load(std::memory_order_acquire);
}

std::string names_of(const std::vector<Device>& devices) {
  std::string names;
  for (const Device& d : devices) names += (names.empty() ? "" : ", ") + d.name;
  return names.empty() ? "none" : names;
}

// "sim:1" or "sim" among the devices: matches in order.
std::vector<const Device*> matching(const std::vector<Device>& devices, const std::string& name) {
  std::vector<const Device*> found;
  for (const Device& d : devices)
    if (d.name == name || d.chip->name == name) found.push_back(&d);
  return found;
}

// The device that cuda, cuda:0 and fl:0 mean; the others keep their order.
void put_first(std::vector<Device>& devices, const std::string& name) {
  if (name.empty()) return;
  auto found = std::find_if(devices.begin(), devices.end(),
                            [&](const Device& d) { return d.name == name || d.chip->name == name; });
  if (found == devices.end())
    throw Error(FL_INVALID, "the setting device, or FL_DEVICE, names \"" + name +
                                "\", which is not a visible device; there are: " + names_of(devices));
  std::rotate(devices.begin(), found, found + 1);
}

void choose_by_index(std::vector<Device>& devices) {
  std::function<std::optional<std::string>()> ask;
  {
    std::lock_guard<std::mutex> lock(finder_mutex);
    ask = index_choice;
  }
  const std::optional<std::string> text = ask ? ask() : std::nullopt;
  if (!text) return;
  std::vector<Device> chosen;
  for (const std::string& entry : split(*text, ',')) {
    const bool digits = entry.size() < 4 && entry.find_first_not_of("0123456789") == std::string::npos;
    const size_t index = digits ? std::stoul(entry) : SIZE_MAX;
    auto found = std::find_if(devices.begin(), devices.end(), [&](const Device& d) {
      return digits ? static_cast<size_t>(&d - devices.data()) == index : entry == d.properties.identity;
    });
    if (found == devices.end()) break;
    if (std::any_of(chosen.begin(), chosen.end(), [&](const Device& c) { return c.name == found->name; })) {
      chosen.clear();
      break;
    }
    chosen.push_back(*found);
  }
  devices = std::move(chosen);
}

std::vector<Device> choose(const Table& t) {
  std::vector<std::string> names = split(host_setting("visible_devices"), ',');
  std::vector<Device> chosen;
  if (names.empty()) chosen = t.all;
  for (const std::string& name : names) {
    std::vector<const Device*> found = matching(t.all, name);
    if (found.empty())
      throw Error(FL_INVALID,
                  "FL_VISIBLE_DEVICES names \"" + name +
                      "\", which does not exist; there are: " + names_of(t.all) +
                      (t.refusals.empty() ? "" : "; torch-fl doctor says why others are missing"));
    for (const Device* d : found) {
      if (std::any_of(chosen.begin(), chosen.end(), [d](const Device& c) { return c.name == d->name; }))
        throw Error(FL_INVALID, "FL_VISIBLE_DEVICES names " + d->name + " twice");
      chosen.push_back(*d);
    }
  }
  put_first(chosen, host_setting("device"));
  choose_by_index(chosen);
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i].index = static_cast<int32_t>(i);
  return chosen;
}

}  // namespace

void set_chip_finder(std::function<std::vector<std::string>()> next) {
  std::lock_guard<std::mutex> lock(finder_mutex);
  finder = std::move(next);
}

void set_index_choice(const char* name, std::function<std::optional<std::string>()> source) {
  std::lock_guard<std::mutex> lock(finder_mutex);
  index_choice = std::move(source);
  index_choice_name = name;
}

const std::vector<Device>& devices() {
  if (const auto* d = visible_devices.load(std::memory_order_acquire)) return *d;
  const Table& t = table();
  // A bad setting throws each time, until it is set right.
  auto chosen = std::make_unique<std::vector<Device>>(choose(t));
  std::lock_guard<std::mutex> lock(load_mutex);
  if (!visible_devices.load(std::memory_order_acquire))
    visible_devices.store(chosen.release(), std::memory_order_release);
  return *visible_devices.load(std::memory_order_acquire);
}

const std::vector<const Chip*>& chips() { return table().chips; }
const std::vector<Refusal>& refusals() { return table().refusals; }
bool loaded() noexcept { return visible_devices.load(std::memory_order_acquire) != nullptr; }

const Device& device(int64_t index) {
  const std::vector<Device>& all = devices();
  if (index >= 0 && index < static_cast<int64_t>(all.size())) return all[static_cast<size_t>(index)];
  std::string text = "there is no device " + std::to_string(index) + "; ";
  if (all.empty() && !table().all.empty())
    text += index_choice_name + std::string(" leaves none of: ") + names_of(table().all);
  else if (all.empty()) text += "no chip was found: torch-fl doctor says why";
  else text += "there are " + std::to_string(all.size()) + ": " + names_of(all);
  throw Error(FL_INVALID, text);
}

int32_t find_device(const std::string& name) {
  size_t colon = name.find(':');
  std::string chip = name.substr(0, colon);
  const auto& known = chips();
  if (std::none_of(known.begin(), known.end(), [&](const Chip* c) { return c->name == chip; })) return -1;
  const std::vector<Device>& all = devices();
  auto found = matching(all, name);
  if (!found.empty()) return found[0]->index;
  bool hidden = !matching(table().all, name).empty();
  throw Error(FL_INVALID, "there is no device \"" + name + "\"" +
                              (hidden ? " among FL_VISIBLE_DEVICES" : "") + "; there are: " + names_of(all));
}

void open_device(int32_t index) {
  const Device& d = device(index);
  if (forked())
    throw Error(FL_FAILED,
                "cannot use " + d.name +
                    " in a forked process: its parent had started the device, and a "
                    "device does not survive a fork; use multiprocessing's start method \"spawn\"");
  if (opened[index].load(std::memory_order_acquire)) return;
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (opened[index].load(std::memory_order_relaxed)) return;
  // Before the chip starts its threads: from here on a fork is a bad one.
  if (!any_open.exchange(true)) pthread_atfork(nullptr, nullptr, [] { in_child = true; });
  check(contained([&] { return d.chip->device.open(d.local); }), ("cannot start " + d.name).c_str());
  opened[index].store(true, std::memory_order_release);
}

bool is_open(int32_t index) noexcept {
  return index >= 0 && index < kMaxDevices && opened[index].load(std::memory_order_acquire);
}

bool forked() noexcept { return in_child.load(std::memory_order_relaxed); }

}  // namespace fl
