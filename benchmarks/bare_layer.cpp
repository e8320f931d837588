// What the layer costs below PyTorch: prints "name<TAB>nanoseconds<TAB>wanted".
//
// The chip's side is measured with a table whose pointwise entry does nothing,
// so that the number is the layer's alone.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "chip/registry.h"
#include "program/program.h"
#include "runtime/allocator.h"
#include "runtime/launch.h"
#include "runtime/stream.h"

namespace {

template <class F>
double best_ns(F&& f) {
  constexpr int kCalls = 100000;
  double best = 1e9;
  for (int round = 0; round < 15; ++round) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) f();
    std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / kCalls);
  }
  return best;
}

volatile uint64_t sink;
fl_status nothing(const fl_launch* launch, const fl_pointwise_args* args) {
  sink = launch->tag + args->program->hash;
  return FL_OK;
}

}  // namespace

int main() {
  if (fl::devices().empty()) {
    std::fprintf(stderr, "no device: set FL_CHIP_PATH\n");
    return 1;
  }
  fl::Stream& stream = fl::current_stream(0);
  fl::Op op("aten::add");
  fl::Builder b;
  b.store(0, b.op(FL_OP_ADD, b.load(0, FL_F32), b.load(1, FL_F32)), FL_F32);
  const fl_program* program = b.finish();
  fl_status (*volatile entry)(const fl_launch*, const fl_pointwise_args*) = nothing;
  int64_t sizes[] = {16}, strides[] = {1};
  float memory[16];

  double call = best_ns([&] {
    fl_tensor t[3] = {{memory, sizes, strides, 1, FL_F32, 0, 0},
                      {memory, sizes, strides, 1, FL_F32, 0, 0},
                      {memory, sizes, strides, 1, FL_F32, 0, 0}};
    fl_pointwise_args args{program, t, t + 2, nullptr};
    const fl_tensor* seen[] = {&t[2], &t[0], &t[1]};
    fl_launch launch = fl::make_launch(op, stream, seen, 3);
    fl::LaunchScope scope(stream);
    entry(&launch, &args);
  });
  std::printf("bare call: views, record, entry\t%.1f\t25\n", call);

  fl::free(fl::allocate(stream, 1000));
  double cached = best_ns([&] { fl::free(fl::allocate(stream, 1000)); });
  std::printf("allocator: alloc and free from cache\t%.1f\t150\n", cached);
  std::vector<fl::Block*> held(64);
  double mixed = best_ns([&, i = size_t{0}]() mutable {
    fl::Block*& slot = held[i++ % held.size()];
    if (slot) fl::free(slot);
    slot = fl::allocate(stream, 512 + i % 7 * 4096);
  });
  std::printf("allocator: alloc and free, 64 sizes alive\t%.1f\t150\n", mixed);
  for (fl::Block* block : held) fl::free(block);
  fl::shutdown();
}
