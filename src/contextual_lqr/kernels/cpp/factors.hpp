// Triangular factors and what is done with them (factors.cpp, updates.cpp), for the Python door (native.cpp).
#pragma once

#include <cstdint>

// Every `block` rows of n columns give one n × n upper triangle, row by row. The rows are those that
// are `chosen`, or the first ones if that is null. `work` has room for (n + 1) · block numbers. False,
// with nothing of use written, if rows of a block differ too much in size, exceed the limit, or are
// not finite.
using Factoring = bool(const double *const *columns, int n, const std::int64_t *chosen,
                       std::int64_t rows, std::int64_t block, double limit, double *triangles,
                       double *work);

// The n × n upper triangle of `count` rows of n numbers, at most some hundreds, whatever their
// sizes. `work` has room for (n + 1) · count numbers, `order` for count. False, with nothing of use
// written, if a number is not finite or its square leaves the range of a double.
using RowFactoring = bool(const double *rows, std::int64_t count, int n, double *triangle,
                          double *work, std::int64_t *order);

// Rows of n columns that triangles are of, and `count` triangles. Into number s, `at` its place among
// those packed row by row, go the rows that stand in `rows` from the end of the one before to ends[s],
// but those with a number above the limit or not finite.
//
// With `steps`, the number t of each row in its episode, the columns are y, so many `moves`, and x', of
// as many `states`, and a row that goes in is [y, y⁻, sign y, y |y|, |y|, 1, t y, sign (u - u⁻), u⁵,
// x'], where u is what of y comes from column `acting` on: y⁻ is y of the row above, and itself where
// t = 0. The limit is that of y, y⁻ and x'. u⁵ is that of ±1e27 beyond, and 0 below 1e-27.
struct Additions {
    const double *const *columns;
    int n, moves, states, acting;
    const std::int64_t *steps;
    const std::int64_t *rows, *ends, *at;
    std::int64_t count;
    double limit;
};

constexpr std::int64_t step_columns(std::int64_t moves, std::int64_t states, std::int64_t acting) {
    return 6 * moves + 1 + 2 * (moves - acting) + states;
}

// Takes the rows in. `used` has how many they were; -1, with that triangle as it was, if squares leave
// the range of a double. At most `most` rows, a multiple of four, are taken in at once; `work` has room
// for update_room(n, most) numbers, `order` for n + most.
using Updating = void(const Additions &given, std::int64_t most, double *packed, std::int64_t *used,
                      double *work, std::int64_t *order);
constexpr int LANES = 2;  // triangles that take in rows side by side
// Rows that four triangles of n columns take in at once: they stay in the cache.
constexpr std::int64_t rows_of_four(std::int64_t n) { return n > 128 ? 8 : n < 16 ? 64 : 1024 / n; }
constexpr std::int64_t update_room(std::int64_t n, std::int64_t most) {
    return LANES * (n + 3) * (n + most) + most + (n + 1) * (n + most) +
           4 * (n * (n + 1) / 2 + (n + 1) * rows_of_four(n));
}

// centre + reach · fraction · Y R⁻ᵀ / ‖Y‖ for each of `count` matrices Y (d × p): directions become
// members of the ellipsoid around the centre. R (p × p) is an upper triangle, row by row.
using Sampling = void(const double *Y, std::int64_t count, int d, int p, const double *R,
                      const double *centre, double reach, const double *fractions, double *members);

// [A, B] = Θ G for each of `count` decoders Θ (d × p); G is p × (d + m). `work` has room for
// (p + 1) · (d + m + 3) numbers.
using Decoding = void(const double *thetas, std::int64_t count, int d, int m, int p,
                      const double *G, double *A, double *B, double *work);

// L⁻¹ right, in place, for each of `count` right sides (q × k) and its own lower triangle (q × q), or
// one that is `shared` by all.
using Substituting = void(const double *L, bool shared, std::int64_t count, int q, int k,
                          double *right);

#define FACTORS_OF(target)     \
    namespace target {         \
    Factoring factor_blocks;   \
    RowFactoring factor_rows;  \
    Updating update_triangles; \
    Sampling sample_ellipsoid; \
    Decoding decode;           \
    Substituting solve_lower;  \
    }
FACTORS_OF(baseline)
FACTORS_OF(avx2)
#undef FACTORS_OF
