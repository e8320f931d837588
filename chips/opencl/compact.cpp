// Where a mask is true.
#include <algorithm>

#include "fl/author/space.h"
#include "chip.h"
#include "kernel_sources.h"
#include "launch.h"

namespace ocl {

fl_status compact(const fl_launch* launch, const fl_compact_args* a) {
  if (a->mask.dtype != FL_BOOL || a->index.dtype != FL_I64 || a->count.dtype != FL_I64) return FL_UNSUPPORTED;
  Device& d = *launch->stream->device;
  Kernel* kernel = d.library->get(Family::other, uint64_t{3} << 32, [] {
    return Source{std::string("\n") + kernel_source_compact, "", "compact"};
  });
  if (!kernel) return FL_FAILED;
  Space<1> space(1);
  for (int i = 0; i < a->mask.ndim; ++i) space.push(a->mask.sizes[i])[0] = a->mask.strides[i];
  space.merge();
  if (space.ndim == 0) space.push(1)[0] = 0;
  struct {
    int64_t n, parts, part, rank, size[FL_MAX_DIMS], stride[FL_MAX_DIMS], mask, index, count, counts;
  } p{};
  p.n = space.points(), p.rank = space.ndim;
  for (int i = 0; i < space.ndim; ++i) p.size[i] = space.size[i], p.stride[i] = space.stride[i][0];
  const int64_t wanted = (d.info.processor ? 4 : 256) * int64_t{d.info.units},
                least = d.info.processor ? 8192 : 64;
  p.parts = std::clamp<int64_t>(p.n / least, 1, std::min<int64_t>(wanted, 1024));
  p.part = (p.n + p.parts - 1) / p.parts;
  void* counts;
  if (fl_status status = host()->scratch(launch, static_cast<size_t>(p.parts) * 8, &counts)) return status;
  for (int stage = 0; stage < 2; ++stage) {
    Launch l(launch, kernel);
    l.at(2);
    p.mask = static_cast<int64_t>(l.buffer(a->mask.data));
    p.index = static_cast<int64_t>(l.buffer(a->index.data));
    p.count = static_cast<int64_t>(l.buffer(a->count.data));
    p.counts = static_cast<int64_t>(l.buffer(counts));
    l.at(0);
    l.value(p);
    l.value(int32_t{stage});
    Shape shape = shape_for(d, p.parts, 1);
    if (fl_status status = l.run(shape.groups, shape.local)) return status;
  }
  return FL_OK;
}

void claim_compact(Claims& claims) { claims.push_back({FL_ENTRY_COMPACT, FL_ANY, FL_BIT(FL_BOOL)}); }

}  // namespace ocl
