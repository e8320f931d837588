// The settings: one table, from which the environment is read, torch.fl.config
// is made and the table in the docs is written.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fl {

// X(name, ENVIRONMENT, default, allowed, sentence)
//   allowed: "a|b|c" a choice; "int>=0", "float>=0", "float 0..1", "text", "bool"; "names" and "paths" are
//   lists, separated by ',' and ':' in the environment
#define FL_SETTINGS(X)                                                                                       \
  X(device, "FL_DEVICE", "", "text",                                                                         \
    "the device that cuda, cuda:0 and fl:0 mean, such as sim:1; empty: the first")                           \
  X(visible_devices, "FL_VISIBLE_DEVICES", "", "names",                                                      \
    "devices to use, in this order: sim:1,sim:0; empty: all")                                                \
  X(float32_matmul_precision, "FL_FLOAT32_MATMUL_PRECISION", "highest", "highest|high|medium",               \
    "what torch.set_float32_matmul_precision starts with")                                                   \
  X(autocast_dtype, "FL_AUTOCAST_DTYPE", "float16", "float16|bfloat16",                                      \
    "what torch.autocast computes in where the script names no dtype")                                       \
  X(fallback, "FL_FALLBACK", "warn", "warn|error|quiet", "what an operator does that has to run on the CPU") \
  X(fallback_allow, "FL_FALLBACK_ALLOW", "", "names", "operators that may fall back silently")               \
  X(fallback_deny, "FL_FALLBACK_DENY", "", "names", "operators that must not fall back")                     \
  X(chip_path, "FL_CHIP_PATH", "", "paths", "chip libraries to load besides the installed ones")             \
  X(cuda_view, "FL_CUDA_VIEW", "auto", "auto|1|0",                                                           \
    "whether \"cuda\" means the chip; auto: if no NVIDIA device is usable")                                  \
  X(log, "FL_LOG", "warning", "error|warning|info|debug", "what is logged")                                  \
  X(log_file, "FL_LOG_FILE", "", "text", "log into this file, rotated at 10 MB, instead of stderr")          \
  X(fault_lines, "FL_FAULT_LINES", "0", "bool",                                                              \
    "record the Python line of each launch, for the text of later faults")                                   \
  X(sync_timeout, "FL_SYNC_TIMEOUT", "0", "float>=0",                                                        \
    "seconds after which waiting for a device is an error; 0: never")                                        \
  X(memory_fraction, "FL_MEMORY_FRACTION", "1", "float 0..1",                                                \
    "share of a device's memory that may be allocated")                                                      \
  X(max_split_size_mb, "FL_MAX_SPLIT_SIZE_MB", "0", "int>=0",                                                \
    "cached blocks of this size or more are not split; 0: all are")                                          \
  X(garbage_collection_threshold, "FL_GARBAGE_COLLECTION_THRESHOLD", "0", "float 0..1",                      \
    "share of the memory limit from which cached memory is given back, the longest unused first; 0: never")

struct Setting {
  const char *name, *environment, *fallback_value, *allowed, *sentence;
};
const std::vector<Setting>& settings();

// Current text of a setting: set value, else environment, else default.  A bad
// value is refused with an Error that names the setting and what is allowed.
std::string setting(const std::string& name);
void set_setting(const std::string& name, const std::string& value);

// Hot ones, kept parsed: one relaxed load each.
bool fault_lines() noexcept;
enum class Fallback { kWarn, kError, kQuiet };
Fallback fallback_policy() noexcept;
double sync_timeout_seconds() noexcept;
double memory_fraction_setting() noexcept;
size_t max_split_bytes() noexcept;  // SIZE_MAX: no limit
double garbage_collection_threshold() noexcept;

// Lines at or above the level go to stderr or the file: "torch-fl WARNING: text".
void log(int level, const std::string& text);  // level: FL_LOG_…

}  // namespace fl
