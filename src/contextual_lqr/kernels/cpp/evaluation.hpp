// The value of a given policy, where nothing but P_1 and c_1 is asked for and the sizes are known when
// compiling: what a step needs lies in registers, or on the stack. The smallest systems gain most.
#pragma once

#include "digits.hpp"

namespace KERNEL_TARGET {
namespace {

// P_1 goes to `value`, c_1 is returned. `shared`: the gains of a policy that all members share, if Q
// holds Q + KᵀRK; otherwise they are loaded.
template <class L, int n, int k>
typename L::S value_of(const Problem &problem, Known<n> d, Known<k> m,
                       Digits<L, Known<n>, Known<k>> &digits, Matrix<L> A, Matrix<L> B, Matrix<L> W,
                       Matrix<L> Q, Matrix<L> R, Matrix<L> shared, Matrix<L> value,
                       const Pack &pack) {
    typename L::V own_P[n * n], own_K[(k + n) * n], own_RK[(k + n) * n];
    const Matrix<L> P{own_P, n, n}, zero{};
    const Matrix<L> K{own_K, n, k + n}, RK{own_RK, n, k + n};  // and below them
    const Matrix<L> F{K.row(k), n, n}, PF{RK.row(k), n, n};
    const bool noisy = problem.noise.data, folded = shared.data;
    typename L::S constant = L::scalar(0);
    copy(P, at_step<L>(Q, problem.Q, problem.horizon - 1, d, d, pack), n);
    digits.start(problem.horizon - 1, P, problem.refine);
    for (int h = problem.horizon - 2; h >= 0; --h) {
        if (noisy) constant += weighted_sum<L>(P, W.data, n);
        const Matrix<L> Q_h = at_step<L>(Q, problem.Q, h, d, d, pack);
        if (!folded) {
            load<L>(K, problem.policy, std::int64_t(h) * k * n, k, n, pack);
            product<L>(m, d, m, RK, zero, at_step<L>(R, problem.R, h, m, m, pack), K);
        }
        product<L, false, true>(d, d, m, F, A, B, folded ? shared.copy_number(h) : K);
        product<L>(d, d, d, PF, zero, P, F);
        if (digits.carrying) digits.carry(h, P, A, F);
        if (folded)
            product<L, true>(d, d, d, P, Q_h, F, PF);
        else
            product<L, true>(d, d, plus(m, d), P, Q_h, K, RK);
        mirror_upper(P, n);
        if (digits.carrying) digits.watch(h, P, W, noisy);
    }
    digits.finish(P, constant);
    copy(value, P, n);
    return constant;
}

}  // namespace
}  // namespace KERNEL_TARGET
