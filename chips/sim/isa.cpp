#include "simd/isa.h"

#include <cstdlib>
#include <cstring>

namespace sim {

Isa isa() {
  static const Isa found = [] {
    Isa best = Isa::portable;
#if defined(SIM_X86_LEVELS)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
      best = Isa::avx2;
    if (best == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      best = Isa::avx512;
    if (const char* text = std::getenv("FL_SIM_ISA")) {
      if (std::strcmp(text, "portable") == 0) return Isa::portable;
      if (std::strcmp(text, "avx2") == 0 && best == Isa::avx512) return Isa::avx2;
    }
#endif
    return best;
  }();
  return found;
}

}  // namespace sim
