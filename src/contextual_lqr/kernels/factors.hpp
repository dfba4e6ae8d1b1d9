// The triangular factors of blocks of rows (factors.cpp), for the Python door (native.cpp).
#pragma once

#include <cstdint>

// The columns, n = n_left + n_right, have `rows` numbers each, and follow one another in `left` and
// in `right`; every `block` rows give one n × n upper triangle, row by row. `work` has room for
// (n + 1) · block numbers. False, with nothing of use written, if rows of a block differ too much in
// size, exceed the limit, or are not finite.
using Factoring = bool(const double *left, int n_left, const double *right, int n_right,
                       std::int64_t rows, std::int64_t block, double limit, double *triangles,
                       double *work);

namespace baseline { Factoring factor_blocks; }
namespace avx2 { Factoring factor_blocks; }
