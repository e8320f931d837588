// Sorting along an axis, whole or the first k.
//
// Short slices are sorted by comparison, long ones by the digits of their keys,
// lowest first, which is stable.  Where few of many are wanted, each piece of the
// slice keeps its best in a small heap-like buffer behind a threshold.  Many
// slices are shared out among the threads; a single long one is worked on by
// all of them, cut into pieces, and the result does not depend on the cut.
#include <cstring>

#include "slices.h"
#include "sort_keys.h"

namespace sim {
namespace {

constexpr int64_t kShort = 512;     // sorted by comparison
constexpr int64_t kLong = 1 << 16;  // worth all threads
constexpr int64_t kGrain = 8192;    // values worth a thread
constexpr int64_t kStripBytes = 1 << 18;
constexpr int64_t kMostPieces = 64;

template <class Key, class Entry>
class Sorter {
  using Bits = typename Key::Bits;
  static constexpr int kKeyBits = 8 * sizeof(Bits);
  // Wide digits, that is few passes, where a slice is much longer than a digit has values.
  static constexpr int kNarrow = 8, kWide = kKeyBits == 32 ? 11 : 8;
  static constexpr int digits(int width) { return (kKeyBits + width - 1) / width; }
  using Counts = int64_t[1 << kWide];

 public:
  // Keys are compared with the bits of `flip` turned over.
  Sorter(const Tensor& in, const Tensor& out, const Tensor& index, int axis, Bits flip)
      : slices_({&in, &out, &index}, axis), flip_(flip), n_(slices_.length) {
    const Tensor& result = out ? out : index;
    wanted_ = result.ndim ? result.sizes[axis] : 1;
    // What is read again while it is being overwritten needs a copy.
    copies_ = Key::kLoses && out && out.data == in.data;
    few_ = wanted_ <= n_ / 8;
  }

  void run(Context& context) {
    if (n_ >= kLong && slices_.count() < 2 * omp_get_max_threads()) return one_by_one(context);
    const int64_t inner = slices_.space.inner_size();
    int64_t width = 1;
    if (slices_.side_by_side())
      width =
          std::max<int64_t>(1, std::min({int64_t{16}, inner, kStripBytes / (n_ * int64_t(sizeof(Entry)))}));
    const int64_t strips = (inner + width - 1) / width;
    ThreadScratch entries(context, size_t(width * n_) * sizeof(Entry)),
        other(context, size_t(n_) * sizeof(Entry)),
        originals(context, copies_ || few_ ? size_t(width * n_) * sizeof(Bits) : 0);
    parallel(slices_.count() / inner * strips, std::max<int64_t>(1, kGrain / (width * n_)),
             [&](int64_t begin, int64_t end) {
               Entry *all = entries.get<Entry>(), *spare = other.get<Entry>();
               // A few of each of many slices are looked for in a copy that lies slice by slice.
               Bits* kept = copies_ || (few_ && width > 1) ? originals.get<Bits>() : nullptr;
               for (int64_t i = begin; i < end; ++i) {
                 Cursor<3> cursor(slices_.space, i / strips, 1);
                 const int64_t first = i % strips * width, m = std::min(width, inner - first);
                 char* at[3];
                 for (int k = 0; k < 3; ++k)
                   at[k] = slices_.data[k] + cursor.offset[k] + first * slices_.space.inner_stride(k);
                 strip(at, m, all, spare, kept);
               }
             });
  }

 private:
  Bits read(const char* at) const { return *reinterpret_cast<const Bits*>(at); }
  Entry entry(const char* in, int64_t i) const {
    return Entry(Bits(Key::key(read(in + i * slices_.along[0])) ^ flip_), i);
  }

  // m neighbouring slices by one thread.
  void strip(char** at, int64_t m, Entry* all, Entry* spare, Bits* kept) const {
    const int64_t step = slices_.space.inner_stride(0), along = slices_.along[0];
    for (int64_t i = 0; kept && i < n_; ++i)
      for (int64_t j = 0; j < m; ++j) kept[j * n_ + i] = read(at[0] + j * step + i * along);
    if (few_) {
      for (int64_t j = 0; j < m; ++j) {
        Entry* a = all + j * n_;
        best(a, kept ? best_of(reinterpret_cast<char*>(kept + j * n_), sizeof(Bits), 0, n_, a)
                     : best_of(at[0] + j * step, along, 0, n_, a));
      }
    } else {
      for (int64_t i = 0; i < n_; ++i)
        for (int64_t j = 0; j < m; ++j) all[j * n_ + i] = entry(at[0] + j * step, i);
      for (int64_t j = 0; j < m; ++j) {
        Entry* a = all + j * n_;
        if (n_ <= kShort) std::sort(a, a + n_);
        else if (Entry* sorted = by_digits(a, spare, n_); sorted != a)
          std::memcpy(a, sorted, size_t(n_) * sizeof(Entry));
      }
    }
    for (int64_t j = 0; j < m; ++j) {
      char* to[3];
      for (int k = 0; k < 3; ++k) to[k] = at[k] + j * slices_.space.inner_stride(k);
      store(all + j * n_, to, 0, wanted_, kept ? kept + j * n_ : nullptr);
    }
  }

  // The wanted ones in order at the front.
  void best(Entry* a, int64_t n) const {
    if (wanted_ < n) std::nth_element(a, a + wanted_, a + n);
    std::sort(a, a + std::min(wanted_, n));
  }

  void store(const Entry* sorted, char* const* at, int64_t begin, int64_t end, const Bits* kept) const {
    if (slices_.data[1])
      for (int64_t i = begin; i < end; ++i) {
        const Bits key = Bits(Bits(sorted[i].key()) ^ flip_);
        Bits bits = Key::bits(key);
        if (Key::kLoses && Key::lost(key))
          bits = kept ? kept[sorted[i].index()] : read(at[0] + sorted[i].index() * slices_.along[0]);
        *reinterpret_cast<Bits*>(at[1] + i * slices_.along[1]) = bits;
      }
    if (slices_.data[2])
      for (int64_t i = begin; i < end; ++i)
        *reinterpret_cast<int64_t*>(at[2] + i * slices_.along[2]) = sorted[i].index();
  }

  // From the lowest digit up, between two arrays; returns where the result is.
  static Entry* by_digits(Entry* from, Entry* to, int64_t n) {
    constexpr int kDigits = digits(kNarrow);
    int64_t counts[kDigits][1 << kNarrow] = {};
    for (int64_t i = 0; i < n; ++i)
      for (int d = 0; d < kDigits; ++d) ++counts[d][digit<kNarrow>(from[i], d)];
    for (int d = 0; d < kDigits; ++d) {
      if (counts[d][digit<kNarrow>(from[0], d)] == n) continue;  // all alike
      int64_t sum = 0;
      for (int64_t& c : counts[d]) {
        int64_t count = c;
        c = sum, sum += count;
      }
      for (int64_t i = 0; i < n; ++i) to[counts[d][digit<kNarrow>(from[i], d)]++] = from[i];
      std::swap(from, to);
    }
    return from;
  }
  template <int kWidth>
  static unsigned digit(const Entry& e, int d) {
    return unsigned(e.key() >> (d * kWidth)) & ((1u << kWidth) - 1);
  }

  // Each slice by all threads.
  void one_by_one(Context& context) {
    const int64_t pieces = std::min<int64_t>(omp_get_max_threads(), kMostPieces);
    Entry* a = static_cast<Entry*>(context.scratch(size_t(n_) * sizeof(Entry)));
    Entry* b = few_ ? nullptr : static_cast<Entry*>(context.scratch(size_t(n_) * sizeof(Entry)));
    Bits* kept = copies_ ? static_cast<Bits*>(context.scratch(size_t(n_) * sizeof(Bits))) : nullptr;
    auto* counts = static_cast<Counts*>(context.scratch(size_t(pieces) * sizeof(Counts)));
    // f(piece, begin, end) for each piece of 0 … n-1.
    auto each_piece = [&](int64_t n, auto&& f) {
      parallel(pieces, 1, [&](int64_t p, int64_t q) {
        for (; p < q; ++p) f(p, n * p / pieces, n * (p + 1) / pieces);
      });
    };
    Cursor<3> cursor(slices_.space);
    for (int64_t s = 0; s < slices_.count(); ++s, cursor.advance(1)) {
      char* at[3];
      for (int k = 0; k < 3; ++k) at[k] = slices_.data[k] + cursor.offset[k];
      if (kept)
        each_piece(n_, [&](int64_t, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) kept[i] = read(at[0] + i * slices_.along[0]);
        });
      Entry* sorted = a;
      if (few_) {
        int64_t found[kMostPieces];
        each_piece(n_, [&](int64_t p, int64_t begin, int64_t end) {
          found[p] = best_of(at[0], slices_.along[0], begin, end, a + begin);
        });
        int64_t all = found[0];
        for (int64_t p = 1; p < pieces; all += found[p++])
          std::memmove(a + all, a + n_ * p / pieces, size_t(found[p]) * sizeof(Entry));
        best(a, all);
      } else {
        sorted = by_digits_together(at[0], a, b, counts, pieces, each_piece);
      }
      each_piece(wanted_, [&](int64_t, int64_t begin, int64_t end) { store(sorted, at, begin, end, kept); });
    }
  }

  template <class EachPiece>
  Entry* by_digits_together(const char* in, Entry* from, Entry* to, Counts* counts, int64_t pieces,
                            EachPiece&& each_piece) const {
    for (int d = 0; d < digits(kWide); ++d) {
      each_piece(n_, [&](int64_t p, int64_t begin, int64_t end) {
        int64_t* count = counts[p];
        std::fill(count, count + (1 << kWide), 0);
        if (d == 0)
          for (int64_t i = begin; i < end; ++i) from[i] = entry(in, i);
        for (int64_t i = begin; i < end; ++i) ++count[digit<kWide>(from[i], d)];
      });
      int64_t sum = 0, alike = 0;
      for (int v = 0; v < 1 << kWide; ++v) {
        const int64_t start = sum;
        for (int64_t p = 0; p < pieces; ++p) {
          const int64_t count = counts[p][v];
          counts[p][v] = sum, sum += count;
        }
        alike = std::max(alike, sum - start);
      }
      if (alike == n_) continue;
      each_piece(n_, [&](int64_t p, int64_t begin, int64_t end) {
        int64_t* place = counts[p];
        for (int64_t i = begin; i < end; ++i) to[place[digit<kWide>(from[i], d)]++] = from[i];
      });
      std::swap(from, to);
    }
    return from;
  }

  // The wanted ones (or all, if there are fewer) of begin … end-1, in any order.  A block
  // of keys without one below the threshold is passed over.
  int64_t best_of(const char* in, int64_t along, int64_t begin, int64_t end, Entry* kept) const {
    constexpr int64_t kBlock = 64;
    const int64_t room = std::min(end - begin, std::max<int64_t>(4 * wanted_, 64));
    int64_t count = 0;
    bool limited = false;
    Bits threshold = 0;  // when limited, the key of the worst that is kept
    Bits keys[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = std::min(kBlock, end - i);
      const char* at = in + i * along;
      Bits lowest = Bits(~Bits(0));
      if (along == int64_t(sizeof(Bits)))
        for (int64_t j = 0; j < n; ++j) {
          keys[j] = Bits(Key::key(reinterpret_cast<const Bits*>(at)[j]) ^ flip_);
          lowest = std::min(lowest, keys[j]);
        }
      else
        for (int64_t j = 0; j < n; ++j) {
          keys[j] = Bits(Key::key(read(at + j * along)) ^ flip_);
          lowest = std::min(lowest, keys[j]);
        }
      if (limited && lowest >= threshold) continue;
      for (int64_t j = 0; j < n; ++j) {
        // Of equal keys the first met is wanted, so that one equal to the threshold comes too late.
        if (limited && keys[j] >= threshold) continue;
        kept[count++] = Entry(keys[j], i + j);
        if (count < room || room == end - begin) continue;
        std::nth_element(kept, kept + wanted_ - 1, kept + count);
        count = wanted_, threshold = Bits(kept[wanted_ - 1].key()), limited = true;
      }
    }
    if (count > wanted_) std::nth_element(kept, kept + wanted_, kept + count), count = wanted_;
    return count;
  }

  Slices<3> slices_;  // in, out, index
  Bits flip_;
  int64_t n_, wanted_;
  bool copies_, few_;
};

struct Sort {
  Tensor in, out, index;
  int axis;
  bool descending;

  template <class Key>
  void run(Context& context, bool is_signed = false) const {
    using Bits = typename Key::Bits;
    constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));
    const Bits flip = Bits((descending ? ~Bits(0) : 0) ^ (is_signed ? kSign : 0));
    const int64_t n = in.ndim ? in.sizes[axis] : 1;
    if (sizeof(Bits) <= 4 && n <= int64_t{1} << 32)
      Sorter<Key, PackedEntry>(in, out, index, axis, flip).run(context);
    else Sorter<Key, WideEntry>(in, out, index, axis, flip).run(context);
  }
  void operator()(Context& context) const {
    switch (in.dtype) {
      case FL_BOOL:
      case FL_U8:
      case FL_I8:
        return run<UnsignedKey<uint8_t>>(context, in.dtype == FL_I8);
      case FL_U16:
      case FL_I16:
        return run<UnsignedKey<uint16_t>>(context, in.dtype == FL_I16);
      case FL_U32:
      case FL_I32:
        return run<UnsignedKey<uint32_t>>(context, in.dtype == FL_I32);
      case FL_U64:
      case FL_I64:
        return run<UnsignedKey<uint64_t>>(context, in.dtype == FL_I64);
      case FL_F16:
        return run<FloatKey<uint16_t, 0x7c00>>(context);
      case FL_BF16:
        return run<FloatKey<uint16_t, 0x7f80>>(context);
      case FL_F32:
        return run<FloatKey<uint32_t, 0x7f800000>>(context);
      default:
        return run<FloatKey<uint64_t, 0x7ff0000000000000>>(context);
    }
  }
};

constexpr uint32_t kSorted = FL_BIT(FL_BOOL) | FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_U16) |
                             FL_BIT(FL_I16) | FL_BIT(FL_U32) | FL_BIT(FL_I32) | FL_BIT(FL_U64) |
                             FL_BIT(FL_I64) | kFloats;

}  // namespace

fl_status sort(const fl_launch* launch, const fl_sort_args* args) {
  if (!(kSorted >> args->in.dtype & 1) || (args->out && args->out->dtype != args->in.dtype))
    return FL_UNSUPPORTED;
  if (!valid_axis("sort", args->in, args->axis)) return FL_INVALID;
  if (!args->out && !args->index) return FL_OK;
  return submit(
      launch, "sort",
      Sort{Tensor(args->in), optional(args->out), optional(args->index), args->axis, args->descending != 0});
}

void claim_sort(Claims& claims) { claims.push_back({FL_ENTRY_SORT, FL_ANY, kSorted}); }

}  // namespace sim
