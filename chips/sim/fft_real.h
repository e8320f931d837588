// Fourier transforms between real lines and the halves of their spectra.
#pragma once

#include "sim.h"

namespace sim {

// The entry where one side is real: F32 with C64, F64 with C128.  FL_UNSUPPORTED for other dtypes.
fl_status fft_real(const fl_launch* launch, const fl_fft_args* args);

}  // namespace sim
