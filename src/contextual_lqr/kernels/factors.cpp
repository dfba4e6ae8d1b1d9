// Triangular factors of many rows, block by block: Householder's QR on columns in the cache.
//
//   v = x - β e₁,  β = -sign(x₁) ‖x‖,   column -= τ v (vᵀ column)
//
// Compiled once for each kind of processor, as recursions.cpp is, and with the same care: nothing
// from a header may be emitted out of line.

#include "factors.hpp"

namespace KERNEL_TARGET {
namespace {

typedef double V __attribute__((vector_size(32)));
typedef double U __attribute__((vector_size(32), aligned(8)));  // where four doubles may begin anywhere

#define INLINE inline __attribute__((always_inline))

INLINE V load(const double *a) { return *reinterpret_cast<const U *>(a); }
INLINE void store(double *a, V v) { *reinterpret_cast<U *>(a) = v; }
INLINE double sum(V v) { return (v[0] + v[1]) + (v[2] + v[3]); }

INLINE double dot(const double *a, const double *b, std::int64_t count) {
    V p = {0, 0, 0, 0}, q = p, r = p, s = p;
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        p += load(a + i) * load(b + i), q += load(a + i + 4) * load(b + i + 4);
        r += load(a + i + 8) * load(b + i + 8), s += load(a + i + 12) * load(b + i + 12);
    }
    double rest = 0;
    for (; i < count; ++i) rest += a[i] * b[i];
    return sum((p + q) + (r + s)) + rest;
}

INLINE void subtract(double *a, double factor, const double *v, std::int64_t count) {
    const V f = {factor, factor, factor, factor};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        store(a + i, load(a + i) - f * load(v + i));
        store(a + i + 4, load(a + i + 4) - f * load(v + i + 4));
    }
    for (; i < count; ++i) a[i] -= factor * v[i];
}

// The triangle of `height` rows, in place; columns are `height` apart.
INLINE void reduce(double *panel, std::int64_t height, int n) {
    for (int k = 0; k < n && k < height; ++k) {
        double *x = panel + k * height + k;
        const std::int64_t below = height - k - 1;
        const double tail = dot(x + 1, x + 1, below);
        if (tail == 0) continue;
        const double norm = __builtin_sqrt(x[0] * x[0] + tail);
        const double beta = x[0] > 0 ? -norm : norm, v0 = x[0] - beta, tau = -v0 / beta;
        for (std::int64_t i = 1; i <= below; ++i) x[i] /= v0;
        for (int j = k + 1; j < n; ++j) {
            double *y = panel + j * height + k;
            const double w = tau * (y[0] + dot(x + 1, y + 1, below));
            y[0] -= w;
            subtract(y + 1, w, x + 1, below);
        }
        x[0] = beta;
    }
}

// The larger of two; a NaN, once there, stays.
INLINE double larger(double a, double b) { return a >= b || a != a ? a : b; }

// Whether the rows are about of one size, for others must be sorted first, and within the limit.
INLINE bool even(const double *panel, std::int64_t height, int n, double limit, double *sizes) {
    for (std::int64_t i = 0; i < height; ++i) sizes[i] = __builtin_fabs(panel[i]);
    for (int j = 1; j < n; ++j) {
        const double *column = panel + j * height;
        for (std::int64_t i = 0; i < height; ++i) {
            const double a = __builtin_fabs(column[i]);
            sizes[i] = larger(sizes[i], a);
        }
    }
    double least = sizes[0], most = sizes[0];
    for (std::int64_t i = 1; i < height; ++i) {
        least = sizes[i] < least ? sizes[i] : least;
        most = larger(most, sizes[i]);
    }
    return most <= 1e4 * least && most <= limit && least > 1e-100 && most < 1e100;
}

}  // namespace

bool factor_blocks(const double *left, int n_left, const double *right, int n_right,
                   std::int64_t rows, std::int64_t block, double limit, double *triangles,
                   double *work) {
    const int n = n_left + n_right;
    for (std::int64_t first = 0, b = 0; first < rows; first += block, ++b) {
        const std::int64_t height = rows - first < block ? rows - first : block;
        for (int j = 0; j < n; ++j) {
            const double *column = (j < n_left ? left + j * rows : right + (j - n_left) * rows);
            for (std::int64_t i = 0; i < height; ++i) work[j * height + i] = column[first + i];
        }
        if (!even(work, height, n, limit, work + n * height)) return false;
        reduce(work, height, n);
        double *R = triangles + b * n * n;
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j)
                R[i * n + j] = i <= j && i < height ? work[j * height + i] : 0.0;
    }
    return true;
}

}  // namespace KERNEL_TARGET
