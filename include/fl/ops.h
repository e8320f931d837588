/*
 * fl/ops.h — the torch-fl chip ABI, version 1: operators.
 *
 * Operators are few and general; hundreds of PyTorch's map on them.  The
 * host normalises before it calls: types are promoted, shapes broadcast (to
 * stride 0), dimensions coalesced, Python numbers turned into scalars.  What
 * a chip then sees obeys these rules, and a chip may rely on them:
 *
 *   - no tensor of a launch is empty;
 *   - ndim <= FL_MAX_DIMS, and every offset in elements fits 63 bits;
 *   - an output either is exactly an input (same data, strides and dtype) or
 *     overlaps none, and an output never overlaps itself (except the stride
 *     0 of a reduced dimension);
 *   - all tensors of a launch lie on the launch's device.
 *
 * And every entry obeys these:
 *
 *   [OPS-1] Work is queued on the launch's stream and reads its operands when
 *           it runs, not when it is queued.
 *   [OPS-2] FL_UNSUPPORTED means that nothing happened: the host goes on to
 *           compose the operator from other entries, or runs it on the CPU.
 *   [OPS-3] All strides are honoured: 0, negative, not contiguous.
 *   [OPS-4] Integers are exact and wrap; nothing is narrowed.
 *   [OPS-5] What is claimed (fl_claim) works, and what is not claimed gives
 *           FL_UNSUPPORTED.
 *   [OPS-6] Sums of F16 and BF16 are accumulated in F32 or wider.
 *   [OPS-7] With FL_LAUNCH_DETERMINISTIC two runs give the same bits.
 *   [OPS-8] With FL_LAUNCH_TF32 products of F32 lose no more than TF32 does,
 *           and without it nothing.
 */
#ifndef FL_OPS_H
#define FL_OPS_H

#include "fl/program.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FL_MAX_DIMS 16
#define FL_MAX_INPUTS 8
#define FL_MAX_OUTPUTS 4
#define FL_MAX_SCALARS 16
#define FL_MAX_INDICES 8

/* Entries of fl_op_api, the left side of a claim.
 * X(name, value, tier) — tier M: every chip; F: for speed, else composed. */
/* clang-format off */
#define FL_ENTRY_MAP(X)      \
  X(COPY, 0, M)              \
  X(FILL, 1, M)              \
  X(POINTWISE, 2, M)         \
  X(REDUCE, 3, M)            \
  X(GEMM, 4, M)              \
  X(GATHER, 5, M)            \
  X(SCATTER, 6, M)           \
  X(RANDOM, 7, M)            \
  X(SOFTMAX, 8, F)           \
  X(SOFTMAX_BACKWARD, 9, F)  \
  X(NORM, 10, F)             \
  X(NORM_BACKWARD, 11, F)    \
  X(BATCH_NORM, 12, F)       \
  X(BATCH_NORM_BACKWARD, 13, F) \
  X(CONV, 14, F)             \
  X(POOL, 15, F)             \
  X(POOL_BACKWARD, 16, F)    \
  X(ATTENTION, 17, F)        \
  X(ATTENTION_BACKWARD, 18, F) \
  X(MULTI_TENSOR, 19, F)     \
  X(SCAN, 20, F)             \
  X(SORT, 21, F)             \
  X(COMPACT, 22, F)          \
  X(SPMM, 23, F)             \
  X(FFT, 24, F)
/* clang-format on */

enum {
#define FL_ENTRY_ENUM(name, value, tier) FL_ENTRY_##name = (value),
  FL_ENTRY_MAP(FL_ENTRY_ENUM)
#undef FL_ENTRY_ENUM
      FL_ENTRY_COUNT
};

/* What a chip can do: entry × kind × dtypes.
 * kind is the opcode (POINTWISE), the reduce kind, the distribution (RANDOM),
 * the reduce mode (SCATTER), FL_CONV_…, FL_POOL_…, FL_NORM_…, FL_SCAN_… or
 * FL_SPMM_…; FL_ANY for entries without kinds.  dtypes: the register type (POINTWISE, REDUCE: the
 * accumulate type) or the operands' dtype (all others).  Mandatory claims are
 * listed at each entry. */
#define FL_ANY 0xffffu
typedef struct fl_claim {
  uint16_t entry;
  uint16_t kind;
  uint32_t dtypes; /* FL_BIT(…) | … */
} fl_claim;

/* ==================================================================== arguments
 * In each struct `shape rules` say how the tensors relate. */

/* to = from, converted as by [PGM-1].  Same sizes.  [CPY-1] All pairs of
 * claimed dtypes, claimed under FL_ENTRY_COPY.  Mandatory: BOOL U8 I8 I16 I32
 * I64 F32 and one of F16, BF16. */
typedef struct fl_copy_args {
  fl_tensor from, to;
} fl_copy_args;

/* to = value, converted to its dtype.  `value` is read as F64, I64, BOOL or
 * C128 by the dtype's class.  [FIL-1]  Mandatory: as copy. */
typedef struct fl_fill_args {
  fl_tensor to;
  fl_scalar value;
} fl_fill_args;

/* Run a program at each point.  All tensors have the iteration space's ndim
 * and sizes.  Inputs and outputs are program->n_inputs and n_outputs tensors.
 * [PTW-1] An output that is exactly an input is read before it is written.
 * [PTW-2] Several outputs are all written.
 * [PTW-3] A program with unclaimed opcodes or types gives FL_UNSUPPORTED.
 * Mandatory: all M opcodes for BOOL, I32, I64, F32. */
typedef struct fl_pointwise_args {
  const fl_program* program;
  const fl_tensor* inputs;
  const fl_tensor* outputs;
  const fl_scalar* scalars; /* program->n_scalars */
} fl_pointwise_args;

/* X(name, value, mandatory, meaning) */
/* clang-format off */
#define FL_REDUCE_MAP(X)                                                    \
  X(SUM, 0, M, "")                                                          \
  X(PROD, 1, M, "")                                                         \
  X(MIN, 2, M, "NaN if any is; with `index`, where")                        \
  X(MAX, 3, M, "NaN if any is; with `index`, where")                        \
  X(ALL, 4, M, "accumulate type BOOL")                                      \
  X(ANY, 5, M, "accumulate type BOOL")                                      \
  X(MOMENTS, 6, O, "two values: mean, and sum of squared differences from it")
/* clang-format on */

enum {
#define FL_REDUCE_ENUM(name, value, tier, meaning) FL_REDUCE_##name = (value),
  FL_REDUCE_MAP(FL_REDUCE_ENUM)
#undef FL_REDUCE_ENUM
      FL_REDUCE_COUNT
};

/* Reduce the dimensions along which the output has size 1 and the input more.
 *
 * pre: a program over the inputs with one output; its STORE has memory ==
 * type == the accumulate type and makes the value that is reduced.  NULL:
 * the only input, converted to the accumulate type.
 * post: a program whose inputs are the reduced values (one; two for MOMENTS),
 * LOADed with memory == the accumulate type, and whose outputs are the
 * outputs.  NULL: the reduced value, converted to the only output's dtype.
 *
 * Inputs have the same ndim and sizes; outputs and index the same ndim and
 * the reduced sizes.
 * [RED-1] index (I64, optional; MIN and MAX only): the row-major number of the
 * winner among the reduced dimensions.  Ties: the lowest; NaN wins, the first.
 * outputs may be NULL when only the index is wanted.
 * [RED-2] F32 sums are accurate to 1e-6 × sum of |values| for up to 2^24 values.
 * [RED-3] INDEX in pre counts over the inputs' sizes.
 * Mandatory: SUM PROD MIN MAX for I64 and F32, ALL and ANY for BOOL. */
typedef struct fl_reduce_args {
  uint16_t kind;
  uint8_t accumulate; /* register type */
  uint8_t n_inputs;
  uint16_t n_outputs;
  uint16_t reserved;
  const fl_program* pre;
  const fl_program* post;
  const fl_tensor* inputs;
  const fl_tensor* outputs;
  const fl_tensor* index;
  const fl_scalar* pre_scalars;
  const fl_scalar* post_scalars;
} fl_reduce_args;

/* out = epilogue(alpha × a·b + beta × c)
 * a [B, M, K], b [B, K, N], c and out [B, M, N]; ndim 3 always; strides 0 over
 * B share a matrix.  a, b, c and out have one dtype.  c NULL: beta is 0, and
 * what out held is not read (it may be NaN).
 * [GEM-1] One of the last two strides of a, b and out is 1, or their size is 1;
 * all other strides are arbitrary.  c has any strides, 0 included.
 * [GEM-2] F16 and BF16 accumulate in F32; the result is rounded once, after
 * the epilogue.
 * epilogue (optional): input 0 is the result before rounding, as F32 (F64,
 * I64, C64, C128 for those dtypes), inputs 1… are `extra`, [B, M, N]
 * broadcast; one output, stored as out's dtype.
 * Integers wrap.  Mandatory: F32. */
typedef struct fl_gemm_args {
  fl_tensor a, b, out;
  const fl_tensor* c;
  fl_scalar alpha, beta;
  const fl_program* epilogue;
  const fl_tensor* extra; /* epilogue->n_inputs - 1 */
  const fl_scalar* scalars;
} fl_gemm_args;

/* Bounds policy of gather and scatter. */
#define FL_INDEX_WRAP 1u /* index -1 means the last, down to -size */

/* out[p] = from[ p · from.strides + Σk index_k[p] × index_stride_k ]
 * The iteration space is out's sizes; `from` and every index have them too,
 * with stride 0 where they do not vary.  index_stride_k is in elements of
 * `from`, index_size_k is what index_k is checked against.  Indices are I64 or
 * I32.  This is gather, index_select, embedding and x[i, :, j] alike.
 * [GAT-1] An index outside 0 … size-1 (-size … size-1 with FL_INDEX_WRAP) is
 * a fault FL_INDEX_OUT_OF_RANGE whose text has the index and the size; nothing
 * outside `from` is read.
 * [GAT-2] Elements move as bytes: every claimed dtype, NaN payloads included.
 * Mandatory: dtypes as copy. */
typedef struct fl_gather_args {
  fl_tensor from, out;
  const fl_tensor* indices;
  int64_t index_size[FL_MAX_INDICES];
  int64_t index_stride[FL_MAX_INDICES];
  int32_t n_indices; /* 1 … FL_MAX_INDICES */
  uint32_t flags;    /* FL_INDEX_WRAP */
} fl_gather_args;

/* X(name, value, tier) */
#define FL_SCATTER_MAP(X) X(SET, 0, M) X(ADD, 1, M) X(MUL, 2, O) X(MIN, 3, O) X(MAX, 4, O)
enum {
#define FL_SCATTER_ENUM(name, value, tier) FL_SCATTER_##name = (value),
  FL_SCATTER_MAP(FL_SCATTER_ENUM)
#undef FL_SCATTER_ENUM
      FL_SCATTER_COUNT
};

/* to[ p · to.strides + Σk index_k[p] × index_stride_k ]  (mode)=  from[p]
 * The iteration space is from's sizes; otherwise as gather.
 * [SCA-1] As GAT-1: nothing outside `to` is written.
 * [SCA-2] ADD, MUL, MIN, MAX with equal indices combine all of them.
 * [SCA-3] SET with equal indices: one of the values, whole; with
 * FL_LAUNCH_DETERMINISTIC the last in row-major order, and ADD adds in
 * row-major order.
 * [SCA-4] F16 and BF16 ADD may round after each addition.
 * Mandatory: SET for copy's dtypes, ADD for I64 and F32. */
typedef struct fl_scatter_args {
  fl_tensor to, from;
  const fl_tensor* indices;
  int64_t index_size[FL_MAX_INDICES];
  int64_t index_stride[FL_MAX_INDICES];
  int32_t n_indices;
  uint32_t flags;
  uint16_t mode; /* FL_SCATTER_… */
  uint16_t reserved[3];
} fl_scatter_args;

/* Random numbers, the same on every chip.
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC'11), key = (low, high 32 bits of seed).  Element i, in row-major order of
 * `out`, takes
 *   one word:  word (i mod 4) of block (offset + i/4)         BITS32 UNIFORM32
 *              of counter (block low, block high, 0, 0)       NORMAL32
 *   two words: words 2(i mod 2) and 2(i mod 2)+1 of block (offset + i/2)
 *              w = first | second << 32                       BITS64 UNIFORM64 NORMAL64
 * The host advances the offset by the number of blocks.
 *
 *   BITS32     the word, as an integer, stored in out's dtype
 *   BITS64     w, stored in I64 (the same bits)
 *   RANGE32    from + word % span       parameters: i = from, span < 2^32
 *   RANGE64    from + w % span          as unsigned numbers; span 0 is 2^64
 *   UNIFORM32  (word >> 8) × 2^-24, in F32:  low + that × (high - low)
 *   UNIFORM64  (w >> 11) × 2^-53, in F64, likewise
 *   NORMAL32   Box-Muller over the pair of words (2j, 2j+1) of the element's
 *              block, j = (i mod 4)/2:  u = ((first >> 8) + 1) × 2^-24,
 *              v = (second >> 8) × 2^-24, r = sqrt(-2 ln u); even i mod 4:
 *              r cos(2πv), odd: r sin(2πv); then mean + std × that
 *   NORMAL64   the same over the two 64-bit numbers of block offset + i/2:
 *              u = ((w0 >> 11) + 1) × 2^-53, v = (w1 >> 11) × 2^-53; even i:
 *              cos, odd: sin
 * [RND-1] RANGE and BITS are exact; UNIFORM is exact before low and high are
 * applied; NORMAL is within 1e-5 relative plus 1e-6 absolute (64: 1e-12).
 * [RND-2] UNIFORM with high > low never gives high: the product is clamped to
 * the largest number of out's dtype below high.
 * Mandatory: BITS32 RANGE32 RANGE64 for I64, UNIFORM32 and NORMAL32 for F32. */
#define FL_RANDOM_MAP(X) \
  X(BITS32, 0, M)        \
  X(BITS64, 1, O)        \
  X(RANGE32, 2, M) X(RANGE64, 3, M) X(UNIFORM32, 4, M) X(UNIFORM64, 5, O) X(NORMAL32, 6, M) X(NORMAL64, 7, O)
enum {
#define FL_RANDOM_ENUM(name, value, tier) FL_RANDOM_##name = (value),
  FL_RANDOM_MAP(FL_RANDOM_ENUM)
#undef FL_RANDOM_ENUM
      FL_RANDOM_COUNT
};

typedef struct fl_random_args {
  fl_tensor out;
  uint64_t seed, offset;
  fl_scalar a, b; /* RANGE: a.v.i from, b.v.i span; UNIFORM: a.v.f low, b.v.f high; NORMAL: mean, std */
  uint16_t distribution;
  uint16_t reserved[3];
} fl_random_args;

/* ------------------------------------------------------- optional, for speed */

/* out = softmax or log-softmax of `in` along the axis.  Same sizes and, unless
 * out is F32, same dtype.  [SMX-1] Stable for large inputs; a slice that is -inf
 * throughout gives NaN, as PyTorch does. */
typedef struct fl_softmax_args {
  fl_tensor in, out;
  int32_t axis;
  int32_t log; /* 0, 1 */
} fl_softmax_args;

/* grad_in = d/d in, from the forward's result `out`. */
typedef struct fl_softmax_backward_args {
  fl_tensor grad_out, out, grad_in;
  int32_t axis;
  int32_t log;
} fl_softmax_backward_args;

/* Layer norm (G == 1, S == 1), group norm, RMS norm.  x and y are [N, G, C, S];
 * each (n, g) is normalised over C × S:
 *   y = (x - mean) × rstd × weight + bias,  rstd = 1 / sqrt(variance + eps)
 * FL_NORM_RMS: mean is 0, variance is the mean of squares.  weight and bias are
 * [G, C] views or NULL; mean and rstd are [N, G], F32 (F64 for F64), mean NULL
 * for RMS.  [NRM-1] The variance is the biased one, and does not cancel for a
 * large mean. */
enum { FL_NORM_LAYER = 0, FL_NORM_RMS = 1 };
typedef struct fl_norm_args {
  fl_tensor x, y;
  const fl_tensor *weight, *bias, *mean, *rstd;
  double eps;
  int32_t kind;
  int32_t reserved;
} fl_norm_args;

/* Any of grad_x, grad_weight, grad_bias may be NULL. */
typedef struct fl_norm_backward_args {
  fl_tensor grad_y, x;
  const fl_tensor *weight, *mean, *rstd;
  const fl_tensor *grad_x, *grad_weight, *grad_bias;
  int32_t kind;
  int32_t reserved;
} fl_norm_backward_args;

/* Batch norm of x [N, C, S], per channel, over N × S.  Training: statistics of
 * x go to save_mean and save_rstd [C], and, unless NULL,
 *   running = (1 - momentum) × running + momentum × statistic
 * with the unbiased variance.  Inference (training 0): running_mean and
 * running_var are used, nothing is saved.  weight and bias may be NULL.
 * Per-channel tensors are F32, or x's dtype. */
typedef struct fl_batch_norm_args {
  fl_tensor x, y;
  const fl_tensor *weight, *bias, *running_mean, *running_var, *save_mean, *save_rstd;
  double momentum, eps;
  int32_t training;
  int32_t reserved;
} fl_batch_norm_args;

/* training 0: the statistics are the running ones (mean, rstd = 1/sqrt(var+eps)
 * given here as `mean` and `rstd`) and constant. */
typedef struct fl_batch_norm_backward_args {
  fl_tensor grad_y, x;
  const fl_tensor *weight, *mean, *rstd;
  const fl_tensor *grad_x, *grad_weight, *grad_bias;
  int32_t training;
  int32_t reserved;
} fl_batch_norm_backward_args;

/* Convolution over 1 to 3 spatial dimensions.  x [N, C, X…], w [K, C/groups, W…],
 * y [N, K, Y…]; ndim 3, 4 or 5.  Any strides; channels-last is a stride order.
 *   FL_CONV_FORWARD          y = conv(x, w) + bias        (bias [K] or NULL)
 *   FL_CONV_BACKWARD_DATA    x = gradient from y and w    (x is the output)
 *   FL_CONV_BACKWARD_WEIGHT  w = gradient from x and y    (w is the output;
 *                            bias, unless NULL, is one too)
 * A transposed convolution is FL_CONV_BACKWARD_DATA with roles exchanged; the
 * host does that.  Padding is the same at both ends. */
enum { FL_CONV_FORWARD = 0, FL_CONV_BACKWARD_DATA = 1, FL_CONV_BACKWARD_WEIGHT = 2 };
typedef struct fl_conv_args {
  fl_tensor x, w, y;
  const fl_tensor* bias;
  int32_t stride[3], padding[3], dilation[3];
  int32_t groups;
  int32_t kind;
  int32_t reserved;
} fl_conv_args;

/* Pooling over 1 to 3 spatial dimensions of x [N, C, X…] into y [N, C, Y…].
 *   FL_POOL_MAX       index (I64): row-major position in X…; NaN wins.  May be NULL
 *   FL_POOL_AVERAGE   divisor: window size, with count_padding including the
 *                     padding (but not what ceil mode adds), or `divisor`, if not 0
 *   FL_POOL_ADAPTIVE_AVERAGE  window of y[o]: floor(o X / Y) … ceil((o+1) X / Y) */
enum { FL_POOL_MAX = 0, FL_POOL_AVERAGE = 1, FL_POOL_ADAPTIVE_AVERAGE = 2 };
typedef struct fl_pool_args {
  fl_tensor x, y;
  const fl_tensor* index;
  int32_t kernel[3], stride[3], padding[3], dilation[3];
  int32_t kind, count_padding;
  int64_t divisor;
} fl_pool_args;

/* grad_x from grad_y (and, for MAX, the index). grad_x is written whole. */
typedef struct fl_pool_backward_args {
  fl_tensor grad_y, grad_x;
  const fl_tensor* index;
  int32_t kernel[3], stride[3], padding[3], dilation[3];
  int32_t kind, count_padding;
  int64_t divisor;
} fl_pool_backward_args;

/* out = softmax(q·kᵀ × scale + bias [+ causal mask]) · v
 * q [B, H, L, E], k [B, Hk, S, E], v [B, Hk, S, Ev], out [B, H, L, Ev]; H is a
 * multiple of Hk.  bias [B, H, L, S] in q's dtype, broadcast by strides, or
 * NULL.  causal: position l sees s <= l.  lse [B, H, L], F32 (F64 for F64): log
 * of the sum of exponentials, for the backward.
 * [ATT-1] A row whose keys are all masked (-inf) gives zeros, and lse -inf. */
typedef struct fl_attention_args {
  fl_tensor q, k, v, out, lse;
  const fl_tensor* bias;
  double scale;
  int32_t causal;
  int32_t reserved;
} fl_attention_args;

typedef struct fl_attention_backward_args {
  fl_tensor q, k, v, out, lse, grad_out;
  const fl_tensor* bias;
  fl_tensor grad_q, grad_k, grad_v;
  double scale;
  int32_t causal;
  int32_t reserved;
} fl_attention_backward_args;

/* One program over many tensors in one launch: item i runs the program on
 * inputs[i × n_inputs …] and outputs[i × n_outputs …].  Within an item all
 * tensors have one size and rank, as in pointwise.  The first
 * n_scalars - n_item_scalars scalars are shared; the others come from
 * item_scalars[i × n_item_scalars …]. */
typedef struct fl_multi_tensor_args {
  const fl_program* program;
  const fl_tensor* inputs;
  const fl_tensor* outputs;
  const fl_scalar* scalars;
  const fl_scalar* item_scalars;
  int32_t n_items;
  int32_t n_item_scalars;
} fl_multi_tensor_args;

/* Inclusive scan along the axis: out[i] = in[0] ∘ … ∘ in[i].  Same sizes.  `in`
 * is converted to out's dtype first; the claim's dtype is out's.
 * [SCN-1] MIN, MAX: NaN once met stays.  index (I64; NULL where none is asked
 * for, and for the other kinds): the position along the axis of the value, the
 * last of equal ones; of NaN the last.
 * [SCN-2] F16 and BF16 are accumulated in F32; integers wrap.
 * LOGSUMEXP (floats): log of the sum of exponentials, stable for large inputs. */
/* clang-format off */
#define FL_SCAN_MAP(X) X(SUM, 0) X(PROD, 1) X(MIN, 2) X(MAX, 3) X(LOGSUMEXP, 4)
/* clang-format on */
enum {
#define FL_SCAN_ENUM(name, value) FL_SCAN_##name = (value),
  FL_SCAN_MAP(FL_SCAN_ENUM)
#undef FL_SCAN_ENUM
      FL_SCAN_COUNT
};

typedef struct fl_scan_args {
  fl_tensor in, out;
  const fl_tensor* index;
  int32_t axis;
  int32_t kind;
} fl_scan_args;

/* The slices of `in` along the axis in order: out (in's dtype) the values,
 * index (I64) where they were; either may be NULL.  Same sizes as `in`, but
 * along the axis they may be k: the first k of the order (top-k).
 * [SRT-1] The order is stable, descending too: equal values keep their order;
 * -0 equals 0, NaN is larger than all and equal to NaN. */
typedef struct fl_sort_args {
  fl_tensor in;
  const fl_tensor *out, *index;
  int32_t axis;
  int32_t descending; /* 0, 1 */
} fl_sort_args;

/* Where `mask` (BOOL, any layout) is true: index (I64, [mask's elements],
 * contiguous) gets the row-major numbers of those elements, in order, and
 * count (I64, one element) how many.  What lies behind the last is unspecified.
 * Claimed for BOOL. */
typedef struct fl_compact_args {
  fl_tensor mask, index, count;
} fl_compact_args;

/* A sparse matrix by rows times dense ones:
 *   out[b, m, n] = mode over j in row_begin[m] … row_begin[m+1]-1 of
 *                  values[j] × dense[b, columns[j], n]
 * dense [B, K, N] and out [B, M, N] of one dtype, any strides; row_begin
 * [M+1], columns [J] of one index dtype (I64 or I32), columns NULL: j itself;
 * values [J] in dense's dtype, NULL: ones.  An empty row gives `empty`.
 * winner (I64 [B, M, N], or NULL; MIN and MAX only): the j that won, the first
 * of equal ones, -1 in an empty row.  NaN wins.
 * This is sparse × dense, embedding bags, segment reductions and, with computed
 * rows, every separable interpolation and its gradient.
 * [SPM-1] A column outside 0 … K-1 is a fault FL_INDEX_OUT_OF_RANGE; row_begin
 * is checked by the host.  [SPM-2] F16 and BF16 accumulate in F32. */
/* clang-format off */
#define FL_SPMM_MAP(X) X(SUM, 0) X(MEAN, 1) X(MIN, 2) X(MAX, 3) X(PROD, 4)
/* clang-format on */
enum {
#define FL_SPMM_ENUM(name, value) FL_SPMM_##name = (value),
  FL_SPMM_MAP(FL_SPMM_ENUM)
#undef FL_SPMM_ENUM
      FL_SPMM_COUNT
};

typedef struct fl_spmm_args {
  fl_tensor row_begin, dense, out;
  const fl_tensor *columns, *values, *winner;
  fl_scalar empty; /* as fill reads it, in out's dtype */
  int32_t mode;    /* FL_SPMM_… */
  int32_t reserved;
} fl_spmm_args;

/* out[j] = scale × Σk in[k] × exp(∓2πi jk/n) along the axis; + with `inverse`.
 * in and out are C64 or C128, same sizes and dtype; any length n.  Claimed for
 * F32 (F64), one side is real, n long along the axis, and the other the first
 * n/2 + 1 of the complex values, C64 (C128): `in` is the real side, or with
 * `inverse` `out`; then the missing values are the conjugates of those there,
 * and the imaginary parts of the first and, n even, the last count for nothing.
 * [FFT-1] Within 1e-6 (C128: 1e-14) × log2(n) of the largest result. */
typedef struct fl_fft_args {
  fl_tensor in, out;
  double scale;
  int32_t axis;
  int32_t inverse; /* 0, 1 */
} fl_fft_args;

/* ======================================================================== table
 * claims: n_claims rows, constant, read once when the chip is loaded. */
typedef struct fl_op_api {
  uint32_t size;
  uint32_t n_claims;
  const fl_claim* claims;

  fl_status (*copy)(const fl_launch*, const fl_copy_args*);
  fl_status (*fill)(const fl_launch*, const fl_fill_args*);
  fl_status (*pointwise)(const fl_launch*, const fl_pointwise_args*);
  fl_status (*reduce)(const fl_launch*, const fl_reduce_args*);
  fl_status (*gemm)(const fl_launch*, const fl_gemm_args*);
  fl_status (*gather)(const fl_launch*, const fl_gather_args*);
  fl_status (*scatter)(const fl_launch*, const fl_scatter_args*);
  fl_status (*random)(const fl_launch*, const fl_random_args*);

  fl_status (*softmax)(const fl_launch*, const fl_softmax_args*);
  fl_status (*softmax_backward)(const fl_launch*, const fl_softmax_backward_args*);
  fl_status (*norm)(const fl_launch*, const fl_norm_args*);
  fl_status (*norm_backward)(const fl_launch*, const fl_norm_backward_args*);
  fl_status (*batch_norm)(const fl_launch*, const fl_batch_norm_args*);
  fl_status (*batch_norm_backward)(const fl_launch*, const fl_batch_norm_backward_args*);
  fl_status (*conv)(const fl_launch*, const fl_conv_args*);
  fl_status (*pool)(const fl_launch*, const fl_pool_args*);
  fl_status (*pool_backward)(const fl_launch*, const fl_pool_backward_args*);
  fl_status (*attention)(const fl_launch*, const fl_attention_args*);
  fl_status (*attention_backward)(const fl_launch*, const fl_attention_backward_args*);
  fl_status (*multi_tensor)(const fl_launch*, const fl_multi_tensor_args*);
  fl_status (*scan)(const fl_launch*, const fl_scan_args*);
  fl_status (*sort)(const fl_launch*, const fl_sort_args*);
  fl_status (*compact)(const fl_launch*, const fl_compact_args*);
  fl_status (*spmm)(const fl_launch*, const fl_spmm_args*);
  fl_status (*fft)(const fl_launch*, const fl_fft_args*);
} fl_op_api;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FL_OPS_H */
