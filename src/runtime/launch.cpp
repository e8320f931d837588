#include "runtime/launch.h"

#include <array>
#include <cstring>

#include "chip/error.h"
#include "runtime/config.h"
#include "runtime/index_error.h"
#include "runtime/launch_record.h"

namespace fl {

namespace {

constexpr uint64_t kRing = 16384;
constexpr int kMaxTensors = 6;
constexpr int kMaxShown = 8;  // dimensions

// Two cache lines.  A tensor takes a half word of its header (dtype, ndim) and
// one for each dimension; what does not fit is shown as "…".
constexpr int kWords = 12;
constexpr int kHalves = 2 * kWords;

// All members are atomic so that a reader may race with a writer: it takes the
// record only when the tag was the same before and after.  Each store releases
// the tag's 0 before it, each load keeps the second look at the tag behind it;
// on x86 and for single words on ARM that is free or nearly.
//
// That is not enough when a writer is held up so long that the ring comes round: it then writes into
// a later launch's record.  So the tag's word carries a check of what belongs to it as well.
struct Record {
  std::atomic<uint64_t> tag;  // kTagBits of the tag, 5 for the number of half words, 16 for the check
  std::atomic<const Op*> op;
  std::atomic<const Stream*> stream;
  std::atomic<const char*> line;
  std::array<std::atomic<uint64_t>, kWords> shapes;
};
static_assert(sizeof(Record) == 128);

alignas(64) constinit std::array<Record, kRing> ring{};
constexpr uint64_t kRun = 16;  // tags that a thread takes at once; 0 is no tag
alignas(64) constinit std::atomic<uint64_t> last_tag{kRun};

constinit std::atomic<Op*> ops{nullptr};
constinit std::atomic<InvalidIndexOp*> invalid_index_ops{nullptr};
constinit std::atomic<const char* (*)()> line_finder{nullptr};

// The header half word of a tensor; bits 16… mark the record's end and cuts.
constexpr uint32_t kTensor = 1u << 31, kCut = 1u << 30;

struct Copy {
  uint64_t tag;
  const Op* op;
  const Stream* stream;
  const char* line;
  std::array<uint64_t, kWords> shapes;

  uint32_t half(int i) const { return static_cast<uint32_t>(shapes[i / 2] >> (i % 2 * 32)); }
};

constexpr int kTagBits = 43;
constexpr uint64_t kTagMask = (uint64_t{1} << kTagBits) - 1;

// A sum, so that the half words' products do not wait for each other.
uint64_t check_of(const void* a, const void* b, const void* c) noexcept {
  auto bits = [](const void* p) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p)); };
  return bits(a) * 0x9E3779B97F4A7C15u + bits(b) * 0xC2B2AE3D27D4EB4Fu + bits(c) * 0x165667B19E3779F9u;
}
uint64_t check_of(uint32_t half, int i) noexcept {
  return (half + 1) * (0xD6E8FEB86659FD93u + 2 * uint64_t(i));
}
uint64_t tag_word(uint64_t tag, int halves, uint64_t check) noexcept {
  return (tag & kTagMask) | uint64_t(halves) << kTagBits | check >> 48 << 48;
}

bool read(uint64_t tag, Copy& out) noexcept {
  const Record& r = ring[tag % kRing];
  const uint64_t word = r.tag.load(std::memory_order_acquire);
  if (!tag || (word & kTagMask) != (tag & kTagMask)) return false;
  out.tag = tag;
  out.op = r.op.load(std::memory_order_acquire);
  out.stream = r.stream.load(std::memory_order_acquire);
  out.line = r.line.load(std::memory_order_acquire);
  for (int i = 0; i < kWords; ++i) out.shapes[i] = r.shapes[i].load(std::memory_order_acquire);
  if (r.tag.load(std::memory_order_relaxed) != word) return false;
  int halves = static_cast<int>(word >> kTagBits & 31);
  uint64_t check = check_of(out.op, out.stream, out.line);
  for (int i = 0; i < halves && i < kHalves; ++i) check += check_of(out.half(i), i);
  return tag_word(tag, halves, check) == word;
}

const char* dtype_text(unsigned dtype) {
  static constexpr const char* kTexts[] = {"no dtype",
#define FL_DTYPE_TEXT(name, value, bytes, text) text,
                                           FL_DTYPE_MAP(FL_DTYPE_TEXT)
#undef FL_DTYPE_TEXT
  };
  return dtype < FL_DTYPE_COUNT ? kTexts[dtype] : "?";
}

std::string shapes_text(const Copy& c) {
  std::string text;
  for (int i = 0; i < kHalves && (c.half(i) & (kTensor | kCut));) {
    uint32_t header = c.half(i++);
    text += text.empty() ? "" : ", ";
    if (!(header & kTensor)) return text + "…";
    text += dtype_text(header & 0xff);
    text += '[';
    int ndim = static_cast<int>(header >> 8 & 0xff);
    for (int d = 0; d < ndim && i < kHalves; ++d) {
      text += d ? ", " : "";
      if (d == kMaxShown) {
        text += "…";
        break;
      }
      uint32_t size = c.half(i++);
      text += size == UINT32_MAX ? ">=4294967295" : std::to_string(size);
    }
    text += ']';
  }
  return text;
}

std::string text_of(const Copy& c) {
  std::string text = c.op->name;
  text += " on " + device(c.stream->device).name + ", stream " + std::to_string(c.stream->id);
  std::string shapes = shapes_text(c);
  if (!shapes.empty()) text += ": " + shapes;
  if (c.line) text += std::string("; submitted at ") + c.line;
  return text;
}

}  // namespace

Op::Op(const char* text) : name(text), next(ops.load(std::memory_order_relaxed)) {
  while (!ops.compare_exchange_weak(next, this, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

InvalidIndexOp::InvalidIndexOp(const char* text)
    : Op(text), next_invalid(invalid_index_ops.load(std::memory_order_relaxed)) {
  while (!invalid_index_ops.compare_exchange_weak(next_invalid, this, std::memory_order_release,
                                                  std::memory_order_relaxed)) {
  }
}

Op* first_op() noexcept { return ops.load(std::memory_order_acquire); }

Op& find_op(const std::string& name) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  for (Op* op = first_op(); op; op = op->next)
    if (name == op->name) return *op;
  char* kept = new char[name.size() + 1];  // lives for ever, as the Op does
  memcpy(kept, name.c_str(), name.size() + 1);
  return *new Op(kept);
}

namespace {

// Tags count up in runs that a thread takes at once: an atomic add for each
// launch would cost a third of the whole call.
thread_local constinit uint64_t next_tag = 0;

// A thread that launches seldom must not use tags of long ago: their places in
// the ring are other launches' by now.
uint64_t take_tag() noexcept {
  uint64_t tag = next_tag;
  if (tag % kRun == 0 || last_tag.load(std::memory_order_relaxed) - tag > kRing / 16)
    tag = last_tag.fetch_add(kRun, std::memory_order_relaxed);
  next_tag = tag + 1;
  return tag;
}

}  // namespace

fl_launch make_launch(const Op& op, Stream& stream, const fl_tensor* const* tensors, int n_tensors) noexcept {
  uint64_t tag = take_tag();
  Record& r = ring[tag % kRing];
  // The next record's lines are on their way while this one is written: the ring is larger than the L1 cache.
  __builtin_prefetch(&ring[(tag + 1) % kRing], 1);
  __builtin_prefetch(reinterpret_cast<const char*>(&ring[(tag + 1) % kRing]) + 64, 1);
  r.tag.store(0, std::memory_order_relaxed);
  r.op.store(&op, std::memory_order_release);
  r.stream.store(&stream, std::memory_order_release);
  const char* line = fault_lines() ? user_line() : nullptr;
  r.line.store(line, std::memory_order_release);

  // Pairs of half words go out as they are made: a buffer of halves, read back
  // as words, would stall on store forwarding.
  uint64_t low = 0, check = check_of(&op, &stream, line);
  int n = 0;
  auto put = [&](uint32_t half) {
    check += check_of(half, n);
    if (n & 1) r.shapes[n / 2].store(low | uint64_t{half} << 32, std::memory_order_release);
    low = half;
    ++n;
  };
  for (int t = 0; t < n_tensors; ++t) {
    const fl_tensor& x = *tensors[t];
    int shown = x.ndim < kMaxShown ? x.ndim : kMaxShown;
    if (t == kMaxTensors || n + 1 + shown > kHalves - 1) {
      put(kCut);
      break;
    }
    put(kTensor | static_cast<uint32_t>(x.ndim) << 8 | x.dtype);
    for (int d = 0; d < shown; ++d)
      put(x.sizes[d] < int64_t{UINT32_MAX} ? static_cast<uint32_t>(x.sizes[d]) : UINT32_MAX);
  }
  // The end: a half word of 0, in the last word or one of its own.
  if (n & 1) put(0);
  else if (n < kHalves) r.shapes[n / 2].store(0, std::memory_order_release);
  r.tag.store(tag_word(tag, n, check), std::memory_order_release);
  return {stream.handle, tag, stream.local, 0};
}

std::string describe_launch(uint64_t tag) {
  Copy c;
  if (!tag) return "an operator that the chip does not name";
  if (read(tag, c)) return text_of(c);
  return "launch " + std::to_string(tag) + ", which is no longer recorded (the last " +
         std::to_string(kRing) + " are)";
}

std::string describe_last_launches(const Stream& stream, int n) {
  std::string text;
  uint64_t last = last_tag.load(std::memory_order_relaxed);
  Copy c;
  for (uint64_t back = 0; n > 0 && back < kRing && back < last; ++back) {
    if (!read(last - back, c) || c.stream != &stream) continue;
    text = text_of(c) + (text.empty() ? "" : "; then " + text);
    --n;
  }
  return text;
}

fl_status error_status(const Op& op, fl_status fault) noexcept {
  if (fault != FL_INDEX_OUT_OF_RANGE) return fault;
  for (const InvalidIndexOp* o = invalid_index_ops.load(std::memory_order_acquire); o; o = o->next_invalid)
    if (o == &op) return FL_INVALID;
  return fault;
}

fl_status error_status(uint64_t tag, fl_status fault) noexcept {
  Copy c;
  return read(tag, c) ? error_status(*c.op, fault) : fault;
}

std::string line_hint(uint64_t tag) {
  Copy c;
  if (fault_lines() || (read(tag, c) && c.line)) return "";
  return ". For the Python line that submitted it: FL_FAULT_LINES=1, or torch.fl.config.fault_lines = True";
}

Stream* launch_stream(const fl_launch& launch) noexcept {
  Copy c;
  auto fits = [&](const Stream* s) { return s && s->handle == launch.stream && s->local == launch.device; };
  if (read(launch.tag, c) && fits(c.stream)) return existing_stream(c.stream->device, c.stream->id);
  // Overtaken by a whole ring of launches while its own was being made.
  for (int32_t d = 0; d < kMaxDevices; ++d)
    for (int64_t id = 0; id < kStreams; ++id)
      if (Stream* s = existing_stream(d, id); fits(s)) return s;
  return nullptr;
}

const Op& launch_op(const fl_launch& launch) noexcept {
  static Op unknown("an operator that is no longer recorded");
  Copy c;
  return read(launch.tag, c) ? *c.op : unknown;
}

void set_line_finder(const char* (*finder)()) { line_finder.store(finder, std::memory_order_release); }

const char* user_line() {
  auto* finder = line_finder.load(std::memory_order_acquire);
  return finder ? finder() : nullptr;
}

}  // namespace fl
