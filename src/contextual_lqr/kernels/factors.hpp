// The triangular factors of blocks of rows (factors.cpp), for the Python door (native.cpp).
#pragma once

#include <cstdint>

// Every `block` rows of n columns give one n × n upper triangle, row by row. The rows are those that
// are `chosen`, or the first ones if that is null. `work` has room for (n + 1) · block numbers. False,
// with nothing of use written, if rows of a block differ too much in size, exceed the limit, or are
// not finite.
using Factoring = bool(const double *const *columns, int n, const std::int64_t *chosen,
                       std::int64_t rows, std::int64_t block, double limit, double *triangles,
                       double *work);

namespace baseline { Factoring factor_blocks; }
namespace avx2 { Factoring factor_blocks; }
