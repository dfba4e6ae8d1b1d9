// stationary_reference.py, compiled: the same equations in the same order. A member that is done is
// held, so that what the others of its pack still need changes none of its bits.
#pragma once

#include <initializer_list>
#include <new>

#include "packs.hpp"
#include "stationary.hpp"

namespace KERNEL_TARGET {
namespace {

constexpr int ROUNDS = 40, NEWTON = 8, CORRECTIONS = 2;
constexpr std::int8_t DOUBTED = 8;  // solved, with fewer digits than it should have
constexpr double ACCURATE = 3e-7, WALKED = 1e-8;
constexpr double LOST = 1e-9;  // what rounding may have done to a gain, or to P, relative to it
constexpr double HELD = 0.1;   // what a gain may cost more once it is rounded to a double

template <class L> class Doubled {
    using V = typename L::V;
    using E = typename L::S;
    using Flags = typename L::Flags;

    static constexpr bool MORE = L::EPSILON < Lanes::EPSILON;  // digits than a double has
    static constexpr double SETTLED = 5e3 * L::EPSILON;
    const Stationary &problem;
    const int d, m;
    Matrix<L> A, B, Bt, Q, R, N, Nt;  // as they are given
    Matrix<L> a, g, h, at, C, Ct, CA, U, Ut, W, Y, Z, inner, next_a, next_h, next_g;  // of doubling
    Matrix<L> P, PB, S, K, RK, F, diagonal, wide;
    static constexpr Matrix<L> zero{};
    V *memory = nullptr;
    Pack pack{};

    void carve(Arena<L> arena) {
        for (Matrix<L> *square : {&A,  &Q, &a, &g, &h,     &at,     &C,      &Ct,     &CA, &U,
                                  &Ut, &W, &Y, &Z, &inner, &next_a, &next_h, &next_g, &P,  &F})
            *square = arena.matrix(d, d);
        diagonal = arena.matrix(1, d > m ? d : m);
        if (m) {
            for (Matrix<L> *tall : {&B, &N, &PB}) *tall = arena.matrix(d, m);
            for (Matrix<L> *flat : {&Bt, &Nt, &K, &RK, &wide}) *flat = arena.matrix(m, d);
            R = arena.matrix(m, m), S = arena.matrix(m, m);
        }
        if (arena.memory) return;
        const std::int64_t bytes = arena.used * std::int64_t(sizeof(V));
        memory = static_cast<V *>(::operator new(bytes, std::align_val_t(64)));
        for (std::int64_t i = 0; i < arena.used; ++i) memory[i] = zero_vector<L>();  // padding too
        carve({memory, 0});
    }

    INLINE void negate(Matrix<L> M, int rows) {
        for (int i = 0; i < rows * M.width; ++i) M.data[i] = -M.data[i];
    }

    // to <- from, for the members that are open.
    INLINE void take(Matrix<L> to, Matrix<L> from, Flags open, int rows) {
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < d; ++j) to.at(i, j) = L::choose(open, from.at(i, j), to.at(i, j));
    }

    // Which members have |after - before| ≤ share · |after| on the diagonal.
    INLINE Flags settled(Matrix<L> after, Matrix<L> before, double share) {
        Flags good = L::all(true);
        for (int i = 0; i < d; ++i)
            good &= L::at_most(L::absolute(after.at(i, i) - before.at(i, i)),
                               L::scalar(share) * L::absolute(after.at(i, i)));
        return good;
    }

    // Which have all |M_ij M_ji| ≤ ε, and which have all of them finite.
    INLINE Flags vanished(Matrix<L> M, Flags &finite) {
        Flags good = L::all(true);
        E sum = L::scalar(0);
        for (int i = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j) {
                const E cycle = L::absolute(M.at(i, j) * M.at(j, i));
                good &= L::at_most(cycle, L::scalar(L::EPSILON));
                sum += cycle * L::scalar(0);
            }
        finite = L::at_most(sum, L::scalar(0));
        return good;
    }

    INLINE Flags finite(Matrix<L> M, int rows) {
        E sum = L::scalar(0);
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < d; ++j) sum += M.at(i, j) * L::scalar(0);
        return L::at_most(sum, L::scalar(0));
    }

    // C with CᵀC = h, which is singular where a row of C is zero; W is destroyed.
    INLINE void root() {
        copy(W, h, d);
        clear(C, d);
        for (int k = 0; k < d; ++k) {
            const Flags told = L::above(W.at(k, k), L::scalar(d * L::EPSILON) * h.at(k, k));
            const E size = L::root(L::choose(told, W.at(k, k), L::scalar(1)));
            for (int j = k; j < d; ++j)
                C.at(k, j) = L::choose(told, W.at(k, j) / size, L::scalar(0));
            for (int i = k + 1; i < d; ++i)
                for (int j = i; j < d; ++j) W.at(i, j) -= C.at(k, i) * C.at(k, j);
        }
    }

    // P = P + FᵀPF, F <- FF, until F vanishes; which members come to that.
    Flags lyapunov() {
        Flags stable = L::all(false), open = L::all(true);
        for (int round = 0; round < ROUNDS && L::any(open); ++round) {
            transpose(at, F, d, d);
            product<L>(d, d, d, inner, zero, P, F);
            product<L, true>(d, d, d, next_h, P, F, inner);
            mirror_upper(next_h, d);
            product<L>(d, d, d, next_a, zero, at, F);
            Flags sound = L::all(true);
            Flags gone = vanished(next_a, sound) & settled(next_h, P, L::EPSILON) & open;
            take(P, next_h, open, d);
            take(F, next_a, open, d);
            if (L::any(gone)) gone &= acyclic();
            stable |= gone;
            open &= ~gone & sound & finite(P, d);
        }
        return stable;
    }

    // Which have no closed walk left in F, of any length: diag (I + |F|)^2ⁿ ≤ 1 + √ε, 2ⁿ ≥ d.
    INLINE Flags acyclic() {
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j)
                inner.at(i, j) = L::absolute(F.at(i, j)) + L::scalar(i == j);
        for (int reach = 1; reach < d; reach *= 2) {
            transpose(at, inner, d, d);
            product<L>(d, d, d, next_a, zero, at, inner);
            copy(inner, next_a, d);
        }
        Flags good = L::all(true);
        for (int i = 0; i < d; ++i) good &= L::at_most(inner.at(i, i), L::scalar(1 + WALKED));
        return good;
    }

    // h, from a and g, as in the reference; which members' a vanishes.
    Flags doubled() {
        transpose(Nt, N, d, m);
        copy(wide, Nt, m);
        copy(S, R, m);
        const auto first = solve_positive<L>(S, wide, &diagonal.at(0, 0), m, d, L::EPSILON);
        product<L>(d, d, m, a, A, Bt, wide);  // A - B R⁻¹ Nᵀ
        product<L, true>(d, d, m, h, Q, Nt, wide);
        mirror_upper(h, d);
        copy(wide, Bt, m);
        copy(S, R, m);
        solve_positive<L>(S, wide, &diagonal.at(0, 0), m, d, L::EPSILON);
        negate(wide, m);
        product<L, true>(d, d, m, g, zero, Bt, wide);
        mirror_upper(g, d);
        Flags good = L::all(false), open = ~first.failed;
        for (int round = 0; round < ROUNDS && L::any(open); ++round) {
            root();
            transpose(Ct, C, d, d);
            transpose(at, a, d, d);
            product<L>(d, d, d, CA, zero, Ct, a);
            product<L>(d, d, d, U, zero, g, Ct);
            transpose(Ut, U, d, d);
            clear(inner, d);
            for (int i = 0; i < d; ++i) inner.at(i, i) = L::scalar(1);
            product<L>(d, d, d, W, inner, Ct, U);  // I + C G Cᵀ
            copy(inner, W, d);
            copy(Y, CA, d);
            copy(Z, Ut, d);
            solve_positive<L>(W, Y, &diagonal.at(0, 0), d, d, L::EPSILON);
            solve_positive<L>(inner, Z, &diagonal.at(0, 0), d, d, L::EPSILON);
            product<L>(d, d, d, inner, a, Ut, Y);  // A - U W⁻¹ C A
            product<L>(d, d, d, next_a, zero, at, inner);
            negate(Y, d);
            product<L, true>(d, d, d, next_h, h, CA, Y);
            mirror_upper(next_h, d);
            product<L>(d, d, d, inner, g, Ut, Z);  // G - U W⁻¹ Uᵀ, nearly symmetric
            transpose(W, inner, d, d);
            product<L>(d, d, d, inner, zero, W, at);
            product<L, true>(d, d, d, next_g, g, at, inner);
            mirror_upper(next_g, d);
            Flags sound = L::all(true);
            const Flags gone = vanished(next_a, sound) & settled(next_h, h, SETTLED) & open;
            take(a, next_a, open, d);
            take(h, next_h, open, d);
            take(g, next_g, open, d);
            good |= gone;
            open &= ~gone & sound & finite(h, d);
        }
        return good;
    }

    // K = -(R + Bᵀ P B)⁻¹ (Bᵀ P A + Nᵀ), into `wide`.
    INLINE void gain() {
        product<L>(d, m, d, PB, zero, P, B);
        product<L>(m, m, d, S, R, B, PB);
        product<L>(m, d, d, wide, Nt, PB, A);
        solve_positive<L>(S, wide, &diagonal.at(0, 0), m, d, L::EPSILON);
    }

    // Of the gain K: F, and in P, but for its lower triangle, Q + Kᵀ (R K + Nᵀ) + N K.
    INLINE void stage_cost() {
        product<L>(d, d, m, F, A, Bt, K);
        product<L>(m, d, m, RK, Nt, R, K);
        product<L, true>(d, d, m, P, Q, K, RK);
        product<L, true>(d, d, m, P, P, Nt, K);
    }

    Flags value_of_gain() {
        stage_cost();
        mirror_upper(P, d);
        return lyapunov();
    }

    // One step of Newton's method for what h lacks to its equation, P ← Q + .. + FᵀhF - h, so that what
    // the Lyapunov equation loses is lost of the correction alone; which members it changes by LOST.
    Flags corrected() {
        stage_cost();
        product<L>(d, d, d, inner, zero, h, F);
        product<L, true>(d, d, d, P, P, F, inner);
        mirror_upper(P, d);
        add_multiple(P, P, L::scalar(-1), h, d);
        Flags good = lyapunov();
        for (int j = 0; j < d; ++j)
            good &= L::at_most(L::absolute(P.at(j, j)), L::scalar(LOST) * h.at(j, j));
        add_multiple(h, h, L::scalar(1), P, d);
        copy(P, h, d);
        gain();
        copy(K, wide, m);
        return good;
    }

    // Which members have P and K to LOST, as in the reference: what rounding does to a step, ε G, added up
    // along the closed loop.
    Flags exact() {
        product<L>(d, d, m, F, A, Bt, K);
        product<L>(d, m, d, PB, zero, h, B);
        product<L>(m, m, d, S, R, B, PB);
        E reached = L::scalar(0);  // Σ_k b_k² / S_kk, b_k = Σ_i |B_ik| √P_ii
        for (int k = 0; k < m; ++k) {
            E b = L::scalar(0);
            for (int i = 0; i < d; ++i) b += L::absolute(B.at(i, k)) * size(i);
            reached += b * b / S.at(k, k);
        }
        clear(P, d);
        Flags good = L::all(true);
        for (int j = 0; j < d; ++j) {
            E sum = h.at(j, j), a = L::scalar(0), used = h.at(j, j);
            for (int i = 0; i < d; ++i) {
                const E f = L::absolute(F.at(i, j)), own = L::absolute(A.at(i, j));
                sum += h.at(i, i) * f * (f + own), a += own * size(i);
            }
            for (int k = 0; k < m; ++k) used += S.at(k, k) * K.at(k, j) * K.at(k, j);
            P.at(j, j) = L::scalar(L::EPSILON) * sum;
            const E share = L::scalar(L::EPSILON / LOST) * a;  // what rounding BᵀPA does to K
            good &= L::at_most(share * share * reached, used);
        }
        good &= lyapunov();
        for (int j = 0; j < d; ++j) good &= L::at_most(P.at(j, j), L::scalar(LOST) * h.at(j, j));
        return good;
    }

    INLINE E size(int i) { return L::root(L::absolute(h.at(i, i))); }

    // Newton's method from the h that doubling has found.
    void riccati(std::int8_t *status) {
        Flags open = doubled(), solved = L::all(false), fine = L::all(false), held = open;
        copy(P, h, d);
        gain();
        copy(K, wide, m);
        for (int step = 0; !MORE && step < NEWTON && L::any(open); ++step) {
            const Flags stable = value_of_gain();
            held &= stable | ~open;
            const Flags done = settled(P, h, SETTLED) & stable & open;
            fine = settled(P, h, ACCURATE) & stable & open;
            take(h, P, open, d);
            copy(P, h, d);
            gain();
            take(K, wide, open, m);
            solved |= done;
            open &= ~done & stable;
        }
        for (int step = 0; MORE && step < CORRECTIONS; ++step) solved = corrected() & held;
        const Flags whole = finite(K, m) & finite(h, d), good = exact() & solved;
        solved |= fine & open;
        for (int l = 0; l < L::MEMBERS; ++l)
            status[l] = !L::flagged(whole, l)   ? NOT_CONVERGED
                        : L::flagged(good, l)   ? std::int8_t(SOLVED)
                        : L::flagged(solved, l) ? DOUBTED
                        : L::flagged(held, l)   ? std::int8_t(INACCURATE)
                                                : NOT_CONVERGED;
    }

    // With more digits than a gain is returned with: where it holds the system as rounded, too, it is
    // the answer; elsewhere that stays as it was.
    void keep_better(const std::int8_t *status) {
        for (int i = 0; i < m * K.width; ++i) K.data[i] = L::vector(L::rounded(K.data[i]));
        const Flags good = value_of_gain() & settled(P, h, HELD);
        for (int l = 0; l < pack.count; ++l) {
            if (status[l] != SOLVED || !L::flagged(good, l)) continue;
            const std::int64_t member = pack.member[l];
            for (int e = 0; e < m * d; ++e)
                problem.gain.data[member * m * d + e] = L::member(K.data[e], l);
            for (int e = 0; e < d * d; ++e)
                problem.value.data[member * d * d + e] = L::member(h.data[e], l);
            problem.status[member] = SOLVED;
        }
    }

    void blank_out(const Result &out, std::int64_t member) {
        for (std::int64_t e = 0; out.data && e < out.step; ++e)
            out.data[member * out.step + e] = std::numeric_limits<double>::quiet_NaN();
    }

  public:
    explicit Doubled(const Stationary &given) : problem(given), d(given.d), m(given.m) {
        carve({});
    }
    ~Doubled() { ::operator delete(memory, std::align_val_t(64)); }
    Doubled(const Doubled &) = delete;
    Doubled &operator=(const Doubled &) = delete;

    void solve(const Pack &members) {
        pack = members;
        std::int8_t status[WIDTH];
        if (m) {
            load<L>(A, problem.A, 0, d, d, pack);
            load<L>(B, problem.B, 0, d, m, pack);
            load<L>(Q, problem.Q, 0, d, d, pack);
            load<L>(R, problem.R, 0, m, m, pack);
            if (problem.N.data) load<L>(N, problem.N, 0, d, m, pack);
            transpose(Bt, B, d, m);
            riccati(status);
            if constexpr (MORE) return keep_better(status);
            store<L>(problem.gain, 0, K, m, d, pack);
            store<L>(problem.value, 0, h, d, d, pack);
        } else {
            load<L>(F, problem.A, 0, d, d, pack);
            load<L>(P, problem.Q, 0, d, d, pack);
            const Flags stable = lyapunov();
            for (int l = 0; l < L::MEMBERS; ++l)
                status[l] = L::flagged(stable, l) ? std::int8_t(SOLVED) : NOT_CONVERGED;
            store<L>(problem.value, 0, P, d, d, pack);
        }
        for (int l = 0; l < pack.count; ++l) {
            problem.status[pack.member[l]] = status[l];
            if (status[l] == SOLVED || status[l] == DOUBTED) continue;
            blank_out(problem.gain, pack.member[l]);
            blank_out(problem.value, pack.member[l]);
        }
    }
};

}  // namespace
}  // namespace KERNEL_TARGET
