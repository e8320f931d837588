// Sorting along an axis, stable: by merging in one work-item where slices are short, else by radix; the first
// few of long slices without sorting the rest.
#include <algorithm>
#include <string>

#include "chip.h"
#include "kernel_sources.h"
#include "launch.h"
#include "slices.h"

namespace ocl {

namespace {

constexpr uint32_t kFloats = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);
constexpr uint32_t kSigned = FL_BIT(FL_I8) | FL_BIT(FL_I16) | FL_BIT(FL_I32) | FL_BIT(FL_I64);
constexpr uint32_t kSorted =
    kFloats | kSigned | FL_BIT(FL_BOOL) | FL_BIT(FL_U8) | FL_BIT(FL_U16) | FL_BIT(FL_U32) | FL_BIT(FL_U64);
// As in sort.cl.
constexpr int64_t kMergedOnProcessor = 256, kMerged = 128, kFirst = 64;
constexpr size_t kWorkBytes = size_t{128} << 20;  // of one round of slices

enum class Way : uint8_t { radix, merge, first };

std::string definitions(uint8_t dtype, Way way) {
  const size_t bits = 8 * dtype_size(dtype);
  const char* raw = bits == 8 ? "uchar" : bits == 16 ? "ushort" : bits == 32 ? "uint" : "ulong";
  const char* key = bits == 64 ? "ulong" : "uint";
  std::string t = "\n#define RAW " + std::string(raw) + "\n#define KEY " + key + "\n";
  const std::string sign = "(" + std::string(raw) + ")((" + raw + ")1 << " + std::to_string(bits - 1) + ")";
  if (kFloats >> dtype & 1) {
    const char* infinity = dtype == FL_F16    ? "0x7c00"
                           : dtype == FL_BF16 ? "0x7f80"
                           : dtype == FL_F32  ? "0x7f800000u"
                                              : "0x7ff0000000000000ul";
    t += "static inline KEY key_of(RAW r) {\n  const RAW size = r & (RAW)~(" + sign + ");\n  if (size > " +
         infinity + ") return (RAW)~(RAW)0;\n  if (size == 0) r = 0;\n  return r & " + sign +
         " ? (RAW)~r : (RAW)(r | " + sign + ");\n}\n#define KEY_OF(r) key_of(r)\n";
  } else if (kSigned >> dtype & 1) {
    t += "#define KEY_OF(r) (KEY)(RAW)((r) ^ " + sign + ")\n";
  } else {
    t += dtype == FL_BOOL ? "#define KEY_OF(r) (KEY)((r) != 0)\n" : "#define KEY_OF(r) (KEY)(r)\n";
  }
  return t + (way == Way::radix   ? "#define RADIX\n"
              : way == Way::merge ? "#define MERGE\n"
                                  : "#define FIRST\n");
}

struct SortParameters {
  int64_t first, cells, n, k, parts, part;
  uint64_t flip;
  int64_t shift, from, to, counts, has_out, has_index;
  int64_t rank, size[FL_MAX_DIMS], stride[3][FL_MAX_DIMS], step[3], offset[3];
};

}  // namespace

fl_status sort(const fl_launch* launch, const fl_sort_args* a) {
  Device& d = *launch->stream->device;
  const uint8_t dtype = a->in.dtype;
  if (!(kSorted >> dtype & 1) || (a->out && a->out->dtype != dtype)) return FL_UNSUPPORTED;
  if (fl_status status = check_axis("sort", a->in, a->axis)) return status;
  const fl_tensor* shape = a->out ? a->out : a->index;
  if (!shape) return FL_OK;
  // Results are written while elements are read: in place from a copy.
  fl_tensor in = a->in;
  int64_t dense[FL_MAX_DIMS];
  if (a->out && a->out->data == in.data) {
    int64_t n = 1;
    for (int k = in.ndim; k-- > 0;) dense[k] = n, n *= in.sizes[k];
    in.strides = dense;
    if (fl_status status = host()->scratch(launch, static_cast<size_t>(n) * dtype_size(dtype), &in.data))
      return status;
    fl_copy_args copied{a->in, in};
    if (fl_status status = copy(launch, &copied)) return status;
  }
  const fl_tensor* tensors[] = {&in, shape, a->index ? a->index : shape};
  Slices<3> s(tensors, a->axis);
  if (s.n > 0xfffffffell) return FL_UNSUPPORTED;  // places are kept in 32 bits
  SortParameters p{};
  p.n = s.n, p.k = shape->ndim ? shape->sizes[a->axis] : 1;
  p.flip = a->descending ? ~uint64_t{0} : 0;
  p.has_out = a->out != nullptr, p.has_index = a->index != nullptr;
  p.rank = s.space.ndim;
  s.fill(p.size, p.stride, p.step);
  const int64_t cells = s.space.points(), units = d.info.units;
  const Way way = p.n <= (d.info.processor ? kMergedOnProcessor : kMerged) ? Way::merge
                  : p.k <= kFirst                                          ? Way::first
                                                                           : Way::radix;
  Kernel* kernel = d.library->get(
      Family::other, uint64_t{dtype} | static_cast<uint64_t>(way) << 8 | uint64_t{2} << 32, [&] {
        static constexpr const char* names[] = {"radix", "merge", "first_of"};
        return Source{definitions(dtype, way) + kernel_source_sort, "", names[static_cast<int>(way)]};
      });
  if (!kernel) return FL_FAILED;

  const int64_t wanted = d.info.processor ? 2 * units : 512 * units, least = d.info.processor ? 4096 : 256;
  p.parts = way == Way::merge || cells >= wanted
                ? 1
                : std::max<int64_t>(1, std::min((wanted + cells - 1) / cells, p.n / least));
  p.part = (p.n + p.parts - 1) / p.parts;
  const int64_t item = dtype_size(dtype) == 8 ? 16 : 8, digit = d.info.processor ? 8 : 4;
  const int64_t items = way == Way::radix ? 2 * p.n : p.parts * p.k, counts = (int64_t{1} << digit) * p.parts;
  int64_t round = cells;
  void* work = const_cast<void*>(tensors[1]->data);
  if (way != Way::merge) {
    const int64_t each = items * item + counts * 4;
    round = std::clamp<int64_t>(static_cast<int64_t>(kWorkBytes) / each, 1, cells);
    if (fl_status status = host()->scratch(launch, static_cast<size_t>(round * each), &work)) return status;
  }
  auto run = [&](int stage, int64_t pieces, int64_t of) {
    Launch l(launch, kernel);
    l.at(way == Way::merge ? 1 : 2);
    for (int k = 0; k < 3; ++k) p.offset[k] = static_cast<int64_t>(l.buffer(tensors[k]->data));
    SortParameters q = p;
    if (way != Way::merge) {
      const auto base = static_cast<int64_t>(l.buffer(work));
      q.from += base, q.to += base, q.counts += base;
    }
    l.at(0);
    l.value(q);
    if (way != Way::merge) l.value(int32_t{stage});
    Shape shape_ = shape_for(d, pieces, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, of)));
    return l.run(shape_.groups, shape_.local);
  };
  for (p.first = 0; p.first < cells; p.first += round) {
    p.cells = std::min(round, cells - p.first);
    const int64_t pieces = p.cells * p.parts;
    if (way == Way::merge) {
      if (fl_status status = run(0, p.cells, p.n * 8)) return status;
      continue;
    }
    if (way == Way::first) {
      if (fl_status status = run(0, pieces, p.part)) return status;
      if (fl_status status = run(1, p.cells, p.parts * p.k)) return status;
      continue;
    }
    const int64_t one = p.cells * p.n * item;
    p.from = 0, p.to = one, p.counts = 2 * one;
    if (fl_status status = run(0, pieces, p.part)) return status;
    const int64_t bits = dtype == FL_BOOL ? digit : static_cast<int64_t>(8 * dtype_size(dtype));
    for (p.shift = 0; p.shift < bits; p.shift += digit) {
      if (fl_status status = run(1, pieces, p.part)) return status;
      if (fl_status status = run(2, p.cells, counts)) return status;
      if (fl_status status = run(3, pieces, p.part)) return status;
      std::swap(p.from, p.to);
    }
    if (fl_status status = run(4, pieces, p.part)) return status;
  }
  return FL_OK;
}

void claim_sort(Claims& claims) { claims.push_back({FL_ENTRY_SORT, FL_ANY, kSorted}); }

}  // namespace ocl
