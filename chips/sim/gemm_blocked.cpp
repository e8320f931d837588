// The blocked matrix product on our own kernels: F32, F64, integers (in 64-bit
// arithmetic, which wraps as every narrower one does) and complex (as planes).
#include <omp.h>

#include <algorithm>

#include "gemm.h"

namespace sim {
namespace {

constexpr int64_t kBlockRows = 96, kBlockColumns = 256, kBlockDepth = 256;

template <class F>
void with_storage(uint8_t dtype, F&& f) {
  switch (dtype) {
    case FL_U8:
      return f(uint8_t());
    case FL_I8:
      return f(int8_t());
    case FL_U16:
      return f(uint16_t());
    case FL_I16:
      return f(int16_t());
    case FL_U32:
      return f(uint32_t());
    case FL_I32:
      return f(int32_t());
    case FL_U64:
      return f(uint64_t());
    case FL_I64:
      return f(int64_t());
    case FL_F16:
      return f(f16());
    case FL_BF16:
      return f(bf16());
    case FL_F32:
    case FL_C64:
      return f(float());
    default:
      return f(double());
  }
}

// Conversions exist between a class's own types only.
template <class T, class S>
constexpr bool converts() {
  if constexpr (std::is_same_v<T, float>) {
    return std::is_same_v<S, float> || std::is_same_v<S, f16> || std::is_same_v<S, bf16>;
  } else if constexpr (std::is_same_v<T, double>) {
    return std::is_same_v<S, double>;
  } else {
    return std::is_integral_v<S>;
  }
}

template <class T, class F>
void with_storage_of(uint8_t dtype, F&& f) {
  with_storage(dtype, [&](auto s) {
    if constexpr (converts<T, decltype(s)>()) f(s);
  });
}

// Both packers serve complex matrices too: `step` numbers make an element,
// and `part` says which.
template <class T>
void pack_rows(T* to, int64_t to_row, uint8_t dtype, const char* from, int64_t row, int64_t column,
               int64_t rows, int64_t columns, int step, int part) {
  with_storage_of<T>(dtype, [&](auto s) {
    using S = decltype(s);
    const S* p = reinterpret_cast<const S*>(from) + part;
    if (row == 1 && column != 1 && step == 1 && rows > 1) {
      load_transposed(to, to_row, p, row, column, rows, columns);
    } else {
      for (int64_t i = 0; i < rows; ++i)
        load_row(to + i * to_row, p + i * row * step, column * step, columns);
    }
  });
}

// a's block as strips of kMaxRows rows, column by column within a strip.
template <class T>
void pack_strips(T* to, int64_t depth, uint8_t dtype, const char* from, int64_t row, int64_t column,
                 int64_t rows, int64_t columns, int step, int part, bool negate) {
  constexpr int kRows = MicroKernel<T>::kMaxRows;
  with_storage_of<T>(dtype, [&](auto s) {
    using S = decltype(s);
    const S* p = reinterpret_cast<const S*>(from) + part;
    for (int64_t i = 0; i < rows; ++i) {
      T* strip = to + i / kRows * kRows * depth + i % kRows;
      const S* q = p + i * row * step;
      for (int64_t j = 0; j < columns; ++j) {
        T value = static_cast<T>(q[j * column * step]);
        strip[j * kRows] = negate ? T(0) - value : value;
      }
    }
  });
}

template <class T, bool Complex>
struct Blocks {
  static constexpr int kPlanes = Complex ? 2 : 1;
  static constexpr int kRows = MicroKernel<T>::kMaxRows;
  static constexpr int64_t kDepth = kBlockDepth / kPlanes;

  Context& context;
  const Gemm& g;
  const Epilogue* epilogue;
  const MicroKernel<T>& kernel = micro_kernel<T>();
  int64_t block_rows, row_blocks, column_blocks;
  size_t element = dtype_size(g.dtype);
  bool plain = !Complex && element == sizeof(T);  // needs no conversion
  bool a_direct, b_direct;
  int64_t a_size, b_size, tile_size, buffers = 0;
  T* memory = nullptr;

  Blocks(Context& c, const Gemm& gemm, const Epilogue* e) : context(c), g(gemm), epilogue(e) {
    int64_t threads = omp_get_max_threads();
    column_blocks = (g.n + kBlockColumns - 1) / kBlockColumns;
    // Enough blocks for all threads, as long as a block is worth packing for.
    int64_t wanted = std::max<int64_t>(1, 2 * threads / std::max<int64_t>(1, g.batch * column_blocks));
    block_rows = std::clamp<int64_t>((g.m / wanted + kRows - 1) / kRows * kRows, 4 * kRows, kBlockRows);
    row_blocks = (g.m + block_rows - 1) / block_rows;
    // Reading b in place costs nothing when few rows use it; otherwise packing pays.
    b_direct = plain && g.b.strides[2] == 1 && g.m <= 4 * block_rows && g.n % kernel.lanes == 0;
    a_direct = plain && (g.n <= 2 * kBlockColumns || g.a.strides[2] == 1);
    int64_t rows = (block_rows + kRows - 1) / kRows * kRows;
    int64_t depth = std::min<int64_t>(g.k, kDepth),
            columns = kernel.padded(std::min<int64_t>(g.n, kBlockColumns));
    a_size = a_direct ? 0 : kPlanes * kPlanes * depth * rows;
    b_size = b_direct ? 0 : kPlanes * depth * columns;
    tile_size = kPlanes * rows * columns;
  }

  void run() {
    int64_t blocks = g.batch * row_blocks * column_blocks;
    int64_t work = std::min(g.m, block_rows) * std::min(g.n, kBlockColumns) * g.k;
    int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, work));
    int64_t threads = blocks <= grain ? 1 : omp_get_max_threads();
    int64_t each = (a_size + b_size + tile_size + 15) / 16 * 16;
    memory = static_cast<T*>(context.scratch(each * threads * sizeof(T)));
    if (!memory) return;
    parallel(blocks, grain, [&](int64_t begin, int64_t end) {
      T* mine = memory + (threads == 1 ? 0 : omp_get_thread_num()) * each;
      int64_t packed = -1;  // row blocks of one column block share b when it fits one depth
      for (int64_t block = begin; block < end; ++block) {
        int64_t i = block % row_blocks, rest = block / row_blocks;
        block_product(rest / column_blocks, i, rest % column_blocks, mine, g.k <= kDepth && packed == rest);
        packed = rest;
      }
    });
  }

  void block_product(int64_t z, int64_t row_block, int64_t column_block, T* mine, bool b_ready) {
    int64_t m0 = row_block * block_rows, rows = std::min(block_rows, g.m - m0);
    int64_t n0 = column_block * kBlockColumns, columns = std::min(kBlockColumns, g.n - n0);
    int64_t width = kernel.padded(columns);
    T *packed_a = mine, *packed_b = mine + a_size, *tile = packed_b + b_size;
    const int step = kPlanes;
    const int64_t *as = g.a.strides, *bs = g.b.strides;
    for (int64_t k0 = 0; k0 < g.k; k0 += kDepth) {
      int64_t depth = std::min(kDepth, g.k - k0), full = depth * kPlanes;
      const char* a = g.a.data + (z * as[0] + m0 * as[1] + k0 * as[2]) * element;
      const char* b = g.b.data + (z * bs[0] + k0 * bs[1] + n0 * bs[2]) * element;
      if (!b_direct && !b_ready) {
        for (int part = 0; part < kPlanes; ++part) {
          pack_rows(packed_b + part * depth * width, width, g.dtype, b, bs[1], bs[2], depth, columns, step,
                    part);
        }
        if (width != columns) {
          for (int64_t p = 0; p < full; ++p)
            std::fill(packed_b + p * width + columns, packed_b + (p + 1) * width, T(0));
        }
      }
      // (ar + i ai)(br + i bi): real [ar, -ai]·[br; bi], imaginary [ai, ar]·[br; bi]
      int64_t strips = (rows + kRows - 1) / kRows * kRows * full;
      if (!a_direct) {
        for (int plane = 0; plane < kPlanes; ++plane) {
          for (int part = 0; part < kPlanes; ++part) {
            pack_strips(packed_a + plane * strips + part * depth * kRows, full, g.dtype, a, as[1], as[2],
                        rows, depth, step, plane ^ part, plane == 0 && part == 1);
          }
        }
      }
      const T* rows_b = b_direct ? reinterpret_cast<const T*>(b) : packed_b;
      int64_t b_row = b_direct ? bs[1] : width;
      for (int64_t j = 0; j < columns; j += kernel.width()) {
        int64_t vectors = std::min<int64_t>(kernel.vectors, (columns - j + kernel.lanes - 1) / kernel.lanes);
        for (int plane = 0; plane < kPlanes; ++plane) {
          for (int64_t i = 0; i < rows; i += kRows) {
            int64_t r = std::min<int64_t>(kRows, rows - i);
            const T* ai =
                a_direct ? reinterpret_cast<const T*>(a) + i * as[1] : packed_a + plane * strips + i * full;
            kernel.run[vectors - 1][r - 1](full, ai, a_direct ? as[1] : 1, a_direct ? as[2] : kRows,
                                           rows_b + j, b_row, tile + (plane * block_rows + i) * width + j,
                                           width, k0 != 0);
          }
        }
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; j += kRowSegment) {
        int64_t n = std::min<int64_t>(kRowSegment, columns - j);
        T* real = tile + i * width + j;
        if constexpr (Complex) {
          T row[2 * kRowSegment];
          const T* imaginary = real + block_rows * width;
          for (int64_t x = 0; x < n; ++x) {
            row[2 * x] = real[x];
            row[2 * x + 1] = imaginary[x];
          }
          finish_row<T, true>(context, g, epilogue, z, m0 + i, n0 + j, n, row);
        } else {
          finish_row<T, false>(context, g, epilogue, z, m0 + i, n0 + j, n, real);
        }
      }
    }
  }
};

template <class R, bool Complex>
R scalar(const fl_scalar& s) {
  if constexpr (std::is_integral_v<R>) return static_cast<R>(s.v.i);
  else return static_cast<R>(s.v.f);
}

}  // namespace

template <class R, bool Complex>
SIM_CLONES void scale_row(R* row, int64_t n, R real, [[maybe_unused]] R imaginary) {
  if constexpr (Complex) {
    for (int64_t i = 0; i < n; ++i) {
      R x = row[2 * i], y = row[2 * i + 1];
      row[2 * i] = x * real - y * imaginary;
      row[2 * i + 1] = x * imaginary + y * real;
    }
  } else {
    for (int64_t i = 0; i < n; ++i) row[i] *= real;
  }
}

template <class R>
SIM_CLONES void add_row(R* row, const R* other, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] += other[i];
}

template <class R, bool Complex>
void finish_row(Context& context, const Gemm& g, const Epilogue* epilogue, int64_t z, int64_t m, int64_t n0,
                int64_t n, R* row) {
  constexpr int kParts = Complex ? 2 : 1;
  const size_t element = dtype_size(g.dtype);
  if (!is_one(g.dtype, g.alpha)) scale_row<R, Complex>(row, n, scalar<R, Complex>(g.alpha), R(g.alpha.imag));
  if (g.c.data) {
    R other[kParts * kRowSegment];
    const int64_t* s = g.c.strides;
    const char* from = g.c.data + (z * s[0] + m * s[1] + n0 * s[2]) * element;
    with_storage_of<R>(g.dtype, [&](auto x) {
      using S = decltype(x);
      const S* p = reinterpret_cast<const S*>(from);
      if constexpr (Complex) {
        for (int64_t i = 0; i < n; ++i) {
          other[2 * i] = R(p[2 * i * s[2]]);
          other[2 * i + 1] = R(p[2 * i * s[2] + 1]);
        }
      } else {
        load_row(other, p, s[2], n);
      }
    });
    if (!is_one(g.dtype, g.beta)) scale_row<R, Complex>(other, n, scalar<R, Complex>(g.beta), R(g.beta.imag));
    add_row(row, other, kParts * n);
  }
  char* to = g.out.data + (z * g.out.strides[0] + m * g.out.strides[1] + n0 * g.out.strides[2]) * element;
  if (epilogue) {
    const char* inputs[FL_MAX_INPUTS] = {reinterpret_cast<const char*>(row)};
    int64_t input_strides[FL_MAX_INPUTS] = {static_cast<int64_t>(kParts * sizeof(R))};
    for (int i = 0; i < epilogue->n_extra; ++i) {
      const Matrix& e = epilogue->extra[i];
      inputs[i + 1] = e.data + z * e.strides[0] + m * e.strides[1] + n0 * e.strides[2];
      input_strides[i + 1] = e.strides[2];
    }
    int64_t out_stride = g.out.strides[2] * static_cast<int64_t>(element);
    int64_t sizes[3] = {g.batch, g.m, g.n};
    fl_status fault = FL_OK;
    run_plan(epilogue->plan, n, inputs, input_strides, &to, &out_stride, epilogue->scalars.values,
             (z * g.m + m) * g.n + n0, sizes, 3, &fault);
    if (fault != FL_OK) context.fail(fault, "gemm: division by zero in the epilogue");
    return;
  }
  with_storage_of<R>(g.dtype, [&](auto x) {
    using S = decltype(x);
    S* p = reinterpret_cast<S*>(to);
    if constexpr (Complex) {
      for (int64_t i = 0; i < n; ++i) {
        p[2 * i * g.out.strides[2]] = S(row[2 * i]);
        p[2 * i * g.out.strides[2] + 1] = S(row[2 * i + 1]);
      }
    } else {
      store_row(p, g.out.strides[2], row, n);
    }
  });
}

template void finish_row<float, false>(Context&, const Gemm&, const Epilogue*, int64_t, int64_t, int64_t,
                                       int64_t, float*);
template void finish_row<double, false>(Context&, const Gemm&, const Epilogue*, int64_t, int64_t, int64_t,
                                        int64_t, double*);

void multiply_blocked(Context& context, const Gemm& gemm, const Epilogue* epilogue) {
  switch (gemm.dtype) {
    case FL_F16:
    case FL_BF16:
    case FL_F32:
      return Blocks<float, false>(context, gemm, epilogue).run();
    case FL_F64:
      return Blocks<double, false>(context, gemm, epilogue).run();
    case FL_C64:
      return Blocks<float, true>(context, gemm, epilogue).run();
    case FL_C128:
      return Blocks<double, true>(context, gemm, epilogue).run();
    default:
      return Blocks<uint64_t, false>(context, gemm, epilogue).run();
  }
}

}  // namespace sim
