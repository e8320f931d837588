// Programs made ready to run, and running them.
#pragma once

#include <vector>

#include "fl/author/plans.h"
#include "fl/author/space.h"
#include "sim.h"
#include "simd/chain_kernels.h"
#include "simd/point_kernels.h"

namespace sim {

constexpr int kMaxOperands = FL_MAX_INPUTS + FL_MAX_OUTPUTS;
// Each instruction makes at most its value and one conversion.
constexpr int kMaxValues = 2 * FL_MAX_CODE + FL_MAX_INPUTS;

// A plan runs on blocks of points that stay in the first cache.  For each block:
// loads, then steps, then stores.  A load whose memory is a register type and
// contiguous is a pointer into it; a step whose value is stored that way writes
// straight to the output.  Steps on values of one width are joined to chains,
// which keep what they make in registers.
struct Plan {
  struct Load {
    uint16_t value;
    uint8_t input, bytes;
    bool alias;  // memory can be read in place
    Widen widen;
  };
  static constexpr uint16_t kLiteral = 0xffff, kNone = 0xffff;
  struct Fill {
    uint16_t value, scalar;  // kLiteral: the number is here, not among the launch's
    uint8_t type;
    fl_scalar literal;
    bool in_slot = false;   // for steps, as often as there are points
    uint16_t tile = kNone;  // for chains
  };
  struct Index {
    uint16_t value, dimension;  // 0xffff: the row-major number
    uint8_t type;
  };
  struct Step {
    PointOp run;  // null: the chain numbered a
    uint16_t a, b, c, out;
  };
  struct Link {
    enum class At : uint8_t { nowhere, value, constant, kept };
    struct Operand {
      At at = At::nowhere;
      uint16_t number = 0;  // of the value, or of the tile
    };
    ChainStep::Run run, with_number;  // with_number: may run instead where the operand is no NaN, or null
    Operand operand[3];
    void* function;
  };
  struct Chain {
    std::vector<Link> links;
    uint8_t bytes;  // of a value
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
  std::vector<Chain> chains;
  std::vector<Store> stores;
  std::vector<uint32_t> slots;  // of each value: where it lies, in bytes a point
  std::vector<uint8_t> value_bytes;
  std::vector<bool> chained;  // of each value: only chains read it
  // Tiles: of constants, of what chains keep while others use the registers, and for the ends of rows.
  uint16_t n_constants = 0, n_kept = 0, n_spare = 0;
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
  struct Block;
  Mode modes_[kMaxOperands];
  bool needs_slots_ = false;
  int64_t row_ = 0;  // points of a row within which every operand is linear or constant, and coordinates but
                     // the last are; 0: not used
  void classify();
  template <class F>
  void each_row(int operand, int64_t at, int64_t n, F&& f) const;
};

}  // namespace sim
