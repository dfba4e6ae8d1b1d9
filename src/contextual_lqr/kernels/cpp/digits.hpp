// How many digits a recursion loses, found at next to no cost while it runs.
//
// A step rounds P_h by about ε G_h, diagonal, G_jj = P_jj + Σ_i |P_ii F_ij| (|F_ij| + |A_ij|)
// with P_ii of the step after, which is what it adds up (F too is a sum). A K that is solved for is
// wrong by about ε κ, κ the largest S_kk over its pivot, and P, since K is the best, by that squared:
// G_jj is larger by ε κ Σ_k S_kk K_kj². The steps before treat all that as they treat P. So rounding
// has done about ε E to P, with E <- FᵀEF + G. If F is large and P large too, but not in the directions
// F leads to (a very unstable system, which the policy holds), then ε E may be as large as P.
//
// Sizes alone often prove that it is not. Let every Q_h ≥ diag(q) and R_h ≥ diag(r), both positive, and
// Σ_i P_ii / q_i ≤ t at every step. From P ≥ Q + KᵀRK + FᵀPF follow Σ_i q_i F_ij² ≤ P_jj, and
// G ≤ g diag(q) ≤ g Q with g = t (1 + 3/2 t + a/2), a = max_j Σ_i A_ij² q_i / q_j; therefore E ≤ g P.
// The same of K: Σ_k S_kk K_kj² ≤ P_jj max_k S_kk / r_k, and S_kk ≤ R_kk + t d Σ_i q_i B_ik². Where A
// and B change, to look at every A costs more than it saves. But A = F - BK, Σ_k r_k K_kj² ≤ P_jj, and so
// a ≤ 2 t (1 + b) with b = Σ_ik q_i B_ik² / r_k.
//
// Where that proves nothing, a vector r of random signs is carried along,
// r <- Fᵀ(r ± s e_k) ± s Aᵀe_k with s² = d P_kk and another k at each step, so that r rᵀ is E on
// average, roughly (to find E itself takes as long as to find P). Where an r_k² is much larger than
// P_kk, the member is suspect.
#pragma once

#include "packs.hpp"

namespace KERNEL_TARGET {
namespace {

// The r rᵀ, relative to P, from which a member is suspect (measured on 24 000 systems: where ε E is
// above 1e-6 of P, it is more than twice that), and the ε E, relative to P, from which too many digits
// are lost (errors of 12 times that were seen). What is within ε E of zero, and ε E at most ZERO of
// the terms of the sum, is zero.
constexpr double SUSPICION = 5e3, LOSS = 1e-8, ZERO = 1e-20;
constexpr double SIGNS[] = {1, -1, 1, 1, -1, -1, 1, -1, -1, -1, 1, 1, 1, -1, 1, -1, -1};
// The t up to which sizes prove enough: ε g is below LOSS / 2 if t is at most PROVEN_T and
// t (a + b) at most PROVEN_A, with b = max_k Σ_i q_i B_ik² / r_k.
constexpr double PROVEN_T = 2e3, PROVEN_A = 1e7;
constexpr int MANY = 16;  // members from which it is quicker to look at the costs for such a proof
constexpr double DOMINANT = 1e-4;  // the least q or r, relative to the diagonal at any step

// The q of C_h ≥ diag(q) at all steps: q_j is C_jj, less the rest of its row in units where the diagonal
// is one. False where next to nothing is left, or steps are of very different size.
inline bool least_left(const double *C, int steps, int size, double *q, double *most) {
    const std::int64_t entries = std::int64_t(size) * size;
    for (int j = 0; j < size; ++j) q[j] = INFINITE, most[j] = 0;
    for (int h = 0; h < steps; ++h, C += entries) {
        if (h && std::memcmp(C, C - entries, entries * sizeof(double)) == 0) continue;
        for (int j = 0; j < size; ++j) {
            const double *row = C + std::int64_t(j) * size, own = row[j];
            double left = own;
            for (int k = 0; k < size; ++k)
                if (k != j && row[k] != 0)
                    left -= std::fabs(row[k]) * std::sqrt(own / C[std::int64_t(k) * size + k]);
            if (!(left > 0)) return false;
            q[j] = left < q[j] ? left : q[j];
            most[j] = own > most[j] ? own : most[j];
        }
    }
    bool good = true;
    for (int j = 0; j < size; ++j) good &= q[j] > DOMINANT * most[j];
    return good;
}

// The watch over the digits of one pack of systems.
template <class L, class D, class M> class Digits {
    using E = typename L::S;
    using Flags = typename L::Flags;

    const D d;
    const M m;
    typename L::V *carried = nullptr;  // r, and r of the step after
    Matrix<L> sizes, scratch;          // [q, r], and 1 / [q, r]
    E lost{}, t{}, limit{}, reach{};   // reach: 2 (1 + b) if A and B change, else zero
    Flags unproven{};
    bool provable = false;  // by q and r
    int k = 0;              // the entry that is watched

    INLINE typename L::V *vectors(int h) const { return carried + (h & 1) * L::width(d); }
    INLINE E *r_of(int h) const { return reinterpret_cast<E *>(vectors(h)); }

    INLINE void look_at(int h, int i, Matrix<L> P) {
        const E r = r_of(h)[i];
        suspect |= unproven & ~L::at_most(r * r, L::scalar(SUSPICION) * P.at(i, i));
    }

  public:
    bool carrying = false;  // r
    Flags suspect{};

    Digits(D states, M inputs) : d(states), m(inputs) {}

    void carve(Arena<L> &arena) {
        carried = arena.matrix(2, d).data;
        sizes = arena.matrix(2, d + m), scratch = arena.matrix(1, 2 * (d + m));
    }

    void prepare(const Problem &problem) {
        double *q = reinterpret_cast<double *>(scratch.row(0)), *most = q + d + m;
        provable = problem.refine && problem.batch >= MANY && !problem.policy.data &&
                   problem.Q.step == 0 && problem.R.step == 0 && !problem.N.data &&
                   !problem.covariances.data &&
                   least_left(problem.Q.data, problem.horizon, d, q, most) &&
                   least_left(problem.R.data, problem.horizon - 1, m, q + d, most);
        for (int i = 0; provable && i < d + m; ++i)
            sizes.at(0, i) = L::scalar(q[i]), sizes.at(1, i) = L::scalar(1 / q[i]);
    }

    // Of the next pack: the t up to which sizes prove that enough digits are left.
    void set_limit(Matrix<L> A, Matrix<L> B, bool varying) {
        unproven = L::all(!provable);
        E most = L::scalar(1);
        for (int j = 0; provable && !varying && j < d + m; ++j) {
            E one = L::scalar(0);
            for (int i = 0; i < d; ++i) {
                const E entry = j < d ? A.at(i, j) : B.at(i, j - d);
                one += entry * entry * sizes.at(0, i);
            }
            one = one * sizes.at(1, j);
            most = L::choose(L::above(most, one), most, one);
        }
        limit = L::scalar(PROVEN_A) / most;
        limit = L::choose(L::above(limit, L::scalar(PROVEN_T)), L::scalar(PROVEN_T), limit);
    }

    INLINE void start(int h, Matrix<L> P, bool wanted) {
        suspect = L::all(false);
        lost = t = reach = L::scalar(0);
        k = 0, carrying = wanted && L::any(unproven);
        for (int i = 0; carrying && i < d; ++i)
            r_of(h)[i] = L::scalar(SIGNS[i & 15]) * L::rough_root(P.at(i, i));
        measure(P);
    }

    INLINE void measure(Matrix<L> P) {
        if (!provable) return;
        E now = L::scalar(0);
        for (int i = 0; i < d; ++i) now += P.at(i, i) * sizes.at(1, i);
        t = L::choose(L::above(t, now), t, now);  // and not a number where that is not
    }

    // The same of B, where that changes.
    INLINE void measure_inputs(Matrix<L> B) {
        if (!provable) return;
        E now = L::scalar(1);
        for (int i = 0; i < d; ++i) {
            E row = L::scalar(0);
            for (int k = 0; k < m; ++k) row += B.at(i, k) * B.at(i, k) * sizes.at(1, d + k);
            now += row * sizes.at(0, i);
        }
        now += now;
        reach = L::choose(L::above(reach, now), reach, now);
    }

    // Whether sizes no longer prove it for a member that they did: r must be carried for it.
    INLINE bool outgrown() {
        const Flags proven = L::at_most(t, limit) & L::at_most(t * t * reach, L::scalar(PROVEN_A));
        const Flags now = ~(proven | unproven);
        if (!L::any(now)) return false;
        unproven |= now;
        return true;
    }

    // One step of r, from the one row to the other; P is still that of the step after.
    INLINE void carry(int h, Matrix<L> P, Matrix<L> A, Matrix<L> F) {
        const double *sign = SIGNS + (h & 15);
        const E s = L::rough_root(L::scalar(d) * P.at(k, k));
        r_of(h + 1)[k] += L::scalar(sign[0]) * s;
        row_product<L>(d, d, vectors(h), L::scalar(sign[1]) * s, A.row(k), r_of(h + 1), F.data);
    }

    // Whether rounding may have done too much to P_kk, and what it has done to the constant.
    INLINE void watch(int h, Matrix<L> P, Matrix<L> W, bool noisy) {
        look_at(h, k, P);
        const E r = r_of(h)[k];
        if (noisy) lost += W.at(k, k) * (r * r);
        k = k + 1 < d ? k + 1 : 0;
    }

    INLINE void finish(Matrix<L> P, E constant) {
        if (!carrying) return;
        for (int i = 0; i < d; ++i) look_at(0, i, P);
        suspect |= unproven & ~L::at_most(lost, L::scalar(SUSPICION) * L::absolute(constant));
    }

    // Whether the terms of J = xᵀPx + constant may cancel too far.
    INLINE void watch_cost(E J, Matrix<L> P, Matrix<L> x, E constant) {
        if (!carrying) return;
        E terms = L::absolute(constant);
        for (int i = 0; i < d; ++i) {
            const E r = r_of(0)[i];
            terms += x.at(0, i) * x.at(0, i) * (L::absolute(P.at(i, i)) + r * r);
        }
        suspect |= unproven & L::above(terms, L::scalar(SUSPICION) * L::absolute(J));
    }
};

}  // namespace
}  // namespace KERNEL_TARGET
