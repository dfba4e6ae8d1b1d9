// Small dense matrices in the layouts of the recursions, and the products and solves between them.
//
// A layout says what the vectors `V` of a matrix's rows hold:
//   Lanes   the same entry of four systems: any d and m vectorise. For small systems.
//   Rows    four neighbouring entries of a row of one system. For large systems.
// Pairs (accurate.cpp) are Lanes with twice the digits. All code is shared. Every product is written
// as XᵀY, so that one register-blocked tile serves all of them.
#pragma once

#include "vector.hpp"

namespace KERNEL_TARGET {
namespace {

struct Lanes {
    using V = KERNEL_TARGET::V;
    using S = V;         // one entry (of four systems)
    using Flags = Mask;  // one truth value a system
    static constexpr int MEMBERS = 4, TILE_ROWS = 3, TILE_COLUMNS = 3;
    static constexpr double EPSILON = 2.220446049250313e-16;
    static INLINE int width(int columns) { return columns; }
    static INLINE int height(int rows) { return rows; }
    static INLINE V vector(KERNEL_TARGET::V a) { return a; }
    static INLINE KERNEL_TARGET::V rounded(V a) { return a; }
    static INLINE S scalar(double a) { return splat(a); }
    static INLINE Flags all(bool f) { return f ? Mask{-1, -1, -1, -1} : Mask{0, 0, 0, 0}; }
    static INLINE Flags above(S a, S b) { return a > b; }
    static INLINE Flags at_most(S a, S b) { return a <= b; }
    static INLINE S choose(Flags f, S a, S b) { return KERNEL_TARGET::choose(f, a, b); }
    static INLINE S absolute(S a) { return KERNEL_TARGET::absolute(a); }
    static INLINE S rough_root(S a) { return KERNEL_TARGET::rough_root(a); }
    static INLINE S root(S a) { return KERNEL_TARGET::root(a); }
    static INLINE bool any(Flags f) { return KERNEL_TARGET::any(f); }
    static INLINE bool flagged(Flags f, int lane) { return f[lane] != 0; }
    static INLINE double member(S a, int lane) { return a[lane]; }
    static INLINE S total(V sum) { return sum; }  // each lane is a system of its own
};

struct Rows {
    using V = KERNEL_TARGET::V;
    using S = double;
    using Flags = long long;
    static constexpr int MEMBERS = 1, TILE_ROWS = 4, TILE_COLUMNS = 3;
    static constexpr double EPSILON = Lanes::EPSILON;
    static INLINE int width(int columns) { return (columns + WIDTH - 1) / WIDTH; }
    static INLINE int height(int rows) { return width(rows) * WIDTH; }
    static INLINE V vector(KERNEL_TARGET::V a) { return a; }
    static INLINE S scalar(double a) { return a; }
    static INLINE Flags all(bool f) { return f ? -1 : 0; }
    static INLINE Flags above(S a, S b) { return a > b ? -1 : 0; }
    static INLINE Flags at_most(S a, S b) { return a <= b ? -1 : 0; }
    static INLINE S choose(Flags f, S a, S b) { return f ? a : b; }
    static INLINE S absolute(S a) { return std::fabs(a); }
    static INLINE S rough_root(S a) { return KERNEL_TARGET::rough_root(splat(a))[0]; }
    static INLINE S root(S a) { return std::sqrt(a); }
    static INLINE bool any(Flags f) { return f != 0; }
    static INLINE bool flagged(Flags f, int) { return f != 0; }
    static INLINE double member(S a, int) { return a; }
    static INLINE S total(V v) { return sum(v); }
};

// A size known when compiling, so that the loops over it unroll. Elsewhere a size is an int.
template <int N> struct Known {
    constexpr operator int() const { return N; }
};

// A sum of sizes: known when both are.
template <int A, int B> INLINE Known<A + B> plus(Known<A>, Known<B>) { return {}; }
INLINE int plus(int a, int b) { return a + b; }

template <class L> struct Matrix {
    using V = typename L::V;
    using S = typename L::S;
    V *data = nullptr;
    int width = 0, height = 0;  // of a row, in V; rows, padding included
    INLINE V *row(int i) const { return data + std::int64_t(i) * width; }
    INLINE const S *entries(int i) const { return reinterpret_cast<const S *>(row(i)); }
    INLINE Matrix copy_number(int n) const {  // of several that lie one after the other
        return {data + std::int64_t(n) * height * width, width, height};
    }
    INLINE S &at(int i, int j) const { return reinterpret_cast<S *>(row(i))[j]; }
};

// Cuts matrices from one block of memory. Run once without a block, it counts what is needed.
template <class L> struct Arena {
    typename L::V *memory = nullptr;
    std::int64_t used = 0;
    Matrix<L> matrix(int rows, int columns, int copies = 1) {
        const Matrix<L> made{memory ? memory + used : nullptr, L::width(columns), L::height(rows)};
        used += std::int64_t(made.height) * made.width * copies;
        return made;
    }
};

template <class L> INLINE typename L::V zero_vector() { return L::vector(splat(0)); }

template <class L> INLINE void copy(Matrix<L> to, Matrix<L> from, int rows) {
    for (std::int64_t i = 0; i < std::int64_t(rows) * to.width; ++i) to.data[i] = from.data[i];
}

template <class L> INLINE void clear(Matrix<L> to, int rows) {
    for (std::int64_t i = 0; i < std::int64_t(rows) * to.width; ++i) to.data[i] = zero_vector<L>();
}

// to = base + c X; base without data is zero.
template <class L>
INLINE void add_multiple(Matrix<L> to, Matrix<L> base, typename L::S c, Matrix<L> X, int rows) {
    for (int i = 0; i < rows * to.width; ++i)
        to.data[i] = (base.data ? base.data[i] : zero_vector<L>()) + c * X.data[i];
}

template <class L> INLINE void transpose(Matrix<L> to, Matrix<L> from, int rows, int columns) {
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) to.at(j, i) = from.at(i, j);
}

// C = base + XᵀY (PLAIN: XY) for TR rows and TC vectors of C, held in registers while k runs. The rows
// of C, base and Y are `width` apart, those of X, which begins with column (row) i, `apart`. HALF: what
// is below the diagonal of the tile is left out.
template <class L, int TR, int TC, bool PLAIN, bool HALF = false>
INLINE void tile(int apart, int width, int inner, typename L::V *C, const typename L::V *base,
                 const typename L::S *X, const typename L::V *Y, int i, int j) {
    typename L::V sum[TR][TC];
    for (int r = 0; r < TR; ++r)
        for (int c = 0; c < TC; ++c)
            if (!HALF || c >= r)
                sum[r][c] = base ? base[(i + r) * width + j + c] : zero_vector<L>();
    for (int k = 0; k < inner; ++k)
        for (int r = 0; r < TR; ++r)
            for (int c = 0; c < TC; ++c)
                if (!HALF || c >= r)
                    sum[r][c] += X[PLAIN ? r * apart + k : k * apart + r] * Y[k * width + j + c];
    for (int r = 0; r < TR; ++r)
        for (int c = 0; c < TC; ++c)
            if (!HALF || c >= r) C[(i + r) * width + j + c] = sum[r][c];
}

// `apart` is the height of X or, if that is packed, TILE_ROWS: then its columns lie in such panels.
template <class L, bool UPPER, bool PLAIN, int TC>
INLINE void tile_rows(int height, int apart, int width, int inner, typename L::V *C,
                      const typename L::V *base, const typename L::S *X, const typename L::V *Y,
                      int j) {
    // How far one column (row) of X is from the next.
    const std::int64_t panel = PLAIN ? apart : apart == height ? 1 : inner;
    constexpr int columns_per_v = sizeof(typename L::V) / sizeof(typename L::S);
    // Of a symmetric result only tiles that touch the upper triangle are computed, and of the last of
    // them, where an entry is a vector, only the upper half.
    constexpr bool HALF = UPPER && columns_per_v == 1 && L::TILE_ROWS == L::TILE_COLUMNS;
    const int last = HALF ? j : UPPER ? (j + TC) * columns_per_v : height;
    int i = 0;
    for (; i + L::TILE_ROWS <= height && i < last; i += L::TILE_ROWS)
        tile<L, L::TILE_ROWS, TC, PLAIN>(apart, width, inner, C, base, X + i * panel, Y, i, j);
    if constexpr (HALF)
        return tile<L, TC, TC, PLAIN, true>(apart, width, inner, C, base, X + i * panel, Y, i, j);
    if (i >= last) return;
    if (height - i == 3)
        tile<L, 3, TC, PLAIN>(apart, width, inner, C, base, X + i * panel, Y, i, j);
    if (height - i == 2)
        tile<L, 2, TC, PLAIN>(apart, width, inner, C, base, X + i * panel, Y, i, j);
    if (height - i == 1)
        tile<L, 1, TC, PLAIN>(apart, width, inner, C, base, X + i * panel, Y, i, j);
}

constexpr int WORTH_PACKING =
    8;  // vectors in a row of Y from which to pack X is quicker (measured)

// The columns of X, a matrix of `inner` rows, in panels of four: what a tile reads then lies in one
// piece, where rows of X are many lines of cache apart.
INLINE const double *packed(const V *X, int height, int inner, V *room) {
    const int panels = height / WIDTH;
    for (int i = 0; i < panels; ++i)
        for (int k = 0; k < inner; ++k)
            room[std::int64_t(i) * inner + k] = X[std::int64_t(k) * panels + i];
    return reinterpret_cast<const double *>(room);
}

template <class L, bool UPPER, bool PLAIN, class I, class J, class K>
INLINE void multiply(I rows, J columns, K inner, typename L::V *C, const typename L::V *base,
                     const typename L::S *X, const typename L::V *Y,
                     typename L::V *room = nullptr) {
    const int height = L::height(rows), width = L::width(columns);
    int j = 0, apart = PLAIN ? int(inner) : height, whole = width;
    if constexpr (L::MEMBERS == 1) {
        if (room && width >= WORTH_PACKING)
            X = packed(reinterpret_cast<const V *>(X), height, inner, room), apart = WIDTH;
        if (width % 3 == 1 && width > 3) whole = width - 4;  // two tiles of two, not one of one
    }
    for (; j + L::TILE_COLUMNS <= whole; j += L::TILE_COLUMNS)
        tile_rows<L, UPPER, PLAIN, L::TILE_COLUMNS>(height, apart, width, inner, C, base, X, Y, j);
    for (; L::TILE_COLUMNS > 2 && j + 2 <= width; j += 2)
        tile_rows<L, UPPER, PLAIN, 2>(height, apart, width, inner, C, base, X, Y, j);
    if (width - j == 1)
        tile_rows<L, UPPER, PLAIN, 1>(height, apart, width, inner, C, base, X, Y, j);
}

// One copy for each combination of sizes keeps the compiler's work small.
template <class L, bool UPPER, bool PLAIN, class I, class J, class K>
NOINLINE void multiply_elsewhere(I rows, J columns, K inner, typename L::V *C,
                                 const typename L::V *base, const typename L::S *X,
                                 const typename L::V *Y, typename L::V *room) {
    multiply<L, UPPER, PLAIN>(rows, columns, inner, C, base, X, Y, room);
}

// Whether a product is so small that a call would cost more than the compiler's work.
template <int I, int J, int K> constexpr bool small(Known<I>, Known<J>, Known<K>) {
    return I * J * K <= 32;
}
constexpr bool small(int, int, int) { return false; }

// C (rows × columns) = base + Xᵀ Y over `inner` rows of X and Y; base without data is zero. UPPER:
// C is symmetric, and its lower triangle is left to `mirror_upper`. PLAIN, in Lanes only: X Y. In `room`, of the size of X, that
// is packed if it is worth it.
template <class L, bool UPPER = false, bool PLAIN = false, class I, class J, class K>
INLINE void product(I rows, J columns, K inner, Matrix<L> C, Matrix<L> base, Matrix<L> X,
                    Matrix<L> Y, typename L::V *room = nullptr) {
    if (small(rows, columns, inner))
        multiply<L, UPPER, PLAIN>(rows, columns, inner, C.data, base.data, X.entries(0), Y.data);
    else
        multiply_elsewhere<L, UPPER, PLAIN>(rows, columns, inner, C.data, base.data, X.entries(0),
                                            Y.data, room);
}

// y = c z + xᵀM for M with `inner` rows of `width` vectors, and rows x, y and z.
template <class L, int TC>
INLINE void row_tile(int width, int inner, typename L::V *y, typename L::S c,
                     const typename L::V *z, const typename L::S *x, const typename L::V *M,
                     int j) {
    typename L::V sum[TC];
    for (int t = 0; t < TC; ++t) sum[t] = c * z[j + t];
    for (int i = 0; i < inner; ++i)
        for (int t = 0; t < TC; ++t) sum[t] += x[i] * M[i * width + j + t];
    for (int t = 0; t < TC; ++t) y[j + t] = sum[t];
}

template <class L, class I, class J>
INLINE void row_product(I inner, J columns, typename L::V *y, typename L::S c,
                        const typename L::V *z, const typename L::S *x, const typename L::V *M) {
    const int width = L::width(columns);
    int j = 0;
    for (; j + 4 <= width; j += 4) row_tile<L, 4>(width, inner, y, c, z, x, M, j);
    if (width - j == 3) row_tile<L, 3>(width, inner, y, c, z, x, M, j);
    if (width - j == 2) row_tile<L, 2>(width, inner, y, c, z, x, M, j);
    if (width - j == 1) row_tile<L, 1>(width, inner, y, c, z, x, M, j);
}

template <class L> INLINE void mirror_upper(Matrix<L> P, int d) {
    for (int i = 1; i < d; ++i)
        for (int j = 0; j < i; ++j) P.at(i, j) = P.at(j, i);
}

// The sum of all entries of P ∘ W, both square; with W null, of P ∘ 0.
template <class L>
INLINE typename L::S weighted_sum(Matrix<L> P, const typename L::V *W, int size) {
    const typename L::V zero = zero_vector<L>();
    typename L::V a = zero, b = zero, c = zero, e = zero;  // in registers
    const int count = size * L::width(size);
    int i = 0;
    for (; i + 4 <= count; i += 4) {
        a += P.data[i] * (W ? W[i] : zero), b += P.data[i + 1] * (W ? W[i + 1] : zero);
        c += P.data[i + 2] * (W ? W[i + 2] : zero), e += P.data[i + 3] * (W ? W[i + 3] : zero);
    }
    if (i < count) a += P.data[i] * (W ? W[i] : zero);
    if (i + 1 < count) b += P.data[i + 1] * (W ? W[i + 1] : zero);
    if (i + 2 < count) c += P.data[i + 2] * (W ? W[i + 2] : zero);
    return L::total((a + b) + (c + e));
}

// base + xᵀ P x.
template <class L>
INLINE typename L::S quadratic_form(typename L::S base, Matrix<L> P, Matrix<L> x, int size) {
    for (int i = 0; i < size; ++i) {
        typename L::S row = L::scalar(0);
        for (int j = 0; j < size; ++j) row += P.at(i, j) * x.at(0, j);
        base += x.at(0, i) * row;
    }
    return base;
}

// Which systems of a solve have no solution, and which have one that lost digits.
template <class L> struct Pivots {
    typename L::Flags failed = L::all(false), weak = L::all(false);
};

// G <- -S⁻¹ G by elimination; S is symmetric, its upper triangle is used and destroyed. A system
// whose S is not positive definite (to rounding) fails, and goes on with a pivot of one. A pivot
// below `weak` of what was on the diagonal has lost as many digits as that says.
template <class L>
INLINE Pivots<L> solve_positive(Matrix<L> S, Matrix<L> G, typename L::S *diagonal, int m, int d,
                                double weak) {
    using E = typename L::S;
    constexpr int columns_per_v = sizeof(typename L::V) / sizeof(E);
    const int width = L::width(m), width_g = L::width(d);
    Pivots<L> found;
    for (int i = 0; i < m; ++i) diagonal[i] = S.at(i, i);
    for (int k = 0; k < m; ++k) {
        const auto doubtful = ~L::above(S.at(k, k), L::scalar(weak) * diagonal[k]);
        if (L::any(doubtful)) {
            const auto good = L::above(S.at(k, k), L::scalar(m * L::EPSILON) * diagonal[k]) &
                              L::above(S.at(k, k), L::scalar(0));
            found.weak |= doubtful;
            found.failed |= ~good;
            S.at(k, k) = L::choose(good, S.at(k, k), L::scalar(1));
        }
        for (int i = k + 1; i < m; ++i) {
            const E f = S.at(k, i) / S.at(k, k);
            for (int j = i / columns_per_v; j < width; ++j) S.row(i)[j] -= f * S.row(k)[j];
            for (int j = 0; j < width_g; ++j) G.row(i)[j] -= f * G.row(k)[j];
        }
    }
    for (int i = m - 1; i >= 0; --i) {
        for (int k = i + 1; k < m; ++k) {
            const E f = S.at(i, k);
            for (int j = 0; j < width_g; ++j) G.row(i)[j] += f * G.row(k)[j];
        }
        const E pivot = -S.at(i, i);
        for (int j = 0; j < width_g; ++j) G.row(i)[j] /= pivot;
    }
    return found;
}

// Multiplies what was on the diagonal of S by ε κ, κ the largest of it over its pivot.
template <class L> INLINE void weigh_pivots(Matrix<L> S, Matrix<L> diagonal, int m) {
    typename L::S largest = L::scalar(0);
    for (int k = 0; k < m; ++k) {
        const typename L::S one = diagonal.at(0, k) / S.at(k, k);
        largest = L::choose(L::above(one, largest), one, largest);
    }
    for (int k = 0; k < m; ++k)
        diagonal.at(0, k) = L::scalar(L::EPSILON) * largest * diagonal.at(0, k);
}

template <class L> INLINE typename L::Flags infinite(typename L::S a) {  // or NaN
    return ~L::above(a * L::scalar(0), L::scalar(-1));
}

template <class L> INLINE typename L::Flags not_finite(Matrix<L> one, int rows) {
    return infinite<L>(weighted_sum<L>(one, nullptr, rows));
}

}  // namespace
}  // namespace KERNEL_TARGET
