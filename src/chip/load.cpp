// Loading one chip library, and the checks that it has to pass.
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "chip/claims.h"
#include "chip/error.h"
#include "chip/host.h"
#include "chip/registry.h"

namespace fl {

namespace {

std::string version_text(uint32_t version) {
  return std::to_string(version >> 16) + "." + std::to_string(version & 0xffff);
}

// A method that a chip must have, found by its place in the table.
struct Method {
  const char* name;
  size_t offset;
};
#define FL_METHOD(table, name) {#table "." #name, offsetof(fl_##table##_api, name)}
constexpr Method kDeviceMethods[] = {FL_METHOD(device, count), FL_METHOD(device, properties),
                                     FL_METHOD(device, open)};
constexpr Method kMemoryMethods[] = {FL_METHOD(memory, malloc),     FL_METHOD(memory, free),
                                     FL_METHOD(memory, info),       FL_METHOD(memory, copy),
                                     FL_METHOD(memory, host_alloc), FL_METHOD(memory, host_free)};
constexpr Method kStreamMethods[] = {
    FL_METHOD(stream, create),       FL_METHOD(stream, destroy),           FL_METHOD(stream, synchronize),
    FL_METHOD(stream, query),        FL_METHOD(stream, wait_event),        FL_METHOD(stream, fault),
    FL_METHOD(stream, event_create), FL_METHOD(stream, event_destroy),     FL_METHOD(stream, event_record),
    FL_METHOD(stream, event_query),  FL_METHOD(stream, event_synchronize), FL_METHOD(stream, event_elapsed)};
constexpr Method kOpMethods[] = {FL_METHOD(op, copy),    FL_METHOD(op, fill),  FL_METHOD(op, pointwise),
                                 FL_METHOD(op, reduce),  FL_METHOD(op, gemm),  FL_METHOD(op, gather),
                                 FL_METHOD(op, scatter), FL_METHOD(op, random)};
#undef FL_METHOD

// Copies what both sides know of a table; the rest stays null.  Adds the names
// of the missing methods to `missing`.
template <class Table, size_t n>
void take_table(Table& to, const Table* from, const char* name, const Method (&methods)[n],
                std::string& missing) {
  if (from) memcpy(&to, from, std::min<size_t>(from->size, sizeof to));
  if (!from) missing += std::string(missing.empty() ? "" : ", ") + "the table " + name;
  for (const Method& m : methods) {
    void* entry;
    memcpy(static_cast<void*>(&entry), reinterpret_cast<const char*>(&to) + m.offset, sizeof entry);
    if (from && !entry) missing += (missing.empty() ? "" : ", ") + std::string(m.name);
  }
}

bool good_name(const char* name) {
  if (!name || *name < 'a' || *name > 'z') return false;
  for (; *name; ++name)
    if (!((*name >= 'a' && *name <= 'z') || (*name >= '0' && *name <= '9') || *name == '_')) return false;
  return true;
}

// The chip's table, or the reason why there is none.
std::string ask(fl_chip_entry_fn entry, const fl_chip** out) {
  take_chip_error();
  fl_status status = contained([&] { return *out = entry(FL_ABI_VERSION, host_table()), FL_OK; });
  if (status != FL_OK) return "its fl_chip_entry() failed: " + failure_text(status);
  if (*out) return "";
  std::string said = take_chip_error();
  return "its fl_chip_entry() refuses to work with this host" +
         (said.empty() ? std::string(", without saying why (fl_host.set_error)") : ": " + said);
}

std::string check_version(const fl_chip& chip) {
  if (chip.version >> 16 == FL_ABI_MAJOR) return "";
  bool newer = chip.version >> 16 > FL_ABI_MAJOR;
  return "it was built for version " + version_text(chip.version) +
         " of the chip ABI and this torch-fl has version " + version_text(FL_ABI_VERSION) + "; install " +
         (newer ? "a newer torch-fl, or an older package of the chip"
                : "a newer package of the chip, or an older torch-fl");
}

}  // namespace

const fl_host* host_table() {
  static const fl_host table = {sizeof(fl_host), FL_ABI_VERSION, host_log, set_chip_error, host_scratch};
  return &table;
}

std::string load_chip(const std::string& path, Chip& chip) {
  dlerror();
  // Never closed: a chip's threads and thread-local data may outlive any use.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* said = dlerror();
    return std::string("it does not load: ") + (said ? said : "the loader gave no reason");
  }
  auto entry = reinterpret_cast<fl_chip_entry_fn>(dlsym(library, FL_CHIP_ENTRY_NAME));
  if (!entry) return "it is no chip library: it has no symbol " FL_CHIP_ENTRY_NAME "; export it (FL_EXPORT)";

  const fl_chip* from = nullptr;
  std::string reason = ask(entry, &from);
  if (!reason.empty()) return reason;
  if (reason = check_version(*from); !reason.empty()) return reason;

  fl_chip table{};
  memcpy(&table, from, std::min<size_t>(from->size, sizeof table));
  if (!good_name(table.name))
    return std::string("its name is ") + (table.name ? "\"" + std::string(table.name) + "\"" : "missing") +
           "; a name has lower-case letters, digits and '_', a letter first [CHP-1]";
  Chip made;
  made.name = table.name;
  made.release = table.release ? table.release : "";
  made.path = path;
  made.version = table.version;
  made.flags = table.flags;
  made.extension = table.extension;

  std::string missing;
  take_table(made.device, table.device, "device", kDeviceMethods, missing);
  take_table(made.memory, table.memory, "memory", kMemoryMethods, missing);
  take_table(made.stream, table.stream, "stream", kStreamMethods, missing);
  take_table(made.op, table.op, "op", kOpMethods, missing);
  if (!missing.empty()) return "it lacks what every chip must have: " + missing;
  if (reason = take_claims(made); !reason.empty()) return reason;
  chip = std::move(made);
  return "";
}

}  // namespace fl
