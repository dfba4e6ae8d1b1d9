// Householder's QR on columns in the cache.
//
//   v = x - β e₁,  β = -sign(x₁) ‖x‖,   column -= v (vᵀ column) / -βv₁,   for vᵀv = -2βv₁
#pragma once

#include "vector.hpp"

namespace KERNEL_TARGET {
namespace {

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

// The same for two columns, which share the reading of v; each sum in the order it has above.
INLINE void reflect_two(double *a, double *b, double v0, double scale, const double *v,
                        std::int64_t count) {
    V p = {0, 0, 0, 0}, q = p, r = p, s = p, t = p, u = p, w = p, z = p;
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const V c = load(v + i), d = load(v + i + 4), e = load(v + i + 8), f = load(v + i + 12);
        p += c * load(a + 1 + i), q += d * load(a + 5 + i);
        r += e * load(a + 9 + i), s += f * load(a + 13 + i);
        t += c * load(b + 1 + i), u += d * load(b + 5 + i);
        w += e * load(b + 9 + i), z += f * load(b + 13 + i);
    }
    double more = 0, rest = 0;
    for (; i < count; ++i) more += v[i] * a[1 + i], rest += v[i] * b[1 + i];
    const double x = scale * (v0 * a[0] + (sum((p + q) + (r + s)) + more));
    const double y = scale * (v0 * b[0] + (sum((t + u) + (w + z)) + rest));
    a[0] -= x * v0, b[0] -= y * v0;
    const V g = {x, x, x, x}, h = {y, y, y, y};
    for (i = 0; i + 8 <= count; i += 8) {
        const V c = load(v + i), d = load(v + i + 4);
        store(a + 1 + i, load(a + 1 + i) - g * c), store(a + 5 + i, load(a + 5 + i) - g * d);
        store(b + 1 + i, load(b + 1 + i) - h * c), store(b + 5 + i, load(b + 5 + i) - h * d);
    }
    for (; i < count; ++i) a[1 + i] -= x * v[i], b[1 + i] -= y * v[i];
}

// Squares below it are of no number: callers leave out those below 1e-140. Where rows repeat, each
// reflection leaves the rounding of the one before, 1e-16 times as large, until 1 / (βv₁) is infinite.
constexpr double NOTHING = 1e-280;

// The triangle of `height` rows, in place; columns are `height` apart.
INLINE void reduce(double *panel, std::int64_t height, int n) {
    for (int k = 0; k < n && k < height; ++k) {
        double *x = panel + k * height + k;
        const std::int64_t below = height - k - 1;
        const double tail = dot(x + 1, x + 1, below);
        if (tail < NOTHING) continue;
        const double norm = std::sqrt(x[0] * x[0] + tail);
        const double beta = x[0] > 0 ? -norm : norm, v0 = x[0] - beta, scale = -1 / (beta * v0);
        int j = k + 1;
        for (; j + 1 < n; j += 2) {
            double *y = panel + j * height + k;
            reflect_two(y, y + height, v0, scale, x + 1, below);
        }
        if (j < n) {
            double *y = panel + j * height + k;
            const double w = scale * (v0 * y[0] + dot(x + 1, y + 1, below));
            y[0] -= w * v0;
            subtract(y + 1, w, x + 1, below);
        }
        x[0] = beta;
    }
}

// Sorts rows of these sizes, the largest first and those of one size as they came.
INLINE void sort_rows(const double *sizes, std::int64_t count, std::int64_t *order) {
    for (std::int64_t i = 1; i < count; ++i) {
        const std::int64_t row = order[i];
        std::int64_t place = i;
        for (; place > 0 && sizes[order[place - 1]] < sizes[row]; --place)
            order[place] = order[place - 1];
        order[place] = row;
    }
}

// The larger of two; a NaN, once there, stays.
INLINE double larger(double a, double b) { return a >= b || a != a ? a : b; }

}  // namespace
}  // namespace KERNEL_TARGET
