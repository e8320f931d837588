/* clang-format off */ /* One file, for one sitting.
 * template.c — the smallest chip that runs every model: the mandatory tier of fl/chip.h and fl/ops.h in
 * C99, computed by the host's processor.  TO MAKE A CHIP OF YOUR OWN
 *   1. Copy this folder, replace "template" by your chip's name, and build it with  cc -std=c99 -O2 -fPIC
 *      -shared -fvisibility=hidden -Iinclude mychip.c -o libmychip.so -lm -lpthread
 *   2. Run  fl-kit ./libmychip.so : it passes now, and should after each of the next steps.
 *   3. Let properties, malloc, free and copy speak to your driver.
 *   4. Streams: this chip works inside the call, a queue that is always empty, and has the host lock
 *      (FL_CHIP_SERIAL_LAUNCH).  Put each entry's work into a real queue; then events have to wait.
 *   5. Operators, the costly ones first: gemm, copy, pointwise, reduce.  `claims` says what you do; answer
 *      FL_UNSUPPORTED to all else, and the host composes it or runs it on the CPU.
 *   6. Add the optional entries of fl/ops.h that a profile of your models asks for. */
#define _POSIX_C_SOURCE 200112L
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "fl/ops.h"
#pragma GCC diagnostic ignored "-Wunused-parameter" /* methods get all that any chip needs */
#define ALIGNMENT 64
#define TOTAL_MEMORY ((uint64_t)8 << 30)
#define B(name) FL_BIT(FL_##name)
#define REGISTERS (B(BOOL) | B(I32) | B(I64) | B(F32))
#define STORED (REGISTERS | B(U8) | B(I8) | B(I16) | B(BF16))
static const fl_host* host;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the memory in use and of faults */
static uint64_t used;

/* ---------------------------------------------------------------------------------- device and memory */
static fl_status refuse(fl_status status, const char* why) { return host->set_error(why), status; }
static fl_status check(int32_t device) { return device ? refuse(FL_INVALID, "no such device") : FL_OK; }
static fl_status count(int32_t* out) { return *out = 1, FL_OK; }
static fl_status properties(int32_t device, fl_device_properties* out) {
  fl_device_properties p = {out->size < sizeof p ? out->size : sizeof p, FL_DEVICE_SOFTWARE, "template",
      "template:0", TOTAL_MEMORY, 0, ALIGNMENT, 1, 1, 0, STORED, REGISTERS};
  return check(device) ? FL_INVALID : (memcpy(out, &p, p.size), FL_OK);
}
static uint64_t reserve(int64_t bytes) { /* what is free before; takes nothing when that is too little */
  pthread_mutex_lock(&lock);
  uint64_t left = TOTAL_MEMORY - used;
  if (bytes < 0 || (uint64_t)bytes <= left) used += bytes;
  return pthread_mutex_unlock(&lock), left;
}
static fl_status device_malloc(int32_t device, size_t bytes, void** out) {
  char* block; /* begins with its size */
  if (check(device)) return FL_INVALID;
  if (bytes == 0) return refuse(FL_INVALID, "malloc of 0 bytes");
  if (bytes > TOTAL_MEMORY || reserve(bytes) < bytes) return refuse(FL_OUT_OF_MEMORY, "its 8 GiB are full");
  if (posix_memalign((void**)&block, ALIGNMENT, bytes + ALIGNMENT))
    return reserve(-(int64_t)bytes), refuse(FL_OUT_OF_MEMORY, "the host has no memory left");
  return *(int64_t*)block = bytes, *out = block + ALIGNMENT, FL_OK;
}
static fl_status device_free(int32_t device, void* address) {
  int64_t* block = (int64_t*)((char*)address - ALIGNMENT);
  if (check(device)) return FL_INVALID;
  return address ? (reserve(-*block), free(block), FL_OK) : FL_OK;
}
static fl_status info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
  return check(device) ? FL_INVALID : (*free_bytes = reserve(0), *total_bytes = TOTAL_MEMORY, FL_OK);
}
static fl_status host_alloc(size_t n, void** out) { return posix_memalign(out, 64, n) ? FL_FAILED : FL_OK; }
static fl_status host_free(void* address) { return free(address), FL_OK; }
static fl_status memory_copy(const fl_launch* l, int kind, void* to, const void* from, size_t bytes) {
  return memmove(to, from, bytes), FL_OK;
}

/* --------------- streams and events: work runs inside its call, so that the queue is always empty */
struct fl_stream_s { fl_fault fault; /* the oldest, until it is taken */ };
struct fl_event_s { double ms; uint32_t timing; }; /* ms 0: never recorded */
static void fail(const fl_launch* l, fl_status status, const char* text, long long a, long long b) {
  fl_fault* f = &l->stream->fault;
  pthread_mutex_lock(&lock);
  if (f->status == FL_OK) f->status = status, f->tag = l->tag, snprintf(f->text, sizeof f->text, text, a, b);
  pthread_mutex_unlock(&lock);
}
static fl_status take_fault(fl_stream stream, fl_fault* out) {
  pthread_mutex_lock(&lock);
  fl_status status = stream->fault.status ? FL_OK : FL_NOT_READY;
  stream->fault.size = out->size < sizeof *out ? out->size : sizeof *out;
  if (status == FL_OK) memcpy(out, &stream->fault, stream->fault.size);
  return stream->fault.status = FL_OK, pthread_mutex_unlock(&lock), status;
}
static fl_status query(fl_stream stream) { /* and synchronize */
  pthread_mutex_lock(&lock);
  fl_status status = stream->fault.status;
  return pthread_mutex_unlock(&lock), status;
}
static fl_status synchronize(fl_stream stream, int64_t timeout_ns) { return query(stream); }
static fl_status stream_create(int32_t device, int32_t priority, fl_stream* out) {
  fl_stream stream = calloc(1, sizeof *stream);
  return check(device) ? (free(stream), FL_INVALID) : stream ? (*out = stream, FL_OK) : FL_OUT_OF_MEMORY;
}
static fl_status stream_destroy(fl_stream stream) { return free(stream), FL_OK; }
static fl_status wait_event(fl_stream stream, fl_event event) { return FL_OK; }
static fl_status event_create(int32_t device, uint32_t flags, fl_event* out) {
  fl_event event = calloc(1, sizeof *event);
  if (!event || check(device)) return free(event), event ? FL_INVALID : FL_OUT_OF_MEMORY;
  return event->timing = flags & FL_EVENT_TIMING, *out = event, FL_OK;
}
static fl_status event_destroy(fl_event event) { return free(event), FL_OK; }
static fl_status event_query(fl_event event) { return FL_OK; }
static fl_status event_synchronize(fl_event event, int64_t timeout_ns) { return FL_OK; }
static fl_status event_record(fl_event event, fl_stream stream) {
  struct timespec t;
  return clock_gettime(CLOCK_MONOTONIC, &t), event->ms = t.tv_sec * 1e3 + t.tv_nsec / 1e6, FL_OK;
}
static fl_status elapsed(fl_event from, fl_event to, double* ms) {
  if (!from->timing || !to->timing || !from->ms || !to->ms) return FL_INVALID;
  return *ms = to->ms - from->ms, FL_OK;
}

/* ------------------------------------------------------------------------------------ values and tensors */
typedef union { double f; int64_t i; } value; /* of a register: f for F32, rounded; i for BOOL, I32, I64 */
static value settle(value v, int type) {
  if (type == FL_F32) return (value){.f = (float)v.f};
  return (value){.i = type == FL_I32 ? (int32_t)v.i : type == FL_BOOL ? v.i != 0 : v.i};
}
static value convert(value v, int from, int to) {
  if (from != FL_F32 && to == FL_F32) v.f = (float)v.i;
  if (from == FL_F32 && to != FL_F32) v.i = to == FL_BOOL ? v.f != 0 : fabs(v.f) < 0x1p63 ? (int64_t)v.f : 0;
  return settle(v, to);
}
static float widen(uint16_t h) { union { uint32_t bits; float f; } u = {(uint32_t)h << 16}; return u.f; }
static uint16_t narrow(double f) {
  union { float f; uint32_t bits; } u = {(float)f};
  return f != f ? 0x7fc0 : (u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16;
}
/* How each dtype lies in memory: X(dtype, C type, member of value, register type, widen, narrow). */
#define STORAGE(X) X(BOOL, uint8_t, i, BOOL,,) X(U8, uint8_t, i, I32,,) X(I8, int8_t, i, I32,,)              \
  X(I16, int16_t, i, I32,,) X(I32, int32_t, i, I32,,) X(I64, int64_t, i, I64,,) X(F32, float, f, F32,,)      \
  X(BF16, uint16_t, f, F32, widen, narrow)
#define FUNCTIONS(name, ctype, member, reg, widen, narrow)                                                   \
  static value load_##name(const void* p) { return (value){.member = widen(*(const ctype*)p)}; }             \
  static void store_##name(void* p, value v) { *(ctype*)p = (ctype)narrow(v.member); }
#define ROW(name, ctype, m, reg, w, n) [FL_##name] = {sizeof(ctype), FL_##reg, load_##name, store_##name},
STORAGE(FUNCTIONS)
typedef struct { int size, reg; value (*load)(const void*); void (*store)(void*, value); } layout;
static const layout storage[FL_DTYPE_COUNT] = {STORAGE(ROW)};
static value load(const void* p, int m, int t) { return convert(storage[m].load(p), storage[m].reg, t); }
static void store(void* p, int m, value v, int t) { storage[m].store(p, convert(v, t, storage[m].reg)); }
/* Walks the points of several tensors of one shape in row-major order. */
enum { TENSORS = FL_MAX_INPUTS + FL_MAX_OUTPUTS + 1, DIMS = FL_MAX_DIMS };
typedef struct { int64_t sizes[DIMS], at[DIMS], step[TENSORS][DIMS]; int ndim, n; char* p[TENSORS]; } walk;
static void walk_add(walk* w, const fl_tensor* t, int n) {
  for (; n > 0; --n, ++t) {
    for (int d = 0; d < w->ndim; ++d) w->step[w->n][d] = t->strides[d] * storage[t->dtype].size;
    w->p[w->n++] = t->data;
  }
}
static void walk_start(walk* w, const fl_tensor* t, int n) {
  w->n = 0, w->ndim = t->ndim;
  for (int d = 0; d < w->ndim; ++d) w->sizes[d] = t->sizes[d], w->at[d] = 0;
  walk_add(w, t, n);
}
static int walk_next(walk* w) {
  for (int d = w->ndim - 1; d >= 0; --d) {
    int last = ++w->at[d] == w->sizes[d];
    for (int i = 0; i < w->n; ++i) w->p[i] += w->step[i][d] * (last ? 1 - w->sizes[d] : 1);
    if (!last) return 1;
    w->at[d] = 0;
  }
  return 0;
}

/* -------------------------------------------------------------------------------------------- programs */
static int64_t quotient(int64_t a, int64_t b) { return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b; }
static int64_t rest(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }
static int uneven(double r, double b) { return r != 0 && (r < 0) != (b < 0); } /* rounded the wrong way */
static uint64_t power(int64_t a, int64_t b) {
  uint64_t r = 1, x = a;
  if (b < 0) return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? x : 0;
  for (; b; b >>= 1, x *= x) r *= b & 1 ? x : 1;
  return r;
}
#define FLOATS(X) X(ADD, a + b) X(SUB, a - b) X(MUL, a * b) X(DIV, a / b) X(POW, pow(a, b)) X(NEG, -a)       \
  X(DIV_TRUNC, trunc((float)(a / b))) X(REM_TRUNC, fmod(a, b)) X(ABS, fabs(a)) X(SIGN, (a > 0) - (a < 0))    \
  X(DIV_FLOOR, b == 0 ? a / b : rint((a - fmod(a, b)) / b - uneven(fmod(a, b), b))) X(FLOOR, floor(a))       \
  X(REM_FLOOR, fmod(a, b) + (uneven(fmod(a, b), b) ? b : 0)) X(CEIL, ceil(a)) X(TRUNC, trunc(a))             \
  X(MAX, a > b || a != a ? a : b) X(MIN, a < b || a != a ? a : b) X(FMAX, fmax(a, b)) X(FMIN, fmin(a, b))    \
  X(ROUND, rint(a)) X(SQRT, sqrt(a)) X(RSQRT, 1 / sqrt(a)) X(RECIPROCAL, 1 / a) X(EXP, exp(a)) \
  X(EXP2, exp2(a)) X(EXPM1, expm1(a)) X(LOG, log(a)) X(LOG2, log2(a)) X(LOG10, log10(a)) X(LOG1P, log1p(a))  \
  X(COS, cos(a)) X(TAN, tan(a)) X(ASIN, asin(a)) X(ACOS, acos(a)) X(ATAN, atan(a)) X(SINH, sinh(a))          \
  X(COSH, cosh(a)) X(TANH, tanh(a)) X(ASINH, asinh(a)) X(ACOSH, acosh(a)) X(ATANH, atanh(a)) X(ERF, erf(a))  \
  X(ATAN2, atan2(a, b)) X(HYPOT, hypot(a, b)) X(COPYSIGN, copysign(a, b)) X(SIGMOID, 1 / (1 + exp(-a)))      \
  X(ERFC, erfc(a)) X(SIN, sin(a))
#define INTEGERS(X) X(ADD, u + v) X(SUB, u - v) X(MUL, u * v) X(POW, power(a, b)) X(AND, a & b) X(OR, a | b) \
  X(DIV_TRUNC, quotient(a, b)) X(DIV_FLOOR, quotient(a, b) - uneven(rest(a, b), b)) X(REM_TRUNC, rest(a, b)) \
  X(REM_FLOOR, rest(a, b) + (uneven(rest(a, b), b) ? b : 0)) X(XOR, a ^ b) X(NOT, type == FL_BOOL ? !a : ~a) \
  X(MAX, a > b ? a : b) X(MIN, a < b ? a : b) X(SHL, b < 0 || b > 63 ? 0 : u << b) X(ABS, a < 0 ? 0 - u : u) \
  X(SHR, a >> (b < 0 || b > 63 ? 63 : b)) X(NEG, 0 - u) X(SIGN, (a > 0) - (a < 0))
#define COMPARISONS(X) X(EQ, a == b) X(NE, a != b) X(LT, a < b) X(LE, a <= b) X(GT, a > b) X(GE, a >= b)
#define CASE_F(name, e) case FL_OP_##name: return (value){.f = (e)};
#define CASE_I(name, e) case FL_OP_##name: return (value){.i = (int64_t)(e)};
static value compute(int op, int type, value x, value y) { /* not yet rounded or wrapped */
  double a = x.f, b = y.f;
  if (type == FL_F32) switch (op) { FLOATS(CASE_F) COMPARISONS(CASE_I) }
  else {
    int64_t a = x.i, b = y.i;
    uint64_t u = a, v = b;
    switch (op) { INTEGERS(CASE_I) COMPARISONS(CASE_I) }
  }
  return x;
}

/* What the chip does: the opcodes in order, then the other entries; a row of zeros ends it. */
enum { C, O = 0, M = REGISTERS, N = M, F = B(F32), G = F, J = B(I32) | B(I64), R = F | J, I = J | B(BOOL) };
#define OPCODE(name, value, operands, types, tier, meaning) {FL_ENTRY_POINTWISE, value, (types) & (tier)},
#define KIND(entry, kind, dtypes) {FL_ENTRY_##entry, FL_##entry##_##kind, dtypes}
static const fl_claim claims[] = {
    FL_OPCODE_MAP(OPCODE) {FL_ENTRY_COPY, FL_ANY, STORED}, {FL_ENTRY_FILL, FL_ANY, STORED},
    KIND(REDUCE, SUM, R), KIND(REDUCE, PROD, R), KIND(REDUCE, MIN, R), KIND(REDUCE, MAX, R),
    KIND(REDUCE, ALL, B(BOOL)), KIND(REDUCE, ANY, B(BOOL)), {FL_ENTRY_GEMM, FL_ANY, B(F32)},
    {FL_ENTRY_GATHER, FL_ANY, STORED}, KIND(SCATTER, SET, STORED), KIND(SCATTER, ADD, R),
    KIND(RANDOM, BITS32, B(I64)), KIND(RANDOM, RANGE32, B(I64)), KIND(RANDOM, RANGE64, B(I64)),
    KIND(RANDOM, UNIFORM32, B(F32)), KIND(RANDOM, NORMAL32, B(F32)), {0, 0, 0}};
static int claimed(int entry, int kind, int dtype) {
  const fl_claim* c = claims + FL_OP_COUNT;
  while (c->dtypes && !(c->entry == entry && (c->kind == kind || c->kind == FL_ANY))) ++c;
  return c->dtypes >> dtype & 1;
}
static int supported(const fl_program* p) { /* no program is, too */
  for (int i = 0; p && i < p->n_code; ++i) {
    const fl_instr* o = &p->code[i];
    uint32_t memory = o->op <= FL_OP_STORE ? STORED : o->op == FL_OP_CAST ? REGISTERS : ~0u;
    if (o->op >= FL_OP_COUNT || !(claims[o->op].dtypes >> o->type & memory >> o->memory & 1)) return 0;
  }
  return 1;
}

/* Runs a program at the point `at` of the shape `t`. */
static void run(const fl_launch* l, const fl_program* p, const fl_scalar* s, char* const* in,
                char* const* out, const fl_tensor* t, const int64_t* at) {
  value r[FL_MAX_CODE];
  for (int i = 0; i < p->n_code; ++i) {
    const fl_instr* o = &p->code[i];
    int zero = o->type != FL_F32 && o->op >= FL_OP_DIV_TRUNC && o->op <= FL_OP_REM_FLOOR && !r[o->b].i;
    r[i].i = 0;
    if (zero) fail(l, FL_FAILED, "integer division by zero", 0, 0);
    else if (o->op == FL_OP_LOAD) r[i] = load(in[o->a], o->memory, o->type);
    else if (o->op == FL_OP_STORE) continue; /* after all loads: an output may be an input */
    else if (o->op == FL_OP_CONST)
      r[i].i = (int64_t)(o->a | (uint64_t)o->b << 16 | (uint64_t)o->c << 32 | (uint64_t)o->reserved << 48);
    else if (o->op == FL_OP_SCALAR) r[i].i = s[o->a].v.i; /* or f: the same bits */
    else if (o->op == FL_OP_CAST) r[i] = convert(r[o->a], o->memory, o->type);
    else if (o->op == FL_OP_SELECT) r[i] = r[o->a].i ? r[o->b] : r[o->c];
    else if (o->op == FL_OP_INDEX) {
      for (int d = 0; d < t->ndim; ++d) r[i].i = r[i].i * t->sizes[d] + at[d];
      if (o->a != 0xffff) r[i].i = at[o->a];
    } else r[i] = compute(o->op, o->type, r[o->a], r[o->b]);
    if (o->op < FL_OP_EQ || o->op > FL_OP_GE) r[i] = settle(r[i], o->type);
  }
  for (const fl_instr* o = p->code; o < p->code + p->n_code; ++o)
    if (o->op == FL_OP_STORE) store(out[o->b], o->memory, r[o->a], o->type);
}

/* --------------------------------------------------------------------------------------------- entries */
static fl_status pointwise(const fl_launch* l, const fl_pointwise_args* a) {
  const fl_program* p = a->program;
  walk w;
  if (!supported(p)) return FL_UNSUPPORTED;
  walk_start(&w, a->outputs, p->n_outputs), walk_add(&w, a->inputs, p->n_inputs);
  do run(l, p, a->scalars, w.p + p->n_outputs, w.p, a->outputs, w.at);
  while (walk_next(&w));
  return FL_OK;
}
static fl_status fill(const fl_launch* l, const fl_fill_args* a) {
  int reg = storage[a->to.dtype].reg;
  const fl_instr code[] = {{FL_OP_SCALAR, reg}, {FL_OP_STORE, reg, a->to.dtype}};
  const fl_program p = {code, 0, 2, 0, 1, 1};
  return pointwise(l, &(fl_pointwise_args){&p, NULL, &a->to, &a->value});
}
static fl_status copy(const fl_launch* l, const fl_copy_args* a) {
  static const uint8_t bits[] = {[1] = FL_U8, [2] = FL_I16, [4] = FL_I32, [8] = FL_I64};
  int same = a->from.dtype == a->to.dtype, from = same ? bits[storage[a->to.dtype].size] : a->from.dtype;
  int reg = storage[from].reg; /* of one dtype: bit by bit, NaNs too */
  const fl_instr code[] = {{FL_OP_LOAD, reg, from}, {FL_OP_STORE, reg, same ? from : a->to.dtype}};
  const fl_program p = {code, 0, 2, 1, 1, 0};
  return pointwise(l, &(fl_pointwise_args){&p, &a->from, &a->to, NULL});
}

static fl_status reduce(const fl_launch* l, const fl_reduce_args* a) {
  static const uint8_t opcodes[] = {FL_OP_ADD, FL_OP_MUL, FL_OP_MIN, FL_OP_MAX, FL_OP_AND, FL_OP_OR};
  const fl_tensor *in = a->inputs, *shape = a->n_outputs ? a->outputs : a->index;
  int t = a->accumulate, n = a->n_inputs;
  if (!claimed(FL_ENTRY_REDUCE, a->kind, t) || !supported(a->pre) || !supported(a->post) ||
      !(a->pre || STORED >> in->dtype & 1) || !(a->post || STORED >> shape->dtype & 1)) return FL_UNSUPPORTED;
  walk outer, inner;
  walk_start(&outer, shape, 0), walk_add(&outer, in, n), walk_add(&outer, a->outputs, a->n_outputs);
  walk_add(&outer, a->index, a->index != NULL);
  do {
    int64_t cell, i = 0, winner = 0, at[DIMS];
    char* accumulated = (char*)&cell;
    value sum = {.i = 0}, v, next; /* F32 sums in double */
    walk_start(&inner, in, n), memcpy(inner.p, outer.p, n * sizeof *inner.p);
    for (int d = 0; d < in->ndim; ++d) inner.sizes[d] = shape->sizes[d] == in->sizes[d] ? 1 : in->sizes[d];
    do {
      for (int d = 0; d < in->ndim; ++d) at[d] = outer.at[d] + inner.at[d];
      if (a->pre) run(l, a->pre, a->pre_scalars, inner.p, &accumulated, in, at);
      v = a->pre ? load(&cell, t, t) : load(inner.p[0], in->dtype, t);
      next = i == 0 ? v : compute(opcodes[a->kind], t, sum, v);
      if (t == FL_F32 ? next.f != sum.f && sum.f == sum.f : next.i != sum.i) winner = i;
      sum = next;
    } while (++i, walk_next(&inner));
    sum = settle(sum, t), store(&cell, t, sum, t);
    if (a->post) run(l, a->post, a->post_scalars, &accumulated, outer.p + n, shape, outer.at);
    else if (a->n_outputs) store(outer.p[n], shape->dtype, sum, t);
    if (a->index) *(int64_t*)outer.p[outer.n - 1] = winner;
  } while (walk_next(&outer));
  return FL_OK;
}

static fl_status gemm(const fl_launch* l, const fl_gemm_args* g) {
  static const int64_t still[3] = {0, 0, 0};
  const int64_t *s = g->a.strides, *t = g->b.strides;
  float result;
  fl_tensor before = {&result, g->out.sizes, still, 3, FL_F32}; /* input 0 of the epilogue */
  walk w;
  if (!claimed(FL_ENTRY_GEMM, 0, g->out.dtype) || !supported(g->epilogue)) return FL_UNSUPPORTED;
  walk_start(&w, &g->out, 1), walk_add(&w, &before, 1);
  walk_add(&w, g->extra, g->epilogue ? g->epilogue->n_inputs - 1 : 0), walk_add(&w, g->c, g->c != NULL);
  do {
    const float* a = (float*)g->a.data + w.at[0] * s[0] + w.at[1] * s[1];
    const float* b = (float*)g->b.data + w.at[0] * t[0] + w.at[2] * t[2];
    double sum = 0;
    for (int64_t k = 0; k < g->a.sizes[2]; ++k) sum += (double)a[k * s[2]] * b[k * t[1]];
    result = (float)(g->alpha.v.f * sum + (g->c ? g->beta.v.f * *(float*)w.p[w.n - 1] : 0));
    if (g->epilogue) run(l, g->epilogue, g->scalars, w.p + 1, w.p, &g->out, w.at);
    else *(float*)w.p[0] = result;
  } while (walk_next(&w));
  return FL_OK;
}

/* Both move elements between a dense tensor and, where indices point, a sparse one (to).  mode -1: gather. */
static fl_status indexed(const fl_launch* l, const fl_scatter_args* s, int mode) {
  int dtype = s->to.dtype, reg = storage[dtype].reg, size = storage[dtype].size;
  walk w;
  if (!claimed(mode < 0 ? FL_ENTRY_GATHER : FL_ENTRY_SCATTER, mode, dtype)) return FL_UNSUPPORTED;
  walk_start(&w, &s->from, 1), walk_add(&w, &s->to, 1), walk_add(&w, s->indices, s->n_indices);
  do {
    char* p = w.p[1];
    int64_t i = 0, k = 0, n = 0;
    for (; k < s->n_indices; ++k, p += i * s->index_stride[k - 1] * size) {
      i = load(w.p[k + 2], s->indices[k].dtype, FL_I64).i, n = s->index_size[k];
      if (i < 0 && i >= -n && s->flags & FL_INDEX_WRAP) i += n;
      if (i < 0 || i >= n) break;
    }
    if (k < s->n_indices) fail(l, FL_INDEX_OUT_OF_RANGE, "index %lld is out of range for size %lld", i, n);
    else if (mode != FL_SCATTER_ADD) memcpy(mode < 0 ? w.p[0] : p, mode < 0 ? p : w.p[0], size);
    else store(p, dtype, compute(FL_OP_ADD, reg, load(p, dtype, reg), load(w.p[0], dtype, reg)), reg);
  } while (walk_next(&w));
  return FL_OK;
}
static fl_status scatter(const fl_launch* l, const fl_scatter_args* a) { return indexed(l, a, a->mode); }
static fl_status gather(const fl_launch* l, const fl_gather_args* a) {
  fl_scatter_args s;
  return memcpy(&s, a, sizeof *a), indexed(l, &s, -1); /* the same fields, but for the mode */
}

static fl_status random_numbers(const fl_launch* l, const fl_random_args* a) {
  int kind = a->distribution, dtype = a->out.dtype, wide = kind == FL_RANDOM_RANGE64;
  uint64_t i = 0, span = a->b.v.i;
  float low = a->a.v.f, high = a->b.v.f;
  walk w;
  if (!claimed(FL_ENTRY_RANDOM, kind, dtype)) return FL_UNSUPPORTED;
  walk_start(&w, &a->out, 1);
  do {
    uint64_t block = a->offset + i / (wide ? 2 : 4);
    uint32_t x[4] = {block, block >> 32, 0, 0}, k0 = a->seed, k1 = a->seed >> 32;
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) { /* Philox */
      uint64_t p = (uint64_t)0xD2511F53 * x[0], q = (uint64_t)0xCD9E8D57 * x[2];
      x[0] = q >> 32 ^ x[1] ^ k0, x[1] = q, x[2] = p >> 32 ^ x[3] ^ k1, x[3] = p;
    }
    uint64_t word = wide ? x[i % 2 * 2] | (uint64_t)x[i % 2 * 2 + 1] << 32 : x[i % 4];
    double u = ((x[i % 4 & 2] >> 8) + 1) * 0x1p-24, t = 6.283185307179586 * (x[i % 4 | 1] >> 8) * 0x1p-24;
    float f = low + (word >> 8) * 0x1p-24f * (high - low);
    if (f >= high && high > low) f = nextafterf(high, low);
    if (kind == FL_RANDOM_NORMAL32) f = a->a.v.f + a->b.v.f * sqrt(-2 * log(u)) * (i % 2 ? sin(t) : cos(t));
    if (dtype == FL_F32) *(float*)w.p[0] = f;
    else *(int64_t*)w.p[0] = kind == FL_RANDOM_BITS32 ? word : a->a.v.i + (span ? word % span : word);
  } while (++i, walk_next(&w));
  return FL_OK;
}

/* ---------------------------------------------------------------------------------------------- tables */
static const fl_device_api device_api = {sizeof device_api, 0, count, properties, check};
static const fl_memory_api memory_api = {
    sizeof memory_api, 0, device_malloc, device_free, info, memory_copy, NULL, host_alloc, host_free};
static const fl_stream_api stream_api = {
    sizeof stream_api, 0, stream_create, stream_destroy, synchronize, query, wait_event, take_fault,
    event_create, event_destroy, event_record, event_query, event_synchronize, elapsed};
static const fl_op_api op_api = {sizeof op_api, sizeof claims / sizeof *claims - 1, claims, copy, fill,
                                 pointwise, reduce, gemm, gather, scatter, random_numbers};
static const fl_chip chip = {sizeof chip, FL_ABI_VERSION, "template", "1", FL_CHIP_SERIAL_LAUNCH, 0,
                             &device_api, &memory_api, &stream_api, &op_api};
FL_EXPORT const fl_chip* fl_chip_entry(uint32_t host_version, const fl_host* table) {
  host = table;
  return host_version >> 16 == FL_ABI_MAJOR ? &chip : (refuse(FL_INVALID, "needs a host of ABI 1"), NULL);
}
