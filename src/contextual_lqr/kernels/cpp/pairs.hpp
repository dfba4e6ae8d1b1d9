// Numbers of twice the digits: the sum of two doubles that do not overlap (Dekker 1971), about 32.
//
// No product and sum may be contracted to one operation here: CMakeLists.txt sees to it.
#pragma once

#ifdef __FMA__
#include <immintrin.h>
#endif

#include "matrix.hpp"

namespace KERNEL_TARGET {
namespace {

struct Pair {
    V high, low;
};

INLINE Pair sum_of(V a, V b) {  // exactly a + b (Knuth)
    const V s = a + b, t = s - a;
    return {s, (a - (s - t)) + (b - t)};
}

INLINE Pair normal(V a, V b) {  // the same, if |a| ≥ |b|
    const V s = a + b;
    return {s, b - (s - a)};
}

INLINE Pair product_of(V a, V b) {  // exactly a b
    const V p = a * b;
#if defined(__FMA__) && defined(KERNEL_VECTORS)
    return {p, V(_mm256_fmsub_pd(__m256d(a), __m256d(b), __m256d(p)))};
#else
    const V splitter = splat(134217729.0);  // 2²⁷ + 1: halves of 26 bits (Veltkamp)
    const V s = splitter * a, t = splitter * b;
    const V a1 = s - (s - a), a2 = a - a1, b1 = t - (t - b), b2 = b - b1;
    return {p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2};
#endif
}

INLINE Pair operator-(Pair a) { return {-a.high, -a.low}; }

INLINE Pair operator+(Pair a, Pair b) {
    Pair s = sum_of(a.high, b.high);
    const Pair t = sum_of(a.low, b.low);
    s = normal(s.high, s.low + t.high);
    return normal(s.high, s.low + t.low);
}

INLINE Pair operator-(Pair a, Pair b) { return a + -b; }

INLINE Pair operator*(Pair a, Pair b) {
    const Pair p = product_of(a.high, b.high);
    return normal(p.high, p.low + (a.high * b.low + a.low * b.high));
}

INLINE Pair operator/(Pair a, Pair b) {  // long division, three digits
    const V zero = splat(0), q = a.high / b.high;
    const Pair rest = a - Pair{q, zero} * b;
    const V r = rest.high / b.high;
    const V s = (rest - Pair{r, zero} * b).high / b.high;
    return normal(q, r) + Pair{s, zero};
}

INLINE Pair &operator+=(Pair &a, Pair b) { return a = a + b; }
INLINE Pair &operator-=(Pair &a, Pair b) { return a = a - b; }
INLINE Pair &operator/=(Pair &a, Pair b) { return a = a / b; }

// A layout: the same entry of four systems, as in Lanes.
struct Pairs {
    using V = Pair;
    using S = Pair;
    using Flags = Mask;
    static constexpr int MEMBERS = 4, TILE_ROWS = 2, TILE_COLUMNS = 2;
    static constexpr double EPSILON = 4.930380657631324e-32;  // 2⁻¹⁰⁴
    static INLINE int width(int columns) { return columns; }
    static INLINE int height(int rows) { return rows; }
    static INLINE Pair vector(KERNEL_TARGET::V a) { return {a, splat(0)}; }
    static INLINE KERNEL_TARGET::V rounded(Pair a) { return a.high; }
    static INLINE Pair scalar(double a) { return vector(splat(a)); }
    static INLINE Mask all(bool f) { return Lanes::all(f); }
    static INLINE Mask above(Pair a, Pair b) {
        return (a.high > b.high) | ((a.high == b.high) & (a.low > b.low));
    }
    static INLINE Mask at_most(Pair a, Pair b) {
        return (a.high < b.high) | ((a.high == b.high) & (a.low <= b.low));
    }
    static INLINE Pair choose(Mask f, Pair a, Pair b) {
        return {KERNEL_TARGET::choose(f, a.high, b.high), KERNEL_TARGET::choose(f, a.low, b.low)};
    }
    static INLINE Pair root(Pair a) {  // one step of Newton's method from the root of 16 digits
        const Pair r = vector(KERNEL_TARGET::root(a.high));
        const Pair better = r + (a - r * r) / (r + r);
        return choose(above(r, scalar(0)), better, r);
    }
    static INLINE Pair absolute(Pair a) { return choose(above(a, scalar(0)), a, -a); }
    static INLINE bool any(Mask f) { return Lanes::any(f); }
    static INLINE bool flagged(Mask f, int lane) { return f[lane] != 0; }
    static INLINE double member(Pair a, int lane) { return a.high[lane]; }
    static INLINE Pair total(Pair sum) { return sum; }
};

}  // namespace
}  // namespace KERNEL_TARGET
