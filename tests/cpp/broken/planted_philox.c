/* Random numbers begin one Philox block too late. */
#include "planted.h"
static fl_status faulty(const fl_launch* l, const fl_random_args* a) {
  fl_random_args b = *a;
  return ++b.offset, random_numbers(l, &b);
}
static void plant(void) { op.random = faulty; }
