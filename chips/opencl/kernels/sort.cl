// Slices in order, by keys: unsigned numbers in the order of the values, NaN largest and -0 as 0, inverted where the
// order descends. Macros: RAW (unsigned, of the element's size), KEY (uint or ulong), KEY_OF(raw).
typedef struct {
  long first, cells;  // slices
  long n, k;          // elements of a slice, and how many are wanted
  long parts, part;   // a work-item takes `part` elements of a slice
  ulong flip;
  long shift;               // radix: the digit's
  long from, to, counts;    // in the work memory
  long has_out, has_index;
  long rank, size[16], stride[3][16];  // of slices: in, out, index
  long step[3];                        // along the axis
  long offset[3];
} P;
typedef struct {
  KEY key;
  uint at;
} Item;

static inline void slice_at(const P* p, long cell, long* o) {
  long rest = p->first + cell;
  for (int k = 0; k < 3; ++k) o[k] = 0;
  for (int d = (int)p->rank - 1; d >= 0; --d) {
    const long c = rest % p->size[d];
    rest /= p->size[d];
    for (int k = 0; k < 3; ++k) o[k] += c * p->stride[k][d];
  }
}
#define VALUES                                                                              \
  __global const RAW* values = (__global const RAW*)(in + p.offset[0]);                     \
  __global RAW* sorted = (__global RAW*)(out + p.offset[1]);                                \
  __global long* where = (__global long*)(index + p.offset[2]);
#define ITEM(o, i) KEY_OF(values[(o)[0] + (i) * p.step[0]]) ^ (KEY)p.flip
// The element at place i of the order is the one at `at` of the slice.
#define RESULT(o, i, at_)                                                                          \
  {                                                                                                \
    const long a_ = at_;                                                                           \
    if (p.has_out) sorted[(o)[1] + (i) * p.step[1]] = values[(o)[0] + a_ * p.step[0]];             \
    if (p.has_index) where[(o)[2] + (i) * p.step[2]] = a_;                                         \
  }

#ifdef RADIX
// Least significant digit first. A part's elements keep their order, and parts follow one another.
#ifdef PROCESSOR
#define DIGIT 8
#else
#define DIGIT 4
#endif
#define DIGITS (1 << DIGIT)
__kernel void radix(const P p, int stage, __global const uchar* in, __global uchar* out, __global uchar* index,
                    __global uchar* work) {
  VALUES
  __global Item* from = (__global Item*)(work + p.from);
  __global Item* to = (__global Item*)(work + p.to);
  __global uint* counts = (__global uint*)(work + p.counts);
  if (stage == 2) {  // where each part's elements of each digit begin
    UNITS(unit, p.cells) {
      __global uint* c = counts + unit * DIGITS * p.parts;
      uint sum = 0;
      for (long i = 0; i < DIGITS * p.parts; ++i) {
        const uint here = c[i];
        c[i] = sum;
        sum += here;
      }
    }
    return;
  }
  UNITS(unit, p.cells * p.parts) {
    const long cell = unit / p.parts, piece = unit % p.parts;
    long o[3];
    slice_at(&p, cell, o);
    const long first = piece * p.part, last = min(p.n, first + p.part);
    __global Item* f = from + cell * p.n;
    __global Item* t = to + cell * p.n;
    __global uint* c = counts + cell * DIGITS * p.parts + piece;
    uint digits[DIGITS];
    switch (stage) {
      case 0:
        for (long i = first; i < last; ++i) {
          f[i].key = ITEM(o, i);
          f[i].at = (uint)i;
        }
        break;
      case 1:
        for (int d = 0; d < DIGITS; ++d) digits[d] = 0;
        for (long i = first; i < last; ++i) ++digits[f[i].key >> p.shift & (DIGITS - 1)];
        for (int d = 0; d < DIGITS; ++d) c[d * p.parts] = digits[d];
        break;
      case 3:
        for (int d = 0; d < DIGITS; ++d) digits[d] = c[d * p.parts];
        for (long i = first; i < last; ++i) {
          const Item x = f[i];
          t[digits[x.key >> p.shift & (DIGITS - 1)]++] = x;
        }
        break;
      default:
        for (long i = first; i < min(last, p.k); ++i) RESULT(o, i, f[i].at)
    }
  }
}
#endif

#ifdef MERGE
// A work-item for each slice of at most MOST elements.
#ifdef PROCESSOR
#define MOST 256
#else
#define MOST 128
#endif
#define RUN 8
__kernel void merge(const P p, __global const uchar* in, __global uchar* out, __global uchar* index) {
  VALUES
  KEY keys[2][MOST];
  ushort places[2][MOST];
  UNITS(unit, p.cells) {
    long o[3];
    slice_at(&p, unit, o);
    const int n = (int)p.n;
    for (int i = 0; i < n; ++i) {
      const KEY key = ITEM(o, i);
      int j = i;
      for (; j % RUN && keys[0][j - 1] > key; --j) {
        keys[0][j] = keys[0][j - 1];
        places[0][j] = places[0][j - 1];
      }
      keys[0][j] = key;
      places[0][j] = (ushort)i;
    }
    int side = 0;
    for (int width = RUN; width < n; width *= 2, side ^= 1)
      for (int low = 0; low < n; low += 2 * width) {
        const int middle = min(low + width, n), high = min(middle + width, n);
        int l = low, r = middle, to = low;
        while (l < middle && r < high) {
          const int right = keys[side][r] < keys[side][l], x = right ? r : l;
          keys[side ^ 1][to] = keys[side][x];
          places[side ^ 1][to++] = places[side][x];
          r += right;
          l += !right;
        }
        for (; l < middle; ++l, ++to) keys[side ^ 1][to] = keys[side][l], places[side ^ 1][to] = places[side][l];
        for (; r < high; ++r, ++to) keys[side ^ 1][to] = keys[side][r], places[side ^ 1][to] = places[side][r];
      }
    for (int i = 0; i < (int)p.k; ++i) RESULT(o, i, places[side][i])
  }
}
#endif

#ifdef FIRST
// The first k of long slices, k at most MOST: each part's, in order, and of those the slice's.
#define MOST 64
#define NONE 0xffffffffu
static inline void insert(KEY* keys, uint* places, int* count, int k, KEY key, uint at) {
  int j = *count < k ? (*count)++ : k - 1;
  for (; j > 0 && keys[j - 1] > key; --j) {
    keys[j] = keys[j - 1];
    places[j] = places[j - 1];
  }
  keys[j] = key;
  places[j] = at;
}
__kernel void first_of(const P p, int stage, __global const uchar* in, __global uchar* out, __global uchar* index,
                       __global uchar* work) {
  VALUES
  __global Item* found = (__global Item*)(work + p.from);
  const int k = (int)p.k;
  UNITS(unit, p.cells * (stage == 0 ? p.parts : 1)) {
    KEY keys[MOST];
    uint places[MOST];
    int count = 0;
    long o[3];
    if (stage == 0) {
      const long cell = unit / p.parts, piece = unit % p.parts, first = piece * p.part;
      const long last = min(p.n, first + p.part);
      slice_at(&p, cell, o);
      for (long i = first; i < last; ++i) {
        const KEY key = ITEM(o, i);
        if (count < k || key < keys[k - 1]) insert(keys, places, &count, k, key, (uint)i);
      }
      __global Item* f = found + unit * k;
      for (int i = 0; i < k; ++i) {
        f[i].key = i < count ? keys[i] : 0;
        f[i].at = i < count ? places[i] : NONE;
      }
    } else {
      slice_at(&p, unit, o);
      __global const Item* f = found + unit * p.parts * k;
      for (long i = 0; i < p.parts * k; ++i)
        if (f[i].at != NONE && (count < k || f[i].key < keys[k - 1]))
          insert(keys, places, &count, k, f[i].key, f[i].at);
      for (int i = 0; i < k; ++i) RESULT(o, i, places[i])
    }
  }
}
#endif
