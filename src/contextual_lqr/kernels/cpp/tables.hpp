// What is asked of every row of a table of logs; the tables come from native.cpp.
#pragma once

#include <cstdint>

// A hash of each row of n columns, which hold doubles or, by their bits, other hashes.
using Hashing = void(const double *const *columns, int n, std::int64_t rows, std::uint64_t *found);

// The least and the most of each of n columns over some rows, at least one; not a number where one of
// them is not finite.
using Ranging = void(const double *const *columns, int n, const std::int64_t *rows,
                     std::int64_t count, double *low, double *high);

// An open hash table of keys that are hashes themselves: a slot has the place of a key among the known
// ones, or -1. There are more slots than keys, a power of two.
struct Keys {
    const std::uint64_t *known;
    std::int64_t *table, slots;
};

// The place of each of so many keys; -1 if it is not known.
using Finding = void(const Keys &keys, const std::uint64_t *wanted, std::int64_t count,
                     std::int64_t *found);

// Enters the known keys at some places, none of which is in the table.
using Entering = void(const Keys &keys, const std::int64_t *places, std::int64_t count);

#define TABLES_OF(target)  \
    namespace target {     \
    Hashing row_hashes;    \
    Ranging column_ranges; \
    Finding find_keys;     \
    Entering enter_keys;   \
    }
TABLES_OF(baseline)
TABLES_OF(avx2)
#undef TABLES_OF
