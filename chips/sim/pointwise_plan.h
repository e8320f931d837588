// Programs made ready to run, and running them.
#pragma once

#include <vector>

#include "sim.h"
#include "simd/point_kernels.h"
#include "space.h"

namespace sim {

constexpr int kMaxOperands = FL_MAX_INPUTS + FL_MAX_OUTPUTS;
// Each instruction makes at most its value and one conversion.
constexpr int kMaxValues = 2 * FL_MAX_CODE + FL_MAX_INPUTS;

// A plan runs on blocks of points that stay in the first cache.  For each block:
// loads, then steps, then stores.  A load whose memory is a register type and
// contiguous is a pointer into it; a step whose value is stored that way writes
// straight to the output.
struct Plan {
  struct Load {
    uint16_t value;
    uint8_t input, bytes;
    bool alias;  // memory can be read in place
    Widen widen;
  };
  struct Fill {
    uint16_t value, scalar;  // kLiteral: the number is here, not among the launch's
    uint8_t type;
    fl_scalar literal;
  };
  static constexpr uint16_t kLiteral = 0xffff;
  struct Index {
    uint16_t value, dimension;  // 0xffff: the row-major number
    uint8_t type;
  };
  struct Step {
    PointOp run;
    uint16_t a, b, c, out;
  };
  struct Store {
    uint16_t value;
    uint8_t output, bytes;
    bool direct;  // the step may write to the output
    Narrow narrow;
  };
  std::vector<Load> loads;
  std::vector<Fill> fills;
  std::vector<Index> indices;
  std::vector<Step> steps;
  std::vector<Store> stores;
  std::vector<uint32_t> slots;  // of each value: where it lies, in bytes a point
  std::vector<uint8_t> value_bytes;
  uint32_t slot_bytes = 0;  // of all slots, a point
  uint16_t n_inputs = 0, n_outputs = 0, n_scalars = 0;
  int64_t block = 0;                         // points
  int64_t grain = 0;                         // points that are worth a thread
  bool needs_slots = false;                  // even where all memory is contiguous
  uint8_t operand_bytes[kMaxOperands] = {};  // inputs, then outputs; 0: not used

  uint64_t hash = 0;
  bool supported = false;
  const Plan* next = nullptr;
};

// Null for a program outside the rules of fl/ops.h or with an opcode that has no kernel.
Plan* make_plan(const fl_program& program);
// Load as `from`, convert, store as `to`.
const Plan* conversion(uint8_t from, uint8_t to);

// A plan over a space: strides in bytes, inputs first, then outputs.
struct Points {
  const Plan* plan;
  Space<kMaxOperands> space;
  char* data[kMaxOperands];
  const fl_scalar* scalars = nullptr;
  // What INDEX sees: the number of the space's first point, and the sizes.
  int64_t first = 0;
  const int64_t* sizes = nullptr;
  int ndim = 0;

  explicit Points(const Plan* p) : plan(p), space(p->n_inputs + p->n_outputs) {}
  // After the space is filled in: reorders and merges its dimensions.
  void prepare();
  // Points begin … end - 1, on this thread.
  void run(int64_t begin, int64_t end, uint32_t* faults) const;
  // All, in parallel.
  void run(uint32_t* faults) const;

 private:
  enum class Mode : uint8_t { linear, constant, rows };
  Mode modes_[kMaxOperands];
  bool needs_slots_ = false;
  void classify();
  template <class F>
  void each_row(int operand, int64_t at, int64_t n, F&& f) const;
};

}  // namespace sim
