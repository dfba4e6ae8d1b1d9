// The triangular factors of blocks of rows (factors.cpp), for the Python door (native.cpp).
#pragma once

#include <cstdint>

// `columns` has n columns of `rows` numbers each, one after the other; every `block` rows give one
// n × n upper triangle, row by row. `work` has room for (n + 1) · block numbers. False, with
// nothing of use written, if rows of a block differ too much in size, or are not finite.
using Factoring = bool (*)(const double *columns, std::int64_t rows, int n, std::int64_t block,
                           double *triangles, double *work);

namespace baseline {
bool factor_blocks(const double *, std::int64_t, int, std::int64_t, double *, double *);
}
namespace avx2 {
bool factor_blocks(const double *, std::int64_t, int, std::int64_t, double *, double *);
}
