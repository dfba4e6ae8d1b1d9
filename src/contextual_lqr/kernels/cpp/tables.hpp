// What is asked of every row of a table of logs; the tables come from native.cpp.
#pragma once

#include <cstdint>

// A hash of each row of n columns, which hold doubles or, by their bits, other hashes.
using Hashing = void(const double *const *columns, int n, std::int64_t rows, std::uint64_t *found);

// A digest of each beginning of each of so many stretches of rows, from the sum of its rows' hashes:
// stretch s begins at row starts[s].
using Digesting = void(const std::uint64_t *hashes, std::int64_t rows, const std::int64_t *starts,
                       std::int64_t count, std::uint64_t *found);

// The least and the most of each of n columns over some rows, at least one; not a number where one of
// them is not finite.
using Ranging = void(const double *const *columns, int n, const std::int64_t *rows,
                     std::int64_t count, double *low, double *high);

// An open hash table of keys that are hashes themselves: a slot has the place of a key among the known
// ones, or -1. There are more slots than keys that are entered, a power of two.
struct Keys {
    const std::uint64_t *known;
    std::int32_t *table;
    std::int64_t slots;
};

// The place of each of so many keys; -1 if it is not known.
using Finding = void(const Keys &keys, const std::uint64_t *wanted, std::int64_t count,
                     std::int64_t *found);

// Enters the known keys at some places; of equal ones, the first to be entered is found.
using Entering = void(const Keys &keys, const std::int64_t *places, std::int64_t count);

#define TABLES_OF(target)  \
    namespace target {     \
    Hashing row_hashes;    \
    Digesting digests;     \
    Ranging column_ranges; \
    Finding find_keys;     \
    Entering enter_keys;   \
    }
TABLES_OF(baseline)
TABLES_OF(avx2)
#undef TABLES_OF
