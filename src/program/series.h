// Power series as formulas.
#pragma once

#include <iterator>
#include <vector>

#include "program/expr.h"

namespace fl {

template <class Table>
Expr polynomial(Expr t, const Table& table) {
  size_t n = std::size(table);
  Expr sum = t.like(table[n - 1]);
  for (size_t k = n - 1; k-- > 0;) sum = sum * t + table[k];
  return sum;
}

// sum of w**k / (k! (k + order)!) × factor(k), k < terms.
template <class Factor>
Expr bessel_series(Expr w, int order, int terms, Factor&& factor) {
  std::vector<double> table;
  double size = 1;
  for (int k = 0; k < terms; ++k) {
    if (k) size /= double(k) * (k + order);
    table.push_back(size * factor(k));
  }
  return polynomial(w, table);
}
inline Expr plain_series(Expr w, int order, int terms) {
  return bessel_series(w, order, terms, [](int) { return 1.0; });
}

}  // namespace fl
