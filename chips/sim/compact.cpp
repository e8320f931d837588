// Where a mask is true: the mask is cut into pieces, the pieces' counts say
// where each of them writes.
#include <cstring>

#include "fl/author/space.h"
#include "sim.h"

namespace sim {
namespace {

constexpr int64_t kPiece = 16384;

int64_t count_run(const char* mask, int64_t stride, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += mask[i * stride] != 0;
  return count;
}

// Eight elements at a time: often none or all of them are true.
int64_t* write_run(const char* mask, int64_t stride, int64_t n, int64_t number, int64_t* to) {
  int64_t i = 0;
  if (stride == 1)
    for (; i + 8 <= n; i += 8) {
      uint64_t eight;
      std::memcpy(&eight, mask + i, 8);
      if (!eight) continue;
      if (eight == 0x0101010101010101u) {
        for (int j = 0; j < 8; ++j) to[j] = number + i + j;
        to += 8;
        continue;
      }
      // What is written behind the last is written again, or cut off by the count.
      for (int j = 0; j < 8; ++j) *to = number + i + j, to += mask[i + j] != 0;
    }
  for (; i < n; ++i)
    if (mask[i * stride]) *to++ = number + i;
  return to;
}

struct Compact {
  Tensor mask, index, count;

  // f(address, stride, n, number of the first) over runs of points begin … end-1.
  template <class F>
  static void runs(const Space<1>& space, const char* data, int64_t begin, int64_t end, F&& f) {
    Cursor<1> cursor(space, begin);
    for (int64_t i = begin; i < end;) {
      const int64_t n = std::min(cursor.left(), end - i);
      f(data + cursor.offset[0], space.inner_stride(0), n, i);
      cursor.advance(n), i += n;
    }
  }

  void operator()(Context& context) const {
    Space<1> space(1);
    for (int d = 0; d < mask.ndim; ++d) space.push(mask.sizes[d])[0] = mask.strides[d];
    space.merge();
    const int64_t n = space.points(), pieces = (n + kPiece - 1) / kPiece;
    int64_t* starts = static_cast<int64_t*>(context.scratch(size_t(pieces + 1) * 8));
    parallel(pieces, 8, [&](int64_t b, int64_t e) {
      for (int64_t p = b; p < e; ++p) {
        int64_t found = 0;
        runs(space, mask.data, p * kPiece, std::min(n, (p + 1) * kPiece),
             [&](const char* at, int64_t stride, int64_t m, int64_t) { found += count_run(at, stride, m); });
        starts[p + 1] = found;
      }
    });
    starts[0] = 0;
    for (int64_t p = 0; p < pieces; ++p) starts[p + 1] += starts[p];
    *count.as<int64_t>() = starts[pieces];
    int64_t* to = index.as<int64_t>();
    parallel(pieces, 8, [&](int64_t b, int64_t e) {
      for (int64_t p = b; p < e; ++p) {
        // Into a place of its own first: a piece writes a few behind its last.
        int64_t found[kPiece + 8], *end = found;
        runs(space, mask.data, p * kPiece, std::min(n, (p + 1) * kPiece),
             [&](const char* at, int64_t stride, int64_t m, int64_t number) {
               end = write_run(at, stride, m, number, end);
             });
        std::memcpy(to + starts[p], found, size_t(end - found) * 8);
      }
    });
  }
};

}  // namespace

fl_status compact(const fl_launch* launch, const fl_compact_args* args) {
  if (args->mask.dtype != FL_BOOL) return FL_UNSUPPORTED;
  return submit(launch, "compact", Compact{Tensor(args->mask), Tensor(args->index), Tensor(args->count)});
}

void claim_compact(Claims& claims) { claims.push_back({FL_ENTRY_COMPACT, FL_ANY, FL_BIT(FL_BOOL)}); }

}  // namespace sim
