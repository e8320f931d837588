// Layer, group, RMS and batch norm: the steps of kernels/norm.cl.
#include <cstring>
#include <iterator>

#include "fl/author/space.h"
#include "chip.h"
#include "lanes.h"

namespace ocl {

namespace {

// As in norm.cl.
enum Role {
  kX,
  kY,
  kGradX,
  kWeight,
  kBias,
  kMean,
  kRstd,
  kFirst,
  kSecond,
  kRunningMean,
  kRunningVar,
  kResultA,
  kResultB,
  kRoles
};
enum Step { kMoments, kDots, kFinish, kFinishBackward, kApply, kApplyBackward };

// An operand as [N, G, C, S]; batch norm has G = 1.
struct Operand {
  const void* data = nullptr;
  int64_t kind = 0;  // 0: not there, 1: of x's dtype, 2: F32
  int64_t stride[4] = {};
};

struct Job {
  const fl_launch* launch;
  Device& device;
  uint8_t dtype;  // of x
  int64_t size[4];
  Operand o[kRoles];
  bool rms = false, training = true;
  double eps = 0, momentum = 0;
  int64_t pieces = 1;
  void* sums = nullptr;

  Job(const fl_launch* l, const fl_tensor& x)
      : launch(l), device(*l->stream->device), dtype(x.dtype), size{1, 1, 1, 1} {
    for (int k = 0; k < x.ndim; ++k) size[place(x.ndim, k)] = x.sizes[k];
  }
  // [N, C, S] lies in [N, 1, C, S].
  static int place(int ndim, int k) { return ndim == 3 && k > 0 ? k + 1 : k; }

  void large(Role r, const fl_tensor& t) {
    o[r].data = t.data, o[r].kind = 1;
    for (int k = 0; k < t.ndim; ++k) o[r].stride[place(t.ndim, k)] = t.strides[k];
  }
  // One number for each index of the dimensions given. False: of a dtype that is not supported.
  bool small(Role r, const fl_tensor* t, std::initializer_list<int> dims) {
    if (!t) return true;
    if (t->dtype != dtype && t->dtype != FL_F32) return false;
    o[r].data = t->data, o[r].kind = t->dtype == dtype ? 1 : 2;
    int k = 0;
    for (int d : dims) o[r].stride[d] = t->strides[k++];
    return true;
  }
  // The same in scratch memory, in the type that is computed in.
  fl_status made(Role r, std::initializer_list<int> dims) {
    int64_t n = 1;
    o[r].kind = dtype == FL_F64 || dtype == FL_F32 ? 1 : 2;
    for (auto d = std::rbegin(dims); d != std::rend(dims); ++d) o[r].stride[*d] = n, n *= size[*d];
    void* data;
    fl_status status = host()->scratch(launch, static_cast<size_t>(n) * (dtype == FL_F64 ? 8 : 4), &data);
    o[r].data = data;
    return status;
  }

  fl_status run(Step step, bool across, const int64_t (&sizes)[4], const int64_t (&strides)[4][kRoles],
                int64_t units, int64_t blocks, int64_t count, Shape shape) {
    static constexpr const char* texts[] = {"#define SUMS\n",   "#define SUMS\n#define DOTS\n",
                                            "#define FINISH\n", "#define FINISH\n#define BACKWARD\n",
                                            "#define APPLY\n",  "#define APPLY\n#define BACKWARD\n"};
    Kernel* kernel = device.library->get(Family::norm, (dtype * 8u + step) * 2u + across, [&] {
      return Source{lanes_source(dtype, across) + texts[step] + kernel_source_norm, "", "norm"};
    });
    if (!kernel) return FL_FAILED;
    Launch l(launch, kernel);
    Parameters p;
    p.push(units), p.push(pieces), p.push(blocks);
    for (int64_t s : sizes) p.push(s);
    p.push(rms), p.push(training), p.push(count);
    for (double number : {eps, momentum}) {
      const auto narrow = static_cast<float>(number);
      int64_t bits = 0;
      if (device.info.fp64) std::memcpy(&bits, &number, sizeof number);
      else std::memcpy(&bits, &narrow, sizeof narrow);
      p.push(bits);
    }
    const int sums_at = p.reserve(1);
    l.at(1);
    for (int r = 0; r < kRoles; ++r) {
      p.push(o[r].kind);
      p.push(static_cast<int64_t>(l.buffer(o[r].data ? o[r].data : o[kX].data)));
      for (int d = 0; d < 4; ++d) p.push(strides[d][r]);
    }
    p.set(sums_at, l.buffer(sums ? sums : o[kX].data));
    team_memory(l, device, across);
    if (fl_status status = p.pass(l, launch)) return status;
    return l.run(shape.groups, shape.local);
  }

  // Sums over the points of each cell (dimensions c of size), then `finish`. Without `summed`, the latter
  // alone.
  fl_status cells(const int (&c)[2], Step sum, Step finish, bool summed) {
    Space<kRoles> outer(kRoles), inner(kRoles);
    for (int d = 0; d < 4; ++d) {
      int64_t* s = (d == c[0] || d == c[1] ? outer : inner).push(size[d]);
      for (int r = 0; r < kRoles; ++r) s[r] = o[r].stride[d];
    }
    outer.sort(kX), outer.merge(), inner.sort(kX), inner.merge();
    int64_t sizes[4], strides[4][kRoles];
    auto place = [&](const Space<kRoles>& s, int at) {
      for (int d = 0; d < 2; ++d) {
        const int from = d - (2 - s.ndim);
        sizes[at + d] = from >= 0 ? s.size[from] : 1;
        for (int r = 0; r < kRoles; ++r) strides[at + d][r] = from >= 0 ? s.stride[from][r] : 0;
      }
    };
    place(outer, 0), place(inner, 2);
    const int64_t n_cells = outer.points(), n = inner.points();
    if (summed) {
      const bool beside = std::llabs(strides[3][kX]) > std::llabs(strides[1][kX]) || sizes[3] == 1;
      const bool across =
          sizes[1] > 1 && (device.info.processor ? beside && sizes[1] >= 4 : beside || n < 32);
      const int64_t blocks = (sizes[1] + kLanes - 1) / kLanes, width = across ? kLanes : 1;
      const int64_t teams_ = across && device.info.processor ? sizes[0] * blocks : n_cells;
      // Enough work for everyone, and pieces that are worth a team.
      const bool own = device.info.processor || across;
      const int64_t wanted = (device.info.processor ? 4 : across ? 1024 : 4) * int64_t{device.info.units};
      const int64_t least = device.info.processor ? std::max<int64_t>(1, 16384 / width) : own ? 64 : 4096;
      pieces =
          teams_ < wanted ? std::min((wanted + teams_ - 1) / teams_, std::max<int64_t>(1, n / least)) : 1;
      const size_t bytes = static_cast<size_t>(n_cells * pieces) * 2 * (device.info.fp64 ? 8 : 4);
      if (fl_status status = host()->scratch(launch, bytes, &sums)) return status;
      const int64_t units = teams_ * pieces;
      if (fl_status status = run(sum, across, sizes, strides, units, blocks, n,
                                 teams(device, units, (n + pieces - 1) / pieces, across)))
        return status;
    }
    return run(finish, true, sizes, strides, n_cells, 1, n,
               shape_for(device, n_cells, std::max<int64_t>(1, 1024 / pieces)));
  }

  fl_status apply(Step step) {
    Space<kRoles> space(kRoles);
    for (int d = 0; d < 4; ++d) {
      int64_t* s = space.push(size[d]);
      for (int r = 0; r < kRoles; ++r) s[r] = r <= kSecond ? o[r].stride[d] : 0;
    }
    space.sort(kX), space.merge();
    int64_t sizes[4], strides[4][kRoles] = {};
    for (int d = 0; d < 4; ++d) {
      const int from = d - (4 - space.ndim);
      sizes[d] = from >= 0 ? space.size[from] : 1;
      for (int r = 0; r < kRoles; ++r) strides[d][r] = from >= 0 ? space.stride[from][r] : 0;
    }
    const int64_t points = space.points(), rows = points / sizes[3];
    const int64_t blocks = device.info.processor ? (sizes[3] + 8191) / 8192 : 1;
    const int64_t units = device.info.processor ? rows * blocks : points;
    return run(step, true, sizes, strides, units, blocks, points,
               shape_for(device, units, std::max<int64_t>(1, 16384 / (sizes[3] / blocks))));
  }
};

constexpr int kRows[2] = {0, 1}, kColumns[2] = {1, 2};

bool layer_or_rms(int32_t kind) { return kind == FL_NORM_LAYER || kind == FL_NORM_RMS; }

}  // namespace

fl_status norm(const fl_launch* launch, const fl_norm_args* a) {
  Job job(launch, a->x);
  if (!computes(job.device, a->x.dtype) || a->y.dtype != a->x.dtype || !layer_or_rms(a->kind))
    return FL_UNSUPPORTED;
  job.rms = a->kind == FL_NORM_RMS, job.eps = a->eps;
  job.large(kX, a->x), job.large(kY, a->y);
  if (!job.small(kWeight, a->weight, {1, 2}) || !job.small(kBias, a->bias, {1, 2}) ||
      !job.small(kResultA, a->mean, {0, 1}) || !job.small(kResultB, a->rstd, {0, 1}))
    return FL_UNSUPPORTED;
  for (Role r : {kMean, kRstd, kFirst})
    if (fl_status status = job.made(r, {0, 1})) return status;
  if (fl_status status = job.cells(kRows, kMoments, kFinish, true)) return status;
  return job.apply(kApply);
}

fl_status norm_backward(const fl_launch* launch, const fl_norm_backward_args* a) {
  Job job(launch, a->x);
  if (!computes(job.device, a->x.dtype) || a->grad_y.dtype != a->x.dtype || !layer_or_rms(a->kind) ||
      (a->grad_x && a->grad_x->dtype != a->x.dtype))
    return FL_UNSUPPORTED;
  job.rms = a->kind == FL_NORM_RMS;
  if (!a->rstd || (!job.rms && !a->mean))
    return refuse(FL_INVALID, "norm_backward needs rstd, and mean unless it is RMS norm");
  job.large(kX, a->x), job.large(kY, a->grad_y);
  if (!job.small(kWeight, a->weight, {1, 2}) || !job.small(kRstd, a->rstd, {0, 1}) ||
      !job.small(kMean, job.rms ? nullptr : a->mean, {0, 1}))
    return FL_UNSUPPORTED;
  Job columns = job;
  if (!columns.small(kResultA, a->grad_bias, {1, 2}) || !columns.small(kResultB, a->grad_weight, {1, 2}))
    return FL_UNSUPPORTED;
  if (a->grad_x) {
    job.large(kGradX, *a->grad_x);
    for (Role r : {kFirst, kSecond})
      if (fl_status status = job.made(r, {0, 1})) return status;
    // The weight is in the sums already.
    Job rows = job;
    if (fl_status status = rows.cells(kRows, kDots, kFinishBackward, true)) return status;
    if (fl_status status = job.apply(kApplyBackward)) return status;
  }
  if (!a->grad_weight && !a->grad_bias) return FL_OK;
  columns.o[kWeight] = {};
  return columns.cells(kColumns, kDots, kFinishBackward, true);
}

fl_status batch_norm(const fl_launch* launch, const fl_batch_norm_args* a) {
  Job job(launch, a->x);
  if (!computes(job.device, a->x.dtype) || a->y.dtype != a->x.dtype) return FL_UNSUPPORTED;
  job.training = a->training != 0, job.eps = a->eps, job.momentum = a->momentum;
  if (!job.training && (!a->running_mean || !a->running_var))
    return refuse(FL_INVALID, "batch_norm without training needs running_mean and running_var");
  job.large(kX, a->x), job.large(kY, a->y);
  if (!job.small(kWeight, a->weight, {2}) || !job.small(kBias, a->bias, {2}) ||
      !job.small(kRunningMean, a->running_mean, {2}) || !job.small(kRunningVar, a->running_var, {2}) ||
      !job.small(kResultA, job.training ? a->save_mean : nullptr, {2}) ||
      !job.small(kResultB, job.training ? a->save_rstd : nullptr, {2}))
    return FL_UNSUPPORTED;
  for (Role r : {kMean, kRstd, kFirst})
    if (fl_status status = job.made(r, {2})) return status;
  if (fl_status status = job.cells(kColumns, kMoments, kFinish, job.training)) return status;
  return job.apply(kApply);
}

fl_status batch_norm_backward(const fl_launch* launch, const fl_batch_norm_backward_args* a) {
  Job job(launch, a->x);
  if (!computes(job.device, a->x.dtype) || a->grad_y.dtype != a->x.dtype ||
      (a->grad_x && a->grad_x->dtype != a->x.dtype))
    return FL_UNSUPPORTED;
  if (!a->mean || !a->rstd) return refuse(FL_INVALID, "batch_norm_backward needs mean and rstd");
  job.large(kX, a->x), job.large(kY, a->grad_y);
  if (!job.small(kMean, a->mean, {2}) || !job.small(kRstd, a->rstd, {2}) ||
      !job.small(kResultA, a->grad_bias, {2}) || !job.small(kResultB, a->grad_weight, {2}))
    return FL_UNSUPPORTED;
  Job sums = job;
  // The weight of a channel comes out of its sums.
  if (!job.small(kWeight, a->weight, {2}) || !sums.small(kBias, a->weight, {2})) return FL_UNSUPPORTED;
  // Constant statistics: the gradient goes through the scale alone.
  if (a->training && a->grad_x)
    for (Role r : {kFirst, kSecond}) {
      if (fl_status status = job.made(r, {2})) return status;
      sums.o[r] = job.o[r];
    }
  if (a->training || a->grad_weight || a->grad_bias)
    if (fl_status status = sums.cells(kColumns, kDots, kFinishBackward, true)) return status;
  if (!a->grad_x) return FL_OK;
  job.large(kGradX, *a->grad_x);
  return job.apply(kApplyBackward);
}

void claim_norm(Claims& claims) {
  claims.push_back({FL_ENTRY_NORM, FL_NORM_LAYER, kFloats});
  claims.push_back({FL_ENTRY_NORM, FL_NORM_RMS, kFloats});
}
void claim_norm_backward(Claims& claims) {
  claims.push_back({FL_ENTRY_NORM_BACKWARD, FL_NORM_LAYER, kFloats});
  claims.push_back({FL_ENTRY_NORM_BACKWARD, FL_NORM_RMS, kFloats});
}
void claim_batch_norm(Claims& claims) { claims.push_back({FL_ENTRY_BATCH_NORM, FL_ANY, kFloats}); }
void claim_batch_norm_backward(Claims& claims) {
  claims.push_back({FL_ENTRY_BATCH_NORM_BACKWARD, FL_ANY, kFloats});
}

}  // namespace ocl
