// The chip under test, and the host that it sees.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "kit.h"
#include "session.h"

namespace kit {

namespace {

Chip the_chip;
std::string the_path;
std::mutex serial;
thread_local std::string last_error;

void log_line(int level, const char* line) {
  if (level == FL_LOG_ERROR) fprintf(stderr, "chip: %s\n", line);
}
void set_error(const char* line) { last_error = line ? line : ""; }

const fl_host the_host = {sizeof(fl_host), FL_ABI_VERSION, log_line, set_error, host_scratch};

template <class Table>
void copy_table(Table& to, const Table* from) {
  to = Table{};
  if (!from) return;
  memcpy(&to, from, std::min<size_t>(from->size, sizeof to));
}

struct DtypeRow {
  const char* name;
  size_t size;
};
const DtypeRow kDtypes[FL_DTYPE_COUNT] = {{"none", 0},
#define ROW(name, value, bytes, text) {text, bytes},
                                          FL_DTYPE_MAP(ROW)
#undef ROW
};

}  // namespace

const Chip& chip() { return the_chip; }
const std::string& library_path() { return the_path; }
const fl_host* host() { return &the_host; }

std::string chip_error() {
  std::string line;
  line.swap(last_error);
  return line;
}

std::string load(const std::string& path) {
  if (the_chip.table) return "";
  void* library = dlopen(path.find('/') == std::string::npos ? ("./" + path).c_str() : path.c_str(),
                         RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
  char* whole = realpath(path.c_str(), nullptr);
  the_path = whole ? whole : path;
  free(whole);
  the_chip.entry = reinterpret_cast<fl_chip_entry_fn>(dlsym(library, FL_CHIP_ENTRY_NAME));
  if (!the_chip.entry) return "it exports no " FL_CHIP_ENTRY_NAME;
  const fl_chip* table = the_chip.entry(FL_ABI_VERSION, &the_host);
  if (!table) return "fl_chip_entry returned NULL: " + chip_error();
  if (table->version >> 16 != FL_ABI_MAJOR)
    return text("the chip was written for ABI %u, this kit tests ABI %d", table->version >> 16, FL_ABI_MAJOR);
  fl_chip full{};
  memcpy(&full, table, std::min<size_t>(table->size, sizeof full));
  copy_table(the_chip.device, full.device);
  copy_table(the_chip.memory, full.memory);
  copy_table(the_chip.stream, full.stream);
  copy_table(the_chip.op, full.op);
  the_chip.table = table;
  int32_t count = 0;
  if (!the_chip.device.count) return "the device table has no count";
  fl_status status = the_chip.device.count(&count);
  if (status != FL_OK) return text("count: %s (%s)", status_name(status), chip_error().c_str());
  if (count < 1) return "the chip has no device here";
  return "";
}

bool Chip::claims(unsigned entry, unsigned kind, unsigned dtype) const {
  for (uint32_t i = 0; i < op.n_claims; ++i) {
    const fl_claim& c = op.claims[i];
    if (c.entry == entry && (c.kind == kind || c.kind == FL_ANY) && c.dtypes >> dtype & 1) return true;
  }
  return false;
}

std::vector<unsigned> claimed(unsigned entry, unsigned kind) {
  std::vector<unsigned> dtypes;
  for (unsigned d = 1; d < FL_DTYPE_COUNT; ++d)
    if (chip().claims(entry, kind, d)) dtypes.push_back(d);
  return dtypes;
}

const char* status_name(fl_status status) {
  switch (status) {
#define NAME(name, value, sentence) \
  case value:                       \
    return "FL_" #name;
    FL_STATUS_MAP(NAME)
#undef NAME
    default:
      return "an unknown status";
  }
}

const char* dtype_name(unsigned dtype) { return dtype < FL_DTYPE_COUNT ? kDtypes[dtype].name : "unknown"; }
size_t dtype_size(unsigned dtype) { return dtype < FL_DTYPE_COUNT ? kDtypes[dtype].size : 0; }

unsigned register_type(unsigned dtype) {
  static const uint8_t kTypes[FL_DTYPE_COUNT] = {FL_NONE, FL_BOOL, FL_I32, FL_I32, FL_I32, FL_I32,
                                                 FL_I64,  FL_I32,  FL_I64, FL_I64, FL_F32, FL_F32,
                                                 FL_F32,  FL_F64,  FL_C64, FL_C64, FL_C128};
  return dtype < FL_DTYPE_COUNT ? kTypes[dtype] : static_cast<unsigned>(FL_NONE);
}

void expect_status(fl_status got, fl_status want, const char* what) {
  if (got == want) return;
  std::string said = chip_error();
  stop("%s gave %s%s%s, not %s", what, status_name(got), said.empty() ? "" : ": ", said.c_str(),
       status_name(want));
}

LaunchLock::LaunchLock() {
  if (the_chip.table->flags & FL_CHIP_SERIAL_LAUNCH) serial.lock();
}
LaunchLock::~LaunchLock() {
  if (the_chip.table->flags & FL_CHIP_SERIAL_LAUNCH) serial.unlock();
}

}  // namespace kit
