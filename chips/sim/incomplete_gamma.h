// The regularised incomplete gamma functions.
#pragma once

namespace sim {

double lower_gamma(double a, double x);  // P(a, x)
double upper_gamma(double a, double x);  // Q(a, x) = 1 - P(a, x)

}  // namespace sim
