// Small pieces of device work that the tests of order and faults are made of.
#pragma once

#include "session.h"

namespace kit {

void fill(const fl_launch& launch, Tensor& to, Number value);
void copy(const fl_launch& launch, Tensor& to, Tensor& from);

// Queues work that takes about `milliseconds` (measured once in this process).
// A chip that works inside the call has done it when this returns.
void busy(Session& session, double milliseconds);

// Puts FL_INDEX_OUT_OF_RANGE on the stream: a gather past the end, submitted as `tag`.
void cause_fault(Session& session, uint64_t tag);
fl_status take_fault(fl_stream stream, fl_fault& fault);
void drain_faults(fl_stream stream);  // stops when they do not end

class Event {
 public:
  explicit Event(int32_t device = 0, uint32_t flags = 0) {
    ok(chip().stream.event_create(device, flags, &event), "event create");
  }
  ~Event() { chip().stream.event_destroy(event); }
  Event(const Event&) = delete;
  operator fl_event() const { return event; }

 private:
  fl_event event = nullptr;
};

double now_ms();
int thread_count();  // of this process

}  // namespace kit
