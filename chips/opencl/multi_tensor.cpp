// One program over many tensors: a kernel of the program's own over a table of items in memory. The table
// says of each operand which of the kernel's buffers it lies in. Items that are not plain runs of elements,
// and all items of programs that are too rare to compile, go one by one.
#include <algorithm>
#include <string>
#include <vector>

#include "chip.h"
#include "points.h"

namespace ocl {

namespace {

constexpr int kBuffers = 16;         // that one launch reaches
constexpr int64_t kUnit = 1024;      // points of an item that are dealt out together
constexpr int kMostItems = 1 << 14;  // of a launch
constexpr uint32_t kAnyLayout = ~0u, kDone = ~1u, kAlone = ~2u;

std::string number(int64_t n) { return std::to_string(n); }

// The table, in longs: number of items and of units, shared scalars; then of each item its first unit, its
// points, of each operand buffer and offset, its scalars.
struct Form {
  const Plan* plan;
  int shared, own;     // scalars
  uint32_t broadcast;  // inputs of one element, as 1 << operand
  int operands() const { return plan->n_inputs + plan->n_outputs; }
  int header() const { return 2 + 2 * shared; }
  int row() const { return 2 + 2 * operands() + 2 * own; }
  uint64_t key() const {
    uint64_t k = (plan->hash ^ 0x6d756c7469ull) * 0x9e3779b97f4a7c15u;
    k ^= k >> 31;
    return (k ^ (static_cast<uint64_t>(own) << 16 | broadcast)) * 0x9e3779b97f4a7c15u;
  }
};

Source generate(const Form& f) {
  const int K = f.operands(), N = f.plan->n_inputs;
  std::string t = "\n#define UNIT " + number(kUnit) + "\n#define ROW " + number(f.row()) +
                  "\n#define NOT_ZERO(b) ((b) == 0 ? (report(fault, tag, 6, 2, 0, 0), 1) : (b))\n";
  t += "__kernel void many(__global const long* table_base, long table_offset";
  for (int b = 0; b < kBuffers; ++b) t += ", __global uchar* b" + number(b);
  t += ", __global Fault* fault, ulong tag) {\n  __global uchar* base[] = {";
  for (int b = 0; b < kBuffers; ++b) t += (b ? ", b" : "b") + number(b);
  t += "};\n  __global const long* table = table_base + table_offset;\n"
       "  __global const long* rows = table + " +
       number(f.header()) +
       ";\n"
       "  const long n_items = table[0], units = table[1];\n"
       "#ifdef PROCESSOR\n"
       "  const long end = END_UNIT(units);\n"
       "  for (long unit = FIRST_UNIT(units); unit < end;) {\n"
       "#else\n"
       "  TEAM_UNITS(unit, units) {\n"
       "#endif\n"
       "    long low = 0, high = n_items;\n"
       "    while (high - low > 1) {\n"
       "      const long middle = (low + high) / 2;\n"
       "      if (rows[middle * ROW] <= unit) low = middle;\n"
       "      else high = middle;\n"
       "    }\n"
       "    __global const long* row = rows + low * ROW;\n"
       "    const long first = (unit - row[0]) * UNIT;\n";
  for (int k = 0; k < K; ++k)
    t += "    __global uchar* q" + number(k) + " = base[row[" + number(2 + 2 * k) + "]] + row[" +
         number(3 + 2 * k) + "];\n";
  for (int s = 0; s < f.shared + f.own; ++s) {
    std::string at =
        s < f.shared ? "table[" + number(2 + 2 * s) : "row[" + number(2 + 2 * K + 2 * (s - f.shared));
    t += "    const ulong2 s" + number(s) + " = (ulong2)((ulong)" + at + "], (ulong)" + at + " + 1]);\n";
  }
  Emitter e;
  e.load = [&](int input, uint8_t dtype) {
    return "LOAD_" + std::string(dtype_name(dtype)) + "(q" + number(input) +
           (f.broadcast >> input & 1 ? ", 0)" : ", j)");
  };
  e.store = [&](int output, uint8_t dtype, const std::string& value) {
    return "STORE_" + std::string(dtype_name(dtype)) + "(q" + number(N + output) + ", j, " + value + ");";
  };
  e.scalar = [](int s) { return "s" + number(s); };
  e.index = [](int) { return std::string("j"); };
  const std::string body = emit(*f.plan, e);
  // No point reads what another writes: an output is exactly an input, or apart from all.
  t += "#ifdef PROCESSOR\n"
       "    const long stop = min(row[1], first + (end - unit) * UNIT);\n"
       "#pragma clang loop vectorize(assume_safety)\n"
       "    for (long j = first; j < stop; ++j) {\n" +
       body +
       "    }\n"
       "    unit += (stop - first + UNIT - 1) / UNIT;\n"
       "#else\n"
       "    const long stop = min(row[1], first + UNIT);\n"
       "    for (long j = first + get_local_id(0); j < stop; j += get_local_size(0)) {\n" +
       body +
       "    }\n"
       "#endif\n  }\n}\n";
  return {t, "", "many"};
}

// Items of one layout that lie in no more buffers than a kernel has.
class Batch {
 public:
  Batch(const fl_launch* launch, const fl_multi_tensor_args& args, const Form& form, Kernel* kernel,
        std::vector<int64_t>& table)
      : launch_(launch), args_(args), form_(form), kernel_(kernel), table_(table) {
    begin();
  }

  fl_status add(int item, const Points& p) {
    if (items_ == kMostItems || !place(p)) {
      if (fl_status status = flush()) return status;
      place(p);
    }
    const int64_t points = p.space.points();
    table_.push_back(units_), table_.push_back(points);
    for (int k = 0; k < form_.operands(); ++k) table_.push_back(number_[k]), table_.push_back(offset_[k]);
    for (int s = 0; s < form_.own; ++s)
      scalar(form_.shared + s, args_.item_scalars[int64_t{item} * form_.own + s]);
    units_ += (points + kUnit - 1) / kUnit;
    ++items_;
    return FL_OK;
  }

  fl_status flush() {
    if (items_ == 0) return FL_OK;
    table_[0] = items_, table_[1] = units_;
    const size_t bytes = table_.size() * sizeof(int64_t);
    void* memory;
    if (fl_status status = host()->scratch(launch_, bytes, &memory)) return status;
    if (fl_status status = write_parameters(launch_, memory, table_.data(), bytes)) return status;
    Launch l(launch_, kernel_);
    const auto offset = static_cast<int64_t>(l.buffer(memory));
    l.value(offset / int64_t{sizeof(int64_t)});
    for (int b = 0; b < kBuffers; ++b) l.handle(buffers_[b < used_ ? b : 0]);
    l.fault();
    const Device& device = *launch_->stream->device;
    Shape shape = shape_for(device, device.info.processor ? units_ : units_ * 256,
                            32768 / (1 + form_.plan->cost / 4) / kUnit);
    fl_status status = l.run(shape.groups, shape.local);
    begin();
    return status;
  }

 private:
  void begin() {
    items_ = units_ = 0, used_ = 0;
    table_.resize(2);
    for (int s = 0; s < form_.shared; ++s) scalar(s, args_.scalars[s]);
  }
  void scalar(int s, const fl_scalar& value) {
    uint64_t bits[2];
    pack_scalar(form_.plan->scalar_types[s], value, bits);
    table_.push_back(static_cast<int64_t>(bits[0])), table_.push_back(static_cast<int64_t>(bits[1]));
  }
  // Finds or adds the buffers of an item; false when there is no room for them.
  bool place(const Points& p) {
    int used = used_;
    for (int k = 0; k < form_.operands(); ++k) {
      Place at = launch_->stream->device->memory.find(p.data[k]);
      int b = 0;
      while (b < used && buffers_[b] != at.buffer) ++b;
      if (b == kBuffers) return false;
      buffers_[b] = at.buffer;
      if (b == used) ++used;
      number_[k] = b, offset_[k] = static_cast<int64_t>(at.offset);
    }
    used_ = used;
    return true;
  }

  const fl_launch* launch_;
  const fl_multi_tensor_args& args_;
  const Form& form_;
  Kernel* kernel_;
  std::vector<int64_t>& table_;
  int64_t items_ = 0, units_ = 0;
  int used_ = 0;
  cl_mem buffers_[kBuffers] = {};
  int64_t number_[kMaxOperands] = {}, offset_[kMaxOperands] = {};
};

// Which inputs are one element for all points, as 1 << operand; kAnyLayout for an item of one point, kAlone
// for one that is not a run of elements.
uint32_t layout_of(const Points& p) {
  if (p.plan->uses_index || p.space.ndim > 1) return kAlone;
  if (p.space.ndim == 0) return kAnyLayout;
  uint32_t broadcast = 0;
  for (int k = 0; k < p.space.n; ++k) {
    int64_t stride = p.space.inner_stride(k);
    if (stride == 0 && k < p.plan->n_inputs) broadcast |= 1u << k;
    else if (stride != 1) return kAlone;
  }
  return broadcast;
}

}  // namespace

fl_status multi_tensor(const fl_launch* launch, const fl_multi_tensor_args* args) {
  const Plan* plan = plan_of(args->program);
  if (!plan) return FL_UNSUPPORTED;
  Device& device = *launch->stream->device;
  if (!device.info.fp64 && plan->registers & (1u << kF64 | 1u << kC128)) return FL_UNSUPPORTED;
  if (args->n_item_scalars < 0 || args->n_item_scalars > plan->n_scalars)
    return refuse(FL_INVALID, "multi_tensor with %d scalars an item, of a program with %d",
                  args->n_item_scalars, plan->n_scalars);
  const int shared = plan->n_scalars - args->n_item_scalars, own = args->n_item_scalars;
  auto points_of = [&](int item) {
    const int64_t i = item;
    return Points(plan, args->inputs + i * plan->n_inputs, args->outputs + i * plan->n_outputs, nullptr);
  };
  thread_local std::vector<uint32_t> layouts;
  thread_local std::vector<int64_t> table;
  layouts.resize(static_cast<size_t>(args->n_items));
  uint64_t points = 0;
  for (int i = 0; i < args->n_items; ++i) {
    Points p = points_of(i);
    layouts[static_cast<size_t>(i)] = layout_of(p);
    for (int k = 0; k < p.space.n; ++k)
      if (!device.memory.find(p.data[k]).buffer)
        return refuse(FL_INVALID, "%p is no address of the device", p.data[k]);
    points += static_cast<uint64_t>(p.space.points());
  }
  const Compile compile = count_points(*plan, points, static_cast<uint64_t>(args->n_items));
  for (int first = 0; first < args->n_items; ++first) {
    uint32_t layout = layouts[static_cast<size_t>(first)];
    if (layout == kDone) continue;
    // An item of one point goes with any others.
    for (size_t i = static_cast<size_t>(first); layout == kAnyLayout && i < layouts.size(); ++i)
      if (layouts[i] < kAlone) layout = layouts[i];
    Kernel* kernel = nullptr;
    Form form{plan, shared, own, layout == kAnyLayout ? 0 : layout};
    if (layout != kAlone) {
      auto make = [&] { return generate(form); };
      kernel = device.library->get(Family::program, form.key(), make, compile);
      if (!kernel && compile == Compile::now) return FL_FAILED;
    }
    if (!kernel) {
      fl_scalar scalars[FL_MAX_SCALARS];
      std::copy(args->scalars, args->scalars + shared, scalars);
      std::copy(args->item_scalars + int64_t{first} * own, args->item_scalars + (int64_t{first} + 1) * own,
                scalars + shared);
      Points p = points_of(first);
      p.scalars = scalars;
      if (fl_status status = run_points(launch, p, layout == kAlone)) return status;
      continue;
    }
    Batch batch(launch, *args, form, kernel, table);
    for (int i = first; i < args->n_items; ++i) {
      uint32_t& l = layouts[static_cast<size_t>(i)];
      if (l != layout && l != kAnyLayout) continue;
      if (fl_status status = batch.add(i, points_of(i))) return status;
      l = kDone;
    }
    if (fl_status status = batch.flush()) return status;
  }
  return FL_OK;
}

// What programs may have is claimed under POINTWISE.
void claim_multi_tensor(Claims& claims) {
  constexpr uint32_t floats = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);
  claims.push_back({FL_ENTRY_MULTI_TENSOR, FL_ANY, floats});
}

}  // namespace ocl
