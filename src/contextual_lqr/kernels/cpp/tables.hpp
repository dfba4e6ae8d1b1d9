// What is asked of every row of a table of logs; the tables come from native.cpp.
#pragma once

#include <cstdint>

// A hash of each row of n columns, which hold doubles or, by their bits, other hashes.
using Hashing = void(const double *const *columns, int n, std::int64_t rows, std::uint64_t *found);

// The least and the most of each of n columns over some rows, at least one; not a number where one of
// them is not finite.
using Ranging = void(const double *const *columns, int n, const std::int64_t *rows,
                     std::int64_t count, double *low, double *high);

#define TABLES_OF(target)  \
    namespace target {     \
    Hashing row_hashes;    \
    Ranging column_ranges; \
    }
TABLES_OF(baseline)
TABLES_OF(avx2)
#undef TABLES_OF
