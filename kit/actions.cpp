#include "actions.h"

#include <dirent.h>

#include <algorithm>
#include <chrono>

#include "program/program.h"

namespace kit {

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int thread_count() {
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) not_applicable("no /proc here to count threads");
  int n = 0;
  while (dirent* entry = readdir(tasks)) n += entry->d_name[0] != '.';
  closedir(tasks);
  return n;
}

void fill(const fl_launch& launch, Tensor& to, Number value) {
  fl_fill_args args{};
  args.to = *to;
  if (is_integer(to.dtype)) args.value.v.i = value.i;
  else args.value.v.f = static_cast<double>(value.re), args.value.imag = static_cast<double>(value.im);
  ok(KIT_LAUNCH(fill, &launch, &args), "fill");
}

void copy(const fl_launch& launch, Tensor& to, Tensor& from) {
  fl_copy_args args{*from, *to};
  ok(KIT_LAUNCH(copy, &launch, &args), "copy");
}

namespace {

// x = exp(-x × x), again and again on one tensor.
void work(Session& session, Tensor& x, int launches) {
  static const fl_program* program = [] {
    fl::Builder b;
    fl::Value v = b.load(0, FL_F32);
    b.store(0, b.op(FL_OP_EXP, b.op(FL_OP_NEG, b.op(FL_OP_MUL, v, v))), FL_F32);
    return b.finish();
  }();
  fl_tensor view = *x;
  fl_pointwise_args args{program, &view, &view, nullptr};
  for (int i = 0; i < launches; ++i) ok(KIT_LAUNCH(pointwise, &session.launch, &args), "pointwise");
}

}  // namespace

void busy(Session& session, double milliseconds) {
  // Lives until the process ends: what is queued may outlast the test that queued it.
  static Session* own = new Session();
  static Tensor* x = new Tensor(own->put(Array(FL_F32, {1 << 17})));
  static double cost = [] {
    work(*own, *x, 2);
    own->synchronize();
    double start = now_ms();
    work(*own, *x, 8);
    own->synchronize();
    return std::max((now_ms() - start) / 8, 0.001);
  }();
  work(session, *x, static_cast<int>(std::min(milliseconds / cost + 1, 2000.0)));
}

void cause_fault(Session& session, uint64_t tag) {
  static Session* own = new Session();
  static Tensor* from = new Tensor(own->put(Array(FL_F32, {4})));
  static Tensor* out = new Tensor(own->output(FL_F32, {1}));
  static Tensor* index = [] {
    Array past_the_end(FL_I64, {1});
    past_the_end.set(0, Number::integer(4));
    Tensor* t = new Tensor(own->put(past_the_end));
    own->synchronize();
    return t;
  }();
  fl_launch launch = session.tagged(tag);
  int64_t size = 1, stride = 0;
  fl_gather_args args{};
  args.from = *from->view();
  args.from.sizes = &size;
  args.from.strides = &stride;
  args.out = *out->view();
  args.indices = index->view();
  args.index_size[0] = 4;
  args.index_stride[0] = 1;
  args.n_indices = 1;
  ok(KIT_LAUNCH(gather, &launch, &args), "gather (an index out of range is found when it runs)");
}

fl_status take_fault(fl_stream stream, fl_fault& fault) {
  fault = fl_fault{};
  fault.size = sizeof fault;
  return chip().stream.fault(stream, &fault);
}

void drain_faults(fl_stream stream) {
  fl_fault fault;
  for (int i = 0; i < 1000; ++i)
    if (take_fault(stream, fault) != FL_OK) return;
  stop("after 1000 faults were taken there is still one: [STR-7]");
}

}  // namespace kit
