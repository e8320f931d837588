// oneDNN as the chip uses it: primitives kept per worker thread under a key of
// our own (oneDNN's own lookup costs microseconds), arguments bound once, and
// handles set for each run.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"

#include "sim.h"

namespace sim {

// What a primitive was made for: a list of numbers.
struct PrimitiveKey {
  static constexpr int kMaxWords = 64;
  int n = 0;
  int64_t words[kMaxWords];

  void add(int64_t word) { words[n++] = word; }
  void add(const int64_t* from, int count) {
    std::copy(from, from + count, words + n);
    n += count;
  }
  bool operator==(const PrimitiveKey& o) const { return n == o.n && std::equal(words, words + n, o.words); }
};

struct PrimitiveKeyHash {
  size_t operator()(const PrimitiveKey& key) const {
    uint64_t h = 0x9e3779b97f4a7c15u + key.n;
    for (int i = 0; i < key.n; ++i) {
      h = (h ^ static_cast<uint64_t>(key.words[i])) * 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return h;
  }
};

const dnnl::engine& dnnl_engine();
dnnl::memory::data_type dnnl_type(uint8_t dtype);  // F16 BF16 F32; undef otherwise

// Work this small is done before a team of threads has met: for its scope, the
// calling thread's team is itself.  A primitive must be made and run under the
// same one.
class SmallTeam {
 public:
  explicit SmallTeam(bool small);
  ~SmallTeam();
  SmallTeam(const SmallTeam&) = delete;

 private:
  int threads_ = 0;  // to go back to; 0: nothing was changed
};
constexpr int64_t kSmallTeamWork = 1 << 17;  // multiplications, about 2 µs

// A primitive with its arguments.  Not usable: oneDNN has no optimised kernel.
class Primitive {
 public:
  Primitive() = default;
  Primitive(Primitive&&) = default;
  Primitive& operator=(Primitive&&) = default;

  template <class Desc>
  void make(const Desc& desc) {
    primitive_ = dnnl::primitive(desc.get());
    scratch_ = desc.scratchpad_desc().get_size();
    if (scratch_) bind(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc());
  }
  void bind(int argument, const dnnl::memory::desc& desc);
  bool usable() const { return static_cast<bool>(primitive_); }
  size_t scratch() const { return scratch_; }
  void set(int argument, const void* data);
  // Runs on the calling thread's team; takes its scratchpad from the context.
  bool run(Context& context, const char* what);

 private:
  dnnl::primitive primitive_;
  size_t scratch_ = 0;
  std::vector<dnnl::memory> memory_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// One a thread: neither lock nor sharing of bound arguments.  What does not fit
// any more starts afresh: oneDNN keeps its own cache behind this one.
template <class Entry>
class PrimitiveCache {
 public:
  template <class Make>
  Entry& get(const PrimitiveKey& key, Make&& make) {
    auto found = entries_.find(key);
    if (found != entries_.end()) return *found->second;
    if (entries_.size() >= kMaxEntries) entries_.clear();
    auto entry = std::make_unique<Entry>();
    make(*entry);
    return *entries_.emplace(key, std::move(entry)).first->second;
  }

 private:
  static constexpr size_t kMaxEntries = 1024;
  std::unordered_map<PrimitiveKey, std::unique_ptr<Entry>, PrimitiveKeyHash> entries_;
};

// out[batch, m, n] = alpha × a·b + bias + accumulate × out
struct Matmul {
  uint8_t in = FL_F32, out = FL_F32;
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t a_strides[3], b_strides[3], out_strides[3];
  bool bias = false;  // [n], contiguous, of type `out`
  float alpha = 1, accumulate = 0;
};

// False: oneDNN has no optimised kernel for this, and nothing happened.
bool run_matmul(Context& context, const Matmul& matmul, const void* a, const void* b, const void* bias,
                void* out);

}  // namespace sim
