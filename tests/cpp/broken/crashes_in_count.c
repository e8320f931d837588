/* Dies of SIGABRT when it is asked how many devices it has: only a process of its own can find that out. */
#include "base.h"
static fl_status dies(int32_t* out) { return (void)out, abort(), FL_OK; }
CHIP("crashes_in_count", broken_device.count = dies)
