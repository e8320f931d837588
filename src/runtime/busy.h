// How long devices have had work, by looking: for the summary of `torch-fl run`.
#pragma once

#include <cstdint>

namespace fl {

// A thread of its own asks each stream in use every few milliseconds whether anything is queued; what runs is
// not slowed. A second call does nothing.
void watch_devices();
void stop_watching();  // returns when the thread has ended: before libraries are torn down

// Seconds in which the device had work on some stream, to within the interval at either end of each piece.
double busy_seconds(int32_t device) noexcept;

}  // namespace fl
