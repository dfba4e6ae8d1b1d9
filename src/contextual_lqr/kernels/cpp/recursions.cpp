// The finite-horizon recursions of reference.py, compiled: the same equations in the same order.
//
//   S_h   = R_h + Bᵀ P_{h+1} B,   K_h = -S_h⁻¹ (Bᵀ P_{h+1} A + N_hᵀ),   F_h = A + B K_h
//   P_h   = Q_h + F_hᵀ P_{h+1} F_h + K_hᵀ (R_h K_h + N_hᵀ) + N_h K_h            (Joseph's form)
//   c_h   = c_{h+1} + tr(P_{h+1} W) + tr(E_h (R_h + Bᵀ P_{h+1} B)),   E_h the dither's covariance
//
// Where [A, B] is itself uncertain, row i with covariance C_i, the Q, N and R of a step are first
// increased by the blocks of Σ_i P_ii C_i.
//
// Two layouts share all the code. In both, a matrix is rows of `V`, a vector of four doubles.
//   Lanes   a V holds the same entry of four systems: any d and m vectorise. For small systems.
//   Rows    a V holds four neighbouring entries of a row of one system. For large systems.
// Every product is written as XᵀY, so that one register-blocked tile serves all of them.
//
// The file is compiled once for each kind of processor, each time into a namespace of its own
// (KERNEL_TARGET). It must call no function of a header that could be emitted out of line: the
// linker might keep the copy that an older processor cannot run.

#include "recursions.hpp"

#include <initializer_list>
#include <new>

namespace KERNEL_TARGET {
namespace {

typedef double V __attribute__((vector_size(32)));
typedef long long Mask __attribute__((vector_size(32)));
constexpr int WIDTH = 4;
constexpr double INFINITE = __builtin_inf(), NOT_A_NUMBER = __builtin_nan("");
constexpr int LARGE = 24;  // states from which one system at a time is the quicker layout (measured)
constexpr double EPSILON = 2.220446049250313e-16;

#define INLINE inline __attribute__((always_inline))

INLINE V splat(double a) { return V{a, a, a, a}; }

// ---- the two layouts -------------------------------------------------------------------------

struct Lanes {
    using S = V;                 // one entry (of four systems)
    using Flags = Mask;          // one truth value a system
    static constexpr int MEMBERS = 4, TILE_ROWS = 3, TILE_COLUMNS = 3;
    static INLINE int width(int columns) { return columns; }
    static INLINE int height(int rows) { return rows; }
    static INLINE S scalar(double a) { return splat(a); }
    static INLINE Flags none() { return Mask{0, 0, 0, 0}; }
    static INLINE Flags above(S a, S b) { return a > b; }
    static INLINE S choose(Flags f, S a, S b) { return f ? a : b; }
    static INLINE bool any(Flags f) { return (f[0] | f[1] | f[2] | f[3]) != 0; }
    static INLINE bool flagged(Flags f, int lane) { return f[lane] != 0; }
    static INLINE double member(S a, int lane) { return a[lane]; }
};

struct Rows {
    using S = double;
    using Flags = long long;
    static constexpr int MEMBERS = 1, TILE_ROWS = 4, TILE_COLUMNS = 3;
    static INLINE int width(int columns) { return (columns + WIDTH - 1) / WIDTH; }
    static INLINE int height(int rows) { return width(rows) * WIDTH; }
    static INLINE S scalar(double a) { return a; }
    static INLINE Flags none() { return 0; }
    static INLINE Flags above(S a, S b) { return a > b ? -1 : 0; }
    static INLINE S choose(Flags f, S a, S b) { return f ? a : b; }
    static INLINE bool any(Flags f) { return f != 0; }
    static INLINE bool flagged(Flags f, int) { return f != 0; }
    static INLINE double member(S a, int) { return a; }
};

// A size known when compiling, so that the loops over it unroll. Elsewhere a size is an int.
template <int N> struct Known {
    constexpr operator int() const { return N; }
};

// ---- matrices --------------------------------------------------------------------------------

template <class L> struct Matrix {
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

template <class L> INLINE void copy(Matrix<L> to, Matrix<L> from, int rows) {
    for (std::int64_t i = 0; i < std::int64_t(rows) * to.width; ++i) to.data[i] = from.data[i];
}

template <class L> INLINE void fill(Matrix<L> to, int rows, double value) {
    for (std::int64_t i = 0; i < std::int64_t(rows) * to.width; ++i) to.data[i] = splat(value);
}

// to = base + c X; base without data is zero.
template <class L>
INLINE void add_multiple(Matrix<L> to, Matrix<L> base, typename L::S c, Matrix<L> X, int rows) {
    for (int i = 0; i < rows * to.width; ++i)
        to.data[i] = (base.data ? base.data[i] : splat(0)) + c * X.data[i];
}

template <class L> INLINE void transpose(Matrix<L> to, Matrix<L> from, int rows, int columns) {
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) to.at(j, i) = from.at(i, j);
}

// C = base + XᵀY for TR rows and TC vectors of C, held in registers while k runs. The rows of C,
// base and Y are `width` apart, those of X `height`.
template <class L, int TR, int TC>
INLINE void tile(int height, int width, int inner, V *C, const V *base, const typename L::S *X,
                 const V *Y, int i, int j) {
    V sum[TR][TC];
    for (int r = 0; r < TR; ++r)
        for (int c = 0; c < TC; ++c) sum[r][c] = base ? base[(i + r) * width + j + c] : splat(0);
    for (int k = 0; k < inner; ++k)
        for (int r = 0; r < TR; ++r)
            for (int c = 0; c < TC; ++c) sum[r][c] += X[k * height + i + r] * Y[k * width + j + c];
    for (int r = 0; r < TR; ++r)
        for (int c = 0; c < TC; ++c) C[(i + r) * width + j + c] = sum[r][c];
}

template <class L, bool UPPER, int TC>
INLINE void tile_rows(int height, int width, int inner, V *C, const V *base,
                      const typename L::S *X, const V *Y, int j) {
    constexpr int columns_per_v = sizeof(V) / sizeof(typename L::S);
    // Of a symmetric result only tiles that touch the upper triangle are computed.
    const int last = UPPER ? (j + TC) * columns_per_v : height;
    int i = 0;
    for (; i + L::TILE_ROWS <= height && i < last; i += L::TILE_ROWS)
        tile<L, L::TILE_ROWS, TC>(height, width, inner, C, base, X, Y, i, j);
    if (i >= last) return;
    if (height - i == 3) tile<L, 3, TC>(height, width, inner, C, base, X, Y, i, j);
    if (height - i == 2) tile<L, 2, TC>(height, width, inner, C, base, X, Y, i, j);
    if (height - i == 1) tile<L, 1, TC>(height, width, inner, C, base, X, Y, i, j);
}

// Never inlined: one copy for each combination of sizes keeps the compiler's work small.
template <class L, bool UPPER, class I, class J, class K>
__attribute__((noinline)) void multiply(I rows, J columns, K inner, V *C, const V *base,
                                        const typename L::S *X, const V *Y) {
    const int height = L::height(rows), width = L::width(columns);
    int j = 0;
    for (; j + L::TILE_COLUMNS <= width; j += L::TILE_COLUMNS)
        tile_rows<L, UPPER, L::TILE_COLUMNS>(height, width, inner, C, base, X, Y, j);
    if (width - j == 2) tile_rows<L, UPPER, 2>(height, width, inner, C, base, X, Y, j);
    if (width - j == 1) tile_rows<L, UPPER, 1>(height, width, inner, C, base, X, Y, j);
}

// C (rows × columns) = base + Xᵀ Y over `inner` rows of X and Y; base without data is zero. UPPER:
// C is symmetric, and its lower triangle is left to `mirror_upper`.
template <class L, bool UPPER = false, class I, class J, class K>
INLINE void product(I rows, J columns, K inner, Matrix<L> C, Matrix<L> base, Matrix<L> X,
                    Matrix<L> Y) {
    multiply<L, UPPER>(rows, columns, inner, C.data, base.data, X.entries(0), Y.data);
}

template <class L> INLINE void mirror_upper(Matrix<L> P, int d) {
    for (int i = 1; i < d; ++i)
        for (int j = 0; j < i; ++j) P.at(i, j) = P.at(j, i);
}

INLINE V total_of(V sum, Lanes) { return sum; }  // each lane is a system of its own
INLINE double total_of(V sum, Rows) { return (sum[0] + sum[1]) + (sum[2] + sum[3]); }

// The sum of all entries of P ∘ W, both square; with W null, of P ∘ 0.
template <class L> INLINE typename L::S weighted_sum(Matrix<L> P, const V *W, int size) {
    V sum[4] = {splat(0), splat(0), splat(0), splat(0)};
    for (int i = 0; i < size * L::width(size); ++i) sum[i & 3] += P.data[i] * (W ? W[i] : splat(0));
    return total_of((sum[0] + sum[1]) + (sum[2] + sum[3]), L());
}

// G <- S⁻¹ G by elimination; S is symmetric, its upper triangle is used and destroyed. A system
// whose S is not positive definite (to rounding) is flagged, and goes on with a pivot of one.
template <class L>
INLINE typename L::Flags solve_positive(Matrix<L> S, Matrix<L> G, typename L::S *diagonal, int m,
                                        int d) {
    using E = typename L::S;
    constexpr int columns_per_v = sizeof(V) / sizeof(E);
    const int width = L::width(m), width_g = L::width(d);
    auto failed = L::none();
    for (int i = 0; i < m; ++i) diagonal[i] = S.at(i, i);
    for (int k = 0; k < m; ++k) {
        const auto good = L::above(S.at(k, k), L::scalar(m * EPSILON) * diagonal[k]) &
                          L::above(S.at(k, k), L::scalar(0));
        failed |= ~good;
        S.at(k, k) = L::choose(good, S.at(k, k), L::scalar(1));
        for (int i = k + 1; i < m; ++i) {
            const E f = S.at(k, i) / S.at(k, k);
            for (int j = i / columns_per_v; j < width; ++j) S.row(i)[j] -= f * S.row(k)[j];
            for (int j = 0; j < width_g; ++j) G.row(i)[j] -= f * G.row(k)[j];
        }
    }
    for (int i = m - 1; i >= 0; --i) {
        for (int k = i + 1; k < m; ++k) {
            const E f = S.at(i, k);
            for (int j = 0; j < width_g; ++j) G.row(i)[j] -= f * G.row(k)[j];
        }
        const E pivot = S.at(i, i);
        for (int j = 0; j < width_g; ++j) G.row(i)[j] /= pivot;
    }
    return failed;
}

// ---- in and out of the caller's arrays ---------------------------------------------------------

// Which members of the batch a pack holds; the last pack repeats its last member to be full.
struct Pack {
    std::int64_t member[WIDTH];
    int count;
};

template <class L>
INLINE void load(Matrix<L> to, const Operand &from, std::int64_t offset, int rows, int columns,
                 const Pack &pack);

template <>
INLINE void load<Lanes>(Matrix<Lanes> to, const Operand &from, std::int64_t offset, int rows,
                        int columns, const Pack &pack) {
    const double *p = from.data + offset;
    if (from.step == 0) {
        for (int e = 0; e < rows * columns; ++e) to.data[e] = splat(p[e]);
        return;
    }
    const double *p0 = p + pack.member[0] * from.step, *p1 = p + pack.member[1] * from.step,
                 *p2 = p + pack.member[2] * from.step, *p3 = p + pack.member[3] * from.step;
    for (int e = 0; e < rows * columns; ++e) to.data[e] = V{p0[e], p1[e], p2[e], p3[e]};
}

template <>
INLINE void load<Rows>(Matrix<Rows> to, const Operand &from, std::int64_t offset, int rows,
                       int columns, const Pack &pack) {
    const double *p = from.data + offset + pack.member[0] * from.step;
    for (int i = 0; i < rows; ++i) {
        double *row = reinterpret_cast<double *>(to.row(i));
        for (int j = 0; j < columns; ++j) row[j] = p[std::int64_t(i) * columns + j];
        for (int j = columns; j < to.width * WIDTH; ++j) row[j] = 0;
    }
}

template <class L>
INLINE void store(const Result &to, std::int64_t offset, Matrix<L> from, int rows, int columns,
                  const Pack &pack);

template <>
INLINE void store<Lanes>(const Result &to, std::int64_t offset, Matrix<Lanes> from, int rows,
                         int columns, const Pack &pack) {
    const int entries = rows * columns;
    double *p[WIDTH];
    for (int l = 0; l < WIDTH; ++l) p[l] = to.data + pack.member[l] * to.step + offset;
    int e = 0;
    for (; e + WIDTH <= entries; e += WIDTH) {  // four entries of four systems: a 4 × 4 transpose
        const V a = from.data[e], b = from.data[e + 1], c = from.data[e + 2], d = from.data[e + 3];
        const V ab_low = __builtin_shufflevector(a, b, 0, 4, 2, 6);
        const V ab_high = __builtin_shufflevector(a, b, 1, 5, 3, 7);
        const V cd_low = __builtin_shufflevector(c, d, 0, 4, 2, 6);
        const V cd_high = __builtin_shufflevector(c, d, 1, 5, 3, 7);
        const V lane[WIDTH] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                               __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                               __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                               __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
        for (int l = 0; l < WIDTH; ++l) __builtin_memcpy(p[l] + e, &lane[l], sizeof(V));
    }
    for (; e < entries; ++e)
        for (int l = 0; l < WIDTH; ++l) p[l][e] = from.data[e][l];
}

template <>
INLINE void store<Rows>(const Result &to, std::int64_t offset, Matrix<Rows> from, int rows,
                        int columns, const Pack &pack) {
    double *p = to.data + pack.member[0] * to.step + offset;
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) p[std::int64_t(i) * columns + j] = from.entries(i)[j];
}

// Several matrices that lie one after the other, here and there.
template <class L>
INLINE void store_copies(const Result &to, Matrix<L> all, int copies, int rows, int columns,
                         const Pack &pack) {
    if (L::MEMBERS > 1) return store<L>(to, 0, all, copies * rows, columns, pack);
    for (int n = 0; n < copies; ++n)
        store<L>(to, std::int64_t(n) * rows * columns, all.copy_number(n), rows, columns, pack);
}

// ---- the recursions ----------------------------------------------------------------------------

// Cuts matrices from one block of memory. Run once without a block, it counts what is needed.
template <class L> struct Arena {
    V *memory = nullptr;
    std::int64_t used = 0;
    Matrix<L> matrix(int rows, int columns, int copies = 1) {
        const Matrix<L> made{memory ? memory + used : nullptr, L::width(columns), L::height(rows)};
        used += std::int64_t(made.height) * made.width * copies;
        return made;
    }
};

// A sum of sizes: known when both are.
template <int A, int B> INLINE Known<A + B> plus(Known<A>, Known<B>) { return {}; }
INLINE int plus(int a, int b) { return a + b; }

// The matrices of one pack of systems, and what is done with them.
template <class L, class D, class M> class Recursion {
    using E = typename L::S;
    using Flags = typename L::Flags;

    const Problem &problem;
    const D d;  // states
    const M m;  // inputs
    const int H = problem.horizon;
    const std::int64_t dd = std::int64_t(d) * d, dm = std::int64_t(d) * m, mm = std::int64_t(m) * m;
    const bool uncertain = problem.covariances.data != nullptr;
    const bool cross = problem.N.data != nullptr || uncertain;
    const bool gradient = problem.dA.data != nullptr;
    const bool noisy = problem.noise.data != nullptr;
    const bool keep_P = problem.values.data || gradient, keep_K = problem.gains.data || gradient;

    // [K; F] and [RK + Nᵀ; PF] lie one under the other: P = Q + Kᵀ(RK + Nᵀ) + FᵀPF is one product.
    Matrix<L> A, B, Bt, P, PB, S, K, F, RK, PF, Nt, x, diagonal, W;
    Matrix<L> all_P, all_K, all_c;  // of every step, where they are asked for
    Matrix<L> Q, R, N;  // of all steps if the members share them, or else of the one at hand
    Matrix<L> dither;
    Matrix<L> C, Cxx, Cux, Cuu, Q_more, R_more, Nt_more;  // for uncertain systems only
    Matrix<L> X, FtP, Ft, XFt, Kt, XKt, dAt, dBt;  // for the gradient only
    static constexpr Matrix<L> zero{};
    V *memory = nullptr;

    Pack pack{};
    E constant{};
    Flags failed{};
    std::int8_t status[WIDTH];
    std::int32_t failed_step[WIDTH];

    void carve(Arena<L> arena) {
        for (Matrix<L> *square : {&A, &W}) *square = arena.matrix(d, d);
        all_P = arena.matrix(d, d, keep_P ? H : 1);
        if (keep_K) all_K = arena.matrix(m, d, H);
        if (problem.constants.data) all_c = arena.matrix(1, H);
        B = arena.matrix(d, m), PB = arena.matrix(d, m), Bt = arena.matrix(m, d);
        S = arena.matrix(m, m), Nt = arena.matrix(m, d);
        K = arena.matrix(m + L::height(d), d), F = {K.row(m), K.width, K.height - m};
        RK = arena.matrix(m + L::height(d), d), PF = {RK.row(m), RK.width, RK.height - m};
        x = arena.matrix(1, d), diagonal = arena.matrix(1, m);
        Q = arena.matrix(d, d, problem.Q.step ? 1 : H);
        R = arena.matrix(m, m, problem.R.step ? 1 : H);
        if (problem.N.data) N = arena.matrix(d, m, problem.N.step ? 1 : H);
        if (problem.dither.data) dither = arena.matrix(m, m);
        if (uncertain) {
            C = arena.matrix(d + m, d + m), Cxx = arena.matrix(d, d, d);
            Cux = arena.matrix(m, d, d), Cuu = arena.matrix(m, m, d);
            Q_more = arena.matrix(d, d), R_more = arena.matrix(m, m);
            Nt_more = arena.matrix(m, d);
        }
        if (gradient) {
            for (Matrix<L> *square : {&X, &FtP, &Ft, &XFt, &dAt}) *square = arena.matrix(d, d);
            dBt = arena.matrix(m, d), Kt = arena.matrix(d, m), XKt = arena.matrix(d, m);
        }
        if (arena.memory) return;
        const std::int64_t bytes = arena.used * std::int64_t(sizeof(V));
        memory = static_cast<V *>(::operator new(bytes, std::align_val_t(64)));
        for (std::int64_t i = 0; i < arena.used; ++i) memory[i] = splat(0);  // padding stays zero
        carve({memory, 0});
    }

    template <class I, class J>
    INLINE void load_shared(Matrix<L> all, const Operand &from, int steps, I rows, J columns) {
        if (from.data && from.step == 0)
            for (int h = 0; h < steps; ++h)
                load<L>(all.copy_number(h), from, std::int64_t(h) * rows * columns, rows, columns,
                        pack);
    }

    template <class I, class J>
    INLINE Matrix<L> at_step(Matrix<L> all, const Operand &from, int h, I rows, J columns) {
        if (from.step == 0) return all.copy_number(h);
        load<L>(all, from, std::int64_t(h) * rows * columns, rows, columns, pack);
        return all;
    }

    // The first failure of a member is the one that is told.
    INLINE void mark(Flags now, Status why, int step) {
        now &= ~failed;
        if (!L::any(now)) return;
        for (int l = 0; l < L::MEMBERS; ++l)
            if (L::flagged(now, l)) status[l] = why, failed_step[l] = step;
        failed |= now;
    }

    INLINE Flags infinite(E a) { return ~L::above(a * L::scalar(0), L::scalar(-1)); }  // or NaN

    template <class Count> INLINE Flags not_finite(Matrix<L> one, Count rows) {
        return infinite(weighted_sum<L>(one, nullptr, rows));
    }

    INLINE Matrix<L> P_of(int h) { return keep_P ? all_P.copy_number(h) : all_P; }

    INLINE void keep_constant(int h) {
        if (problem.constants.data) all_c.at(0, h) = constant;
    }

    // What was kept, in one go: writing it step by step would keep too many streams of memory open.
    INLINE void store_kept() {
        if (problem.values.data) store_copies<L>(problem.values, all_P, H, d, d, pack);
        if (problem.gains.data) store_copies<L>(problem.gains, all_K, H - 1, m, d, pack);
        if (problem.constants.data) store<L>(problem.constants, 0, all_c, 1, H, pack);
    }

    // One backward pass. A number that is not finite spreads to all of P and stays, so that to look
    // at the last P is enough; `trace` looks at every step, to tell where it began.
    void backward(bool trace) {
        failed = L::none();
        constant = L::scalar(0);
        P = P_of(H - 1);
        copy(P, at_step(Q, problem.Q, H - 1, d, d), d);  // P_H = Q_H, c_H = 0
        if (trace) mark(not_finite(P, d), NOT_FINITE, H);
        keep_constant(H - 1);
        for (int h = H - 2; h >= 0; --h) {
            if (noisy) constant += weighted_sum<L>(P, W.data, d);  // c_h = c_{h+1} + tr(P W)
            if (trace) mark(infinite(constant), NOT_FINITE, h + 1);
            Matrix<L> R_h = at_step(R, problem.R, h, m, m), Q_h = at_step(Q, problem.Q, h, d, d);
            if (problem.N.data) transpose(Nt, at_step(N, problem.N, h, d, m), d, m);
            Matrix<L> N_t = problem.N.data ? Nt : zero;
            for (int i = 0; uncertain && i < d; ++i) {  // E[ΔᵀPΔ] = Σ_i P_ii C_i, Δ in [A, B]
                add_multiple(Nt_more, N_t, P.at(i, i), Cux.copy_number(i), m);
                add_multiple(R_more, R_h, P.at(i, i), Cuu.copy_number(i), m);
                add_multiple(Q_more, Q_h, P.at(i, i), Cxx.copy_number(i), d);
                N_t = Nt_more, R_h = R_more, Q_h = Q_more;
            }
            if (problem.policy.data) {
                load<L>(K, problem.policy, h * dm, m, d, pack);
                if (problem.dither.data) {
                    load<L>(dither, problem.dither, h * mm, m, m, pack);
                    product<L>(d, m, d, PB, zero, P, B);
                    product<L>(m, m, d, S, R_h, B, PB);
                    constant += weighted_sum<L>(S, dither.data, m);
                }
            } else {  // K = -(R + Bᵀ P B)⁻¹ (Bᵀ P A + Nᵀ)
                product<L>(d, m, d, PB, zero, P, B);
                product<L>(m, m, d, S, R_h, B, PB);
                product<L>(m, d, d, K, N_t, PB, A);
                if (trace) mark(not_finite(S, m), NOT_FINITE, h + 1);
                mark(solve_positive<L>(S, K, &diagonal.at(0, 0), m, d), NOT_POSITIVE_DEFINITE, h + 1);
                for (int i = 0; i < m * L::width(d); ++i) K.data[i] = -K.data[i];
            }
            product<L>(m, d, m, RK, N_t, R_h, K);
            product<L>(d, d, m, F, A, Bt, K);  // F = A + B K
            product<L>(d, d, d, PF, zero, P, F);
            P = P_of(h);  // = Q + Kᵀ (R K + Nᵀ) + Fᵀ P F + N K
            product<L, true>(d, d, plus(m, d), P, Q_h, K, RK);
            if (cross) product<L, true>(d, d, m, P, P, N_t, K);
            mirror_upper(P, d);
            if (trace) mark(not_finite(P, d), NOT_FINITE, h + 1);
            if (keep_K) copy(all_K.copy_number(h), K, m);
            keep_constant(h);
        }
        if (!trace && L::any(not_finite(P, d) | infinite(constant))) backward(true);
    }

    void expected_cost() {  // J = xᵀ P_1 x + c_1
        E J = constant;
        for (int i = 0; i < d; ++i) {
            E row = L::scalar(0);
            for (int j = 0; j < d; ++j) row += P.at(i, j) * x.at(0, j);
            J += x.at(0, i) * row;
        }
        for (int l = 0; l < pack.count; ++l)
            problem.cost.data[pack.member[l]] = L::member(J, l);
    }

    // dA = 2 Σ_h P F X and dB = 2 Σ_h P F X Kᵀ, with X the second moment of the state:
    // X_1 = x xᵀ, X_{h+1} = F X Fᵀ + W. Held transposed, because every product is XᵀY.
    void forward() {
        fill(dAt, d, 0);
        fill(dBt, m, 0);
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j) X.at(i, j) = x.at(0, i) * x.at(0, j);
        for (int h = 0; h < H - 1; ++h) {
            const Matrix<L> P_next = P_of(h + 1), K_h = all_K.copy_number(h);
            product<L>(d, d, m, F, A, Bt, K_h);
            product<L>(d, d, d, FtP, zero, F, P_next);
            product<L>(d, d, d, dAt, dAt, X, FtP);  // dAᵀ += X Fᵀ P
            transpose(Kt, K_h, m, d);
            product<L>(d, m, d, XKt, zero, X, Kt);
            product<L>(m, d, d, dBt, dBt, XKt, FtP);  // dBᵀ += K X Fᵀ P
            transpose(Ft, F, d, d);
            product<L>(d, d, d, XFt, zero, X, Ft);
            product<L, true>(d, d, d, X, W, Ft, XFt);  // W is zero where there is no noise
            mirror_upper(X, d);
        }
        transpose(Ft, dAt, d, d);
        transpose(Kt, dBt, m, d);
        for (int i = 0; i < d * Ft.width; ++i) Ft.data[i] += Ft.data[i];
        for (int i = 0; i < d * Kt.width; ++i) Kt.data[i] += Kt.data[i];
        store<L>(problem.dA, 0, Ft, d, d, pack);
        store<L>(problem.dB, 0, Kt, d, m, pack);
    }

    // A member that failed has no answer: no gains, no values, no gradient; its cost is infinite.
    void blank_out(int lane) {
        const std::int64_t member = pack.member[lane];
        const auto overwrite = [&](const Result &out, double value) {
            for (std::int64_t e = 0; out.data && e < out.step; ++e)
                out.data[member * out.step + e] = value;
        };
        for (const Result *out : {&problem.gains, &problem.values, &problem.dA, &problem.dB})
            overwrite(*out, NOT_A_NUMBER);
        overwrite(problem.constants, INFINITE);
        overwrite(problem.cost, INFINITE);
    }

  public:
    Recursion(const Problem &given, D states, M inputs) : problem(given), d(states), m(inputs) {
        carve({});
        load_shared(Q, problem.Q, H, d, d);
        load_shared(R, problem.R, H - 1, m, m);
        load_shared(N, problem.N, H - 1, d, m);
    }
    ~Recursion() { ::operator delete(memory, std::align_val_t(64)); }
    Recursion(const Recursion &) = delete;
    Recursion &operator=(const Recursion &) = delete;

    void solve(std::int64_t at, std::int64_t last) {
        pack.count = last - at < L::MEMBERS ? int(last - at) : L::MEMBERS;
        for (int l = 0; l < WIDTH; ++l) {
            pack.member[l] = at + (l < pack.count ? l : pack.count - 1);
            status[l] = SOLVED, failed_step[l] = 0;
        }
        load<L>(A, problem.A, 0, d, d, pack);
        load<L>(B, problem.B, 0, d, m, pack);
        transpose(Bt, B, d, m);
        if (noisy) load<L>(W, problem.noise, 0, d, d, pack);
        for (int r = 0; uncertain && r < d; ++r) {
            const int y = d + m;
            load<L>(C, problem.covariances, std::int64_t(r) * y * y, y, y, pack);
            for (int i = 0; i < y; ++i)
                for (int j = 0; j < y; ++j)
                    if (i < d && j < d) Cxx.copy_number(r).at(i, j) = C.at(i, j);
                    else if (j < d) Cux.copy_number(r).at(i - d, j) = C.at(i, j);
                    else if (i >= d) Cuu.copy_number(r).at(i - d, j - d) = C.at(i, j);
        }
        if (problem.start.data) load<L>(x, problem.start, 0, 1, d, pack);
        backward(false);
        store_kept();
        if (problem.cost.data) expected_cost();
        if (gradient) forward();
        for (int l = 0; l < pack.count; ++l) {
            problem.status[pack.member[l]] = status[l];
            problem.failed_step[pack.member[l]] = failed_step[l];
            if (L::flagged(failed, l)) blank_out(l);
        }
    }
};

template <class L, class D, class M>
void solve_range(const Problem &problem, D d, M m, std::int64_t first, std::int64_t last) {
    Recursion<L, D, M> recursion(problem, d, m);
    for (std::int64_t at = first; at < last; at += L::MEMBERS) recursion.solve(at, last);
}

}  // namespace

void solve_members(const Problem &problem, std::int64_t first, std::int64_t last) {
    const int d = problem.d, m = problem.m;
#ifdef KERNEL_SPECIALISED
#define SPECIALISED(D, M) \
    if (d == D && m == M) return solve_range<Lanes>(problem, Known<D>(), Known<M>(), first, last)
    SPECIALISED(2, 1);
    SPECIALISED(4, 1);
    SPECIALISED(4, 2);
    SPECIALISED(5, 2);
    SPECIALISED(6, 2);
    SPECIALISED(6, 3);
#undef SPECIALISED
#endif
    // The choice depends on the sizes alone, never on the batch: the same bits alone or in company.
    if (d < LARGE) return solve_range<Lanes>(problem, d, m, first, last);
    return solve_range<Rows>(problem, d, m, first, last);
}

}  // namespace KERNEL_TARGET
