// Choosing among the compilations of simd/*.cpp.
//
// A file in simd/ defines its table in namespace sim::SIM_ISA; code outside says
//
//     SIM_DECLARE_LEVELS(const Kernels& kernels())      in a header, in namespace sim
//     static const Kernels& k = SIM_CHOOSE(kernels());  where it is used
#pragma once

namespace sim {

enum class Isa { portable, avx2, avx512 };

// What this processor runs; FL_SIM_ISA (portable, avx2, avx512) lowers it.
Isa isa();

#if defined(SIM_X86_LEVELS)
#define SIM_DECLARE_LEVELS(declaration) \
  namespace portable {                  \
  declaration;                          \
  }                                     \
  namespace avx2 {                      \
  declaration;                          \
  }                                     \
  namespace avx512 {                    \
  declaration;                          \
  }
#define SIM_CHOOSE(call)                                    \
  (::sim::isa() == ::sim::Isa::avx512 ? ::sim::avx512::call \
   : ::sim::isa() == ::sim::Isa::avx2 ? ::sim::avx2::call   \
                                      : ::sim::portable::call)
#else
#define SIM_DECLARE_LEVELS(declaration) \
  namespace portable {                  \
  declaration;                          \
  }
#define SIM_CHOOSE(call) ::sim::portable::call
#endif

}  // namespace sim
