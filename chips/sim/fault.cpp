// Faults to order: FL_SIM_FAULTS, and extension("sim.faults", 1) at run time.
//
// A spec is a list of orders separated by ','.  N counts from 1, from the moment
// the spec is set; a '+' behind it means that one and every later one.
//
//   alloc:N          the N-th device allocation gives FL_OUT_OF_MEMORY
//   kernel=NAME:N    the N-th launch of NAME fails on its stream, after the launch
//                    returned; nothing is written
//   hang=NAME:N      the N-th launch of NAME does not end until the orders change,
//                    its stream is destroyed, or `limit` passes; then it has failed
//   lost=DEVICE:N    the device is lost when its N-th launch runs
//   limit:MS         how long a hang lasts at most, in milliseconds; else for ever
//
// NAME is an entry of fl_op_api ("gemm"), "transfer" for fl_memory_api's copies, or
// "any".  Example: "alloc:3,kernel=gemm:2,lost=1:100".
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "device.h"

namespace sim::faults {

std::atomic<bool> armed{false};

namespace {

enum class Kind : uint8_t { alloc, kernel, hang, lost };

struct Item {
  Kind kind;
  std::string name;    // kernel, hang; empty: any
  int32_t device = 0;  // lost
  uint64_t number = 0, seen = 0;
  bool on = false;  // every later one too
  bool hit() {
    ++seen;
    return seen == number || (on && seen > number);
  }
};

struct Orders {
  std::mutex mutex;
  std::vector<Item> items;
  sim_fault_counters counters{};
  std::atomic<uint64_t> generation{0};  // a hang ends when it moves
  std::atomic<int64_t> limit_ms{-1};
  std::string environment_error;
};

Orders& orders() {
  static Orders& o = *new Orders;
  return o;
}

const char* const kNames[] = {
#define SIM_NAME(name) #name,
    SIM_ENTRIES(SIM_NAME)
#undef SIM_NAME
        "transfer",
    "any"};

bool known_name(const std::string& name) {
  for (const char* known : kNames)
    if (name == known) return true;
  return false;
}

// A positive number that fills the text, but for a '+' where that is allowed.
bool parse_number(const std::string& text, uint64_t* number, bool* plus) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  char* end;
  *number = std::strtoull(text.c_str(), &end, 10);
  if (plus && *end == '+') *plus = true, ++end;
  return *end == 0;
}

// An empty string, or why the order is refused.
std::string parse_order(const std::string& text, std::vector<Item>& items, int64_t* limit_ms) {
  auto colon = text.rfind(':');
  if (colon == std::string::npos) return "has no ':' before its number";
  std::string left = text.substr(0, colon), right = text.substr(colon + 1);
  auto equals = left.find('=');
  std::string key = left.substr(0, equals), name = equals == std::string::npos ? "" : left.substr(equals + 1);
  Item item;
  uint64_t limit;
  if (key == "limit" && equals == std::string::npos) {
    if (!parse_number(right, &limit, nullptr) || limit > 1000000000)
      return "needs milliseconds behind the ':'";
    *limit_ms = static_cast<int64_t>(limit);
    return "";
  }
  if (!parse_number(right, &item.number, &item.on) || item.number == 0)
    return "needs a number from 1 behind the ':', with or without a '+'";
  if (key == "alloc" && equals == std::string::npos) {
    item.kind = Kind::alloc;
  } else if (key == "kernel" || key == "hang") {
    item.kind = key == "hang" ? Kind::hang : Kind::kernel;
    if (!known_name(name)) {
      std::string all;
      for (const char* known : kNames) all += std::string(all.empty() ? "" : ", ") + known;
      return "names no kernel; the names are " + all;
    }
    if (name != "any") item.name = name;
  } else if (key == "lost") {
    item.kind = Kind::lost;
    uint64_t device;
    if (!parse_number(name, &device, nullptr) || device >= static_cast<uint64_t>(device_count()))
      return "needs a device from 0 to " + std::to_string(device_count() - 1) + " behind the '='";
    item.device = static_cast<int32_t>(device);
  } else {
    return "is none of alloc:N, kernel=NAME:N, hang=NAME:N, lost=DEVICE:N, limit:MS";
  }
  items.push_back(item);
  return "";
}

std::string set_orders(const char* spec) {
  std::vector<Item> items;
  int64_t limit_ms = -1;
  std::string rest = spec ? spec : "";
  while (!rest.empty()) {
    auto comma = rest.find(',');
    std::string order = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    std::string error = parse_order(order, items, &limit_ms);
    if (!error.empty()) return "the fault order '" + order + "' (FL_SIM_FAULTS) " + error;
  }
  Orders& o = orders();
  std::lock_guard<std::mutex> guard(o.mutex);
  o.items = std::move(items);
  o.counters = {};
  o.limit_ms.store(limit_ms);
  armed.store(!o.items.empty());
  o.generation.fetch_add(1);
  return "";
}

fl_status set_function(const char* spec) { return set(spec) ? FL_OK : FL_INVALID; }

void read_counters(sim_fault_counters* out) {
  Orders& o = orders();
  std::lock_guard<std::mutex> guard(o.mutex);
  *out = o.counters;
}

}  // namespace

bool set(const char* spec) {
  environment_valid();  // read now, so that it does not replace what is set here
  std::string error = set_orders(spec);
  if (error.empty()) return true;
  set_error("%s", error.c_str());
  return false;
}

bool environment_valid() {
  static const std::string& error = *new std::string(set_orders(std::getenv("FL_SIM_FAULTS")));
  if (error.empty()) return true;
  set_error("%s", error.c_str());
  return false;
}

bool fail_malloc() {
  Orders& o = orders();
  std::lock_guard<std::mutex> guard(o.mutex);
  ++o.counters.allocations;
  bool fails = false;
  for (Item& item : o.items)
    if (item.kind == Kind::alloc && item.hit()) fails = true;
  o.counters.delivered += fails;
  return fails;
}

Order launch(int32_t device, const char* name) {
  Orders& o = orders();
  std::lock_guard<std::mutex> guard(o.mutex);
  ++o.counters.launches;
  Order order = Order::none;
  for (Item& item : o.items) {
    bool meant = item.kind == Kind::lost
                     ? item.device == device
                     : item.kind != Kind::alloc && (item.name.empty() || item.name == name);
    if (meant && item.hit() && order == Order::none)
      order = item.kind == Kind::lost ? Order::lose : item.kind == Kind::hang ? Order::hang : Order::fail;
  }
  o.counters.delivered += order != Order::none;
  return order;
}

void hang(const std::atomic<bool>& stopped) {
  Orders& o = orders();
  uint64_t generation;
  {
    std::lock_guard<std::mutex> guard(o.mutex);
    generation = o.generation.load();
    bool ordered = false;
    for (const Item& item : o.items) ordered = ordered || item.kind == Kind::hang;
    if (!ordered) return;  // cleared between the launch and its turn on the worker
  }
  int64_t limit = o.limit_ms.load(), began = now_ns();
  while (!stopped.load() && o.generation.load() == generation &&
         (limit < 0 || now_ns() - began < limit * 1000000))
    usleep(500);
}

const sim_faults table = {sizeof(sim_faults), 0, set_function, read_counters};

}  // namespace sim::faults
