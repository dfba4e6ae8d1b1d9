// Four doubles at once: by the vector extensions of GCC 12 and Clang, elsewhere (or where
// KERNEL_PORTABLE asks for it) in plain C++17.
//
// The files that include this are compiled once for each kind of processor, each time into a
// namespace of its own (KERNEL_TARGET). They must call no function of a header that could be emitted
// out of line: the linker might keep the copy that an older processor cannot run. What is here is in
// an unnamed namespace, and so never shared.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__GNUC__)
#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#else
#define INLINE inline
#define NOINLINE
#endif

#if defined(__has_builtin) && !defined(KERNEL_PORTABLE)
#if __has_builtin(__builtin_shufflevector)
#define KERNEL_VECTORS
#endif
#endif

namespace KERNEL_TARGET {
namespace {

constexpr int WIDTH = 4;

#ifdef KERNEL_VECTORS

typedef double V __attribute__((vector_size(32)));
typedef long long Mask __attribute__((vector_size(32)));  // -1 where true, 0 where not

INLINE V choose(Mask f, V a, V b) { return f ? a : b; }
INLINE V absolute(V a) { return V(Mask(a) & 0x7fffffffffffffff); }
// √|a| to a few per cent: half the exponent.
INLINE V rough_root(V a) { return V(((Mask(a) & 0x7fffffffffffffff) >> 1) + 0x1ff8000000000000); }

// Four doubles of each of four places: out[l] has the l-th of each. Halves are loaded where they
// belong, so that half of the shuffles suffice.
INLINE void load_transposed(const double *const *p, V *out) {
    typedef double Half __attribute__((vector_size(16)));
    V both[WIDTH];
    for (int l = 0; l < WIDTH; ++l) {
        Half low, high;
        std::memcpy(&low, p[l & 1] + (l & 2), sizeof(Half));
        std::memcpy(&high, p[(l & 1) + 2] + (l & 2), sizeof(Half));
        both[l] = __builtin_shufflevector(low, high, 0, 1, 2, 3);
    }
    out[0] = __builtin_shufflevector(both[0], both[1], 0, 4, 2, 6);
    out[1] = __builtin_shufflevector(both[0], both[1], 1, 5, 3, 7);
    out[2] = __builtin_shufflevector(both[2], both[3], 0, 4, 2, 6);
    out[3] = __builtin_shufflevector(both[2], both[3], 1, 5, 3, 7);
}

// Four vectors of four: out[l] has the l-th entry of each.
INLINE void transpose_four(const V *in, V *out) {
    const V ab_low = __builtin_shufflevector(in[0], in[1], 0, 4, 2, 6);
    const V ab_high = __builtin_shufflevector(in[0], in[1], 1, 5, 3, 7);
    const V cd_low = __builtin_shufflevector(in[2], in[3], 0, 4, 2, 6);
    const V cd_high = __builtin_shufflevector(in[2], in[3], 1, 5, 3, 7);
    out[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    out[1] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    out[2] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    out[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

#else

template <class T> struct alignas(32) Four {
    T entry[WIDTH];
    INLINE T &operator[](int i) { return entry[i]; }
    INLINE T operator[](int i) const { return entry[i]; }
};
using V = Four<double>;
using Mask = Four<long long>;

#define ENTRY_BY_ENTRY(Result, name, A, B, value)       \
    INLINE Result name(A a, B b) {                      \
        Result out;                                     \
        for (int l = 0; l < WIDTH; ++l) out[l] = value; \
        return out;                                     \
    }
ENTRY_BY_ENTRY(V, operator+, V, V, a[l] + b[l])
ENTRY_BY_ENTRY(V, operator-, V, V, a[l] - b[l])
ENTRY_BY_ENTRY(V, operator*, V, V, a[l] * b[l])
ENTRY_BY_ENTRY(V, operator/, V, V, a[l] / b[l])
ENTRY_BY_ENTRY(V, operator*, double, V, b[l] * a)
ENTRY_BY_ENTRY(V, operator/, V, double, a[l] / b)
ENTRY_BY_ENTRY(Mask, operator>, V, V, a[l] > b[l] ? -1 : 0)
ENTRY_BY_ENTRY(Mask, operator<, V, V, a[l] < b[l] ? -1 : 0)
ENTRY_BY_ENTRY(Mask, operator<=, V, V, a[l] <= b[l] ? -1 : 0)
ENTRY_BY_ENTRY(Mask, operator==, V, V, a[l] == b[l] ? -1 : 0)
ENTRY_BY_ENTRY(Mask, operator&, Mask, Mask, a[l] & b[l])
ENTRY_BY_ENTRY(Mask, operator|, Mask, Mask, a[l] | b[l])
#undef ENTRY_BY_ENTRY
INLINE V operator-(V a) { return V{-a[0], -a[1], -a[2], -a[3]}; }
INLINE Mask operator~(Mask a) { return Mask{~a[0], ~a[1], ~a[2], ~a[3]}; }
INLINE V &operator+=(V &a, V b) { return a = a + b; }
INLINE V &operator-=(V &a, V b) { return a = a - b; }
INLINE V &operator/=(V &a, V b) { return a = a / b; }
INLINE V &operator/=(V &a, double b) { return a = a / b; }
INLINE Mask &operator&=(Mask &a, Mask b) { return a = a & b; }
INLINE Mask &operator|=(Mask &a, Mask b) { return a = a | b; }

INLINE V choose(Mask f, V a, V b) {
    return V{f[0] ? a[0] : b[0], f[1] ? a[1] : b[1], f[2] ? a[2] : b[2], f[3] ? a[3] : b[3]};
}

INLINE V absolute(V a) {
    return V{std::fabs(a[0]), std::fabs(a[1]), std::fabs(a[2]), std::fabs(a[3])};
}

INLINE V rough_root(V a) {
    return V{std::sqrt(std::fabs(a[0])), std::sqrt(std::fabs(a[1])), std::sqrt(std::fabs(a[2])),
             std::sqrt(std::fabs(a[3]))};
}

INLINE void load_transposed(const double *const *p, V *out) {
    for (int l = 0; l < WIDTH; ++l) out[l] = V{p[0][l], p[1][l], p[2][l], p[3][l]};
}

INLINE void transpose_four(const V *in, V *out) {
    for (int l = 0; l < WIDTH; ++l) out[l] = V{in[0][l], in[1][l], in[2][l], in[3][l]};
}

#endif

INLINE V root(V a) { return V{std::sqrt(a[0]), std::sqrt(a[1]), std::sqrt(a[2]), std::sqrt(a[3])}; }
INLINE bool any(Mask f) {
#if defined(KERNEL_VECTORS) && defined(__AVX__)
    return !__builtin_ia32_ptestz256(f, f);
#else
    return (f[0] | f[1] | f[2] | f[3]) != 0;
#endif
}
INLINE V splat(double a) { return V{a, a, a, a}; }
INLINE double sum(V v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// Where four doubles may begin anywhere.
INLINE V load(const double *a) {
    V v;
    std::memcpy(&v, a, sizeof(V));
    return v;
}
INLINE void store(double *a, V v) { std::memcpy(a, &v, sizeof(V)); }

}  // namespace
}  // namespace KERNEL_TARGET
