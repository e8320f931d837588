#include "bridge/ops/indexing.h"

namespace fl::bridge {
namespace {

template <class Args>
void set_axes(Args& args, const Space& space, const int64_t* sizes, const int64_t* strides, uint32_t flags) {
  args.n_indices = space.count() - 2;
  args.indices = space.tensors(2);
  std::copy(sizes, sizes + args.n_indices, args.index_size);
  std::copy(strides, strides + args.n_indices, args.index_stride);
  args.flags = flags;
}

// Operands in one space over `shape`; axes into two arrays.
bool fill(Call& call, Space& space, const Tensor& first, const Tensor& second,
          std::initializer_list<const Tensor*> indices, std::initializer_list<Axis> axes, int64_t* sizes,
          int64_t* strides) {
  if (!space.ok() || indices.size() > FL_MAX_INDICES) return false;
  space.add(call.view(first));
  space.add(call.view(second));
  for (const Tensor* index : indices) space.add(call.view(*index));
  if (!space.finish()) return false;
  int k = 0;
  for (const Axis& axis : axes) sizes[k] = axis.size, strides[k++] = axis.stride;
  return true;
}

}  // namespace

bool gather_space(Call& call, const Space& space, const int64_t* sizes, const int64_t* strides,
                  uint32_t flags) {
  fl_gather_args args;
  args.out = *space.tensors(0);
  args.from = *space.tensors(1);
  set_axes(args, space, sizes, strides, flags);
  return call.native(call.chip().op.gather, args, {&args.out, &args.from, args.indices});
}

bool scatter_space(Call& call, uint16_t mode, const Space& space, const int64_t* sizes,
                   const int64_t* strides, uint32_t flags) {
  fl_scatter_args args{};
  args.to = *space.tensors(0);
  args.from = *space.tensors(1);
  args.mode = mode;
  set_axes(args, space, sizes, strides, flags);
  return call.native(call.chip().op.scatter, args, {&args.to, &args.from, args.indices});
}

bool gather_into(Call& call, const Tensor& out, const Tensor& from,
                 std::initializer_list<const Tensor*> indices, std::initializer_list<Axis> axes,
                 uint32_t flags) {
  if (out.numel() == 0) return true;
  Space space(out.sizes());
  int64_t sizes[FL_MAX_INDICES], strides[FL_MAX_INDICES];
  return fill(call, space, out, from, indices, axes, sizes, strides) &&
         gather_space(call, space, sizes, strides, flags);
}

bool scatter_into(Call& call, uint16_t mode, const Tensor& to, const Tensor& from,
                  std::initializer_list<const Tensor*> indices, std::initializer_list<Axis> axes,
                  uint32_t flags) {
  if (from.numel() == 0) return true;
  Space space(from.sizes());
  int64_t sizes[FL_MAX_INDICES], strides[FL_MAX_INDICES];
  // `to` walks along the dimensions of the iteration space that are not
  // indexed: its view there may have larger sizes, so only strides count.
  return fill(call, space, to, from, indices, axes, sizes, strides) &&
         scatter_space(call, mode, space, sizes, strides, flags);
}

}  // namespace fl::bridge
