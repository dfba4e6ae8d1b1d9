// The finite-horizon recursions of reference.py, compiled: the same equations in the same order.
//
//   S_h   = R_h + Bᵀ P_{h+1} B,   K_h = -S_h⁻¹ (Bᵀ P_{h+1} A + N_hᵀ),   F_h = A + B K_h
//   P_h   = Q_h + F_hᵀ P_{h+1} F_h + K_hᵀ (R_h K_h + N_hᵀ) + N_h K_h            (Joseph's form)
//   c_h   = c_{h+1} + tr(P_{h+1} W) + tr(E_h (R_h + Bᵀ P_{h+1} B)),   E_h the dither's covariance
//
// Where [A, B] is itself uncertain, row i with covariance C_i, the Q, N and R of a step are first
// increased by the blocks of Σ_i P_ii C_i.
//
// Digits. Members that rounding may have done too much to (digits.hpp) are gone through again
// carefully, to find E, the error of P relative to ε; where that is too much, or where the terms of
// xᵀPx cancel, the member is left to accurate.cpp.
#pragma once

#include <initializer_list>
#include <new>

#include "evaluation.hpp"

namespace KERNEL_TARGET {
namespace {

// The matrices of one pack of systems, and what is done with them.
template <class L, class D, class M> class Recursion {
    using V = typename L::V;
    using E = typename L::S;
    using Flags = typename L::Flags;

    const Problem &problem;
    const D d;  // states
    const M m;  // inputs
    const int H = problem.horizon;
    const std::int64_t dd = std::int64_t(d) * d, dm = std::int64_t(d) * m, mm = std::int64_t(m) * m;
    const bool uncertain = problem.covariances.data != nullptr;
    const bool gradient = problem.dA.data != nullptr;
    const bool noisy = problem.noise.data != nullptr;
    const bool varying = problem.A.stage || problem.noise.stage || problem.covariances.stage;
    // Large systems write their values at each step, small ones all of them in one go: step by step
    // they would keep too many streams of memory open.
    static constexpr bool SMALL = L::MEMBERS > 1;
    const bool keep_P = (problem.values.data && SMALL) || gradient;
    // One policy and one cost for many small systems: Q + KᵀRK, the same for all, then stands for Q.
    const bool folded = SMALL && problem.batch > L::MEMBERS &&problem.policy.data &&
                        !problem.policy.step && !problem.Q.step && !problem.R.step &&
                        !problem.N.data && !uncertain;
    const bool keep_K = problem.gains.data || gradient || folded;
    const bool lean =
        !(problem.values.data || gradient || problem.gains.data || problem.constants.data ||
          problem.dither.data || problem.N.data || uncertain);

    // [K; F] and [RK + Nᵀ; PF] lie one under the other: P = Q + Kᵀ(RK + Nᵀ) + FᵀPF is one product.
    Matrix<L> A, B, Bt, P, PB, S, K, F, RK, PF, Nt, x, diagonal, W;
    Matrix<L> all_A, all_B, all_W;  // those that hold A, B and W, of all steps if they change
    Matrix<L> error, added;         // E and the diagonal of G
    Matrix<L> all_P, all_K, all_c;  // of every step, where they are asked for or given
    Matrix<L> Q, R, N;  // of all steps if the members share them, or else of the one at hand
    Matrix<L> dither;
    Matrix<L> room;                                               // of large systems, for `product`
    Matrix<L> C, Cxx, Cux, Cuu, Q_more, R_more, Nt_more;          // for uncertain systems only
    Matrix<L> X, FtP, Ft, XFt, Kt, XKt, twice_W, all_dA, all_dB;  // for the gradient only
    static constexpr Matrix<L> zero{};
    V *memory = nullptr;

    Pack pack{};
    Digits<L, D, M> digits{d, m};
    E constant{}, lost{};  // c_h, and the error of it as E is that of P
    Flags failed{}, doubtful{};
    std::int8_t status[WIDTH];
    std::int32_t failed_step[WIDTH];

    void carve(Arena<L> arena) {
        A = all_A = arena.matrix(d, d, problem.A.stage && SMALL ? H : 1);
        B = all_B = arena.matrix(d, m, problem.A.stage && SMALL ? H : 1);
        W = all_W = arena.matrix(d, d, problem.noise.stage && SMALL ? H : 1);
        error = arena.matrix(d, d);
        all_P = arena.matrix(d, d, keep_P ? H : 1);
        if (keep_K) all_K = arena.matrix(m, d, H);
        if (problem.constants.data) all_c = arena.matrix(1, H);
        PB = arena.matrix(d, m);
        if (!SMALL) Bt = arena.matrix(m, d);
        S = arena.matrix(m, m), Nt = arena.matrix(m, d);
        K = arena.matrix(m + L::height(d), d), F = {K.row(m), K.width, K.height - m};
        RK = arena.matrix(m + L::height(d), d), PF = {RK.row(m), RK.width, RK.height - m};
        x = arena.matrix(1, d), added = arena.matrix(1, d);
        diagonal = arena.matrix(1, m);
        digits.carve(arena);
        Q = arena.matrix(d, d, problem.Q.step || !SMALL ? 1 : H);
        R = arena.matrix(m, m, problem.R.step || !SMALL ? 1 : H);
        if (problem.N.data) N = arena.matrix(d, m, problem.N.step || !SMALL ? 1 : H);
        if (!SMALL) room = arena.matrix(d + m, d);
        if (problem.dither.data) dither = arena.matrix(m, m);
        if (uncertain) {
            C = arena.matrix(d + m, d + m), Cxx = arena.matrix(d, d, d);
            Cux = arena.matrix(m, d, d), Cuu = arena.matrix(m, m, d);
            Q_more = arena.matrix(d, d), R_more = arena.matrix(m, m);
            Nt_more = arena.matrix(m, d);
        }
        if (gradient) {
            for (Matrix<L> *square : {&X, &FtP, &Ft, &XFt, &twice_W}) *square = arena.matrix(d, d);
            Kt = arena.matrix(d, m), XKt = arena.matrix(d, m);
            all_dA = arena.matrix(d, d, problem.A.stage ? H : 1);
            all_dB = arena.matrix(d, m, problem.A.stage ? H : 1);
        }
        if (arena.memory) return;
        const std::int64_t bytes = arena.used * std::int64_t(sizeof(V));
        memory = static_cast<V *>(::operator new(bytes, std::align_val_t(64)));
        for (std::int64_t i = 0; !(SMALL && H > 1) && i < arena.used; ++i)
            memory[i] = zero_vector<L>();  // padding too
        carve({memory, 0});
        clear(W, d), clear(diagonal, 1);  // these may be read before they are written
    }

    void fold() {
        load<L>(all_K, problem.policy, 0, (H - 1) * m, d, pack);
        for (int h = 0; h < H - 1; ++h) {
            const Matrix<L> K_h = all_K.copy_number(h), Q_h = Q.copy_number(h);
            product<L>(m, d, m, RK, zero, R.copy_number(h), K_h);
            product<L, true>(d, d, m, Q_h, Q_h, K_h, RK);
        }
    }

    // The first failure of a member is the one that is told.
    INLINE void mark(Flags now, Status why, int step) {
        now &= ~failed;
        if (!L::any(now)) return;
        for (int l = 0; l < L::MEMBERS; ++l)
            if (L::flagged(now, l)) status[l] = why, failed_step[l] = step;
        failed |= now;
    }

    INLINE Matrix<L> P_of(int h) { return keep_P ? all_P.copy_number(h) : all_P; }

    // A, B, the noise and the covariances of the rows of [A, B]: constant, or those of step h.
    void load_system() {
        load_stages<L>(all_A, problem.A, H - 1, d, d, pack);
        load_stages<L>(all_B, problem.B, H - 1, d, m, pack);
        if (!SMALL) transpose(Bt, B, d, m);
        if (noisy) load_stages<L>(all_W, problem.noise, H - 1, d, d, pack);
        if (uncertain) load_rows<L>(C, Cxx, Cux, Cuu, problem.covariances, 0, d, m, pack);
    }

    INLINE void system_of(int h) {
        if (problem.A.stage) {
            A = stage<L>(all_A, problem.A, h, d, d, pack);
            B = stage<L>(all_B, problem.B, h, d, m, pack);
            if (!SMALL) transpose(Bt, B, d, m);
        }
        if (problem.noise.stage) W = stage<L>(all_W, problem.noise, h, d, d, pack);
        if (problem.covariances.stage)
            load_rows<L>(C, Cxx, Cux, Cuu, problem.covariances, h, d, m, pack);
    }

    INLINE void closed_loop(Matrix<L> K_h) {  // F = A + B K
        if constexpr (SMALL)
            product<L, false, true>(d, d, m, F, A, B, K_h);
        else
            product<L>(d, d, m, F, A, Bt, K_h);
    }

    INLINE void store_value(int h) {
        if (!SMALL && problem.values.data) store<L>(problem.values, h * dd, P, d, d, pack);
    }

    INLINE void store_kept() {
        if (problem.values.data && SMALL) store_copies<L>(problem.values, all_P, H, d, d, pack);
        if (problem.gains.data) store_copies<L>(problem.gains, all_K, H - 1, m, d, pack);
        if (problem.constants.data) store<L>(problem.constants, 0, all_c, 1, H, pack);
    }

    // G_jj but for P_jj.
    INLINE E summed(int j) {
        E total = L::scalar(0);
        for (int k = 0; k < m; ++k) total += diagonal.at(0, k) * (K.at(k, j) * K.at(k, j));
        for (int i = 0; i < d; ++i) {
            const E f = F.at(i, j), a = A.at(i, j);
            total += L::absolute(P.at(i, i) * f) * (L::absolute(f) + L::absolute(a));
        }
        return total;
    }

    // Whether ε · error is too much for a value, which is a sum of terms as large as `terms`.
    INLINE void doubt(E error, E value, E terms) {
        const E size = L::absolute(value);
        doubtful |= ~(L::at_most(error, L::scalar(LOSS / L::EPSILON) * size) |
                      (L::at_most(size, L::scalar(L::EPSILON) * error) &
                       L::at_most(error, L::scalar(ZERO / L::EPSILON) * terms)));
    }

    // One backward pass. A number that is not finite spreads to all of P and stays, so that to look
    // at the last P is enough; a careful pass looks at every step, to tell where it began.
    // A lean one is for the cost of plain problems: nothing but P and c is kept.
    template <bool careful, bool lean = false> void backward() {
        const bool kept_K = !lean && keep_K && !folded, tracked = !lean && problem.constants.data;
        const bool crossed = !lean && problem.N.data, dithered = !lean && problem.dither.data;
        const bool hedged = !lean && uncertain;
        failed = doubtful = L::all(false);
        constant = lost = L::scalar(0);
        P = lean ? all_P : P_of(H - 1);
        copy(P, at_step<L>(Q, problem.Q, H - 1, d, d, pack), d);  // P_H = Q_H, c_H = 0
        if (!lean) store_value(H - 1);
        if constexpr (careful) {
            clear(error, d);
            for (int i = 0; i < d; ++i) error.at(i, i) = added.at(0, i) = L::absolute(P.at(i, i));
            mark(not_finite<L>(P, d), NOT_FINITE, H);
        } else {
            digits.start(H - 1, P, problem.refine);
        }
        if (tracked) all_c.at(0, H - 1) = constant;
        for (int h = H - 2; h >= 0; --h) {
            if (varying) system_of(h);
            if (noisy) constant += weighted_sum<L>(P, W.data, d);  // c_h = c_{h+1} + tr(P W)
            if (noisy && careful) lost += weighted_sum<L>(error, W.data, d);
            if (careful) mark(infinite<L>(constant), NOT_FINITE, h + 1);
            Matrix<L> R_h = at_step<L>(R, problem.R, h, m, m, pack);
            Matrix<L> Q_h = at_step<L>(Q, problem.Q, h, d, d, pack);
            if (crossed) transpose(Nt, at_step<L>(N, problem.N, h, d, m, pack), d, m);
            Matrix<L> N_t = crossed ? Nt : zero;
            for (int i = 0; hedged && i < d; ++i) {  // E[ΔᵀPΔ] = Σ_i P_ii C_i, Δ in [A, B]
                add_multiple(Nt_more, N_t, P.at(i, i), Cux.copy_number(i), m);
                add_multiple(R_more, R_h, P.at(i, i), Cuu.copy_number(i), m);
                add_multiple(Q_more, Q_h, P.at(i, i), Cxx.copy_number(i), d);
                N_t = Nt_more, R_h = R_more, Q_h = Q_more;
            }
            const Matrix<L> K_h = folded ? all_K.copy_number(h) : K;
            if (problem.policy.data) {
                if (!folded) load<L>(K, problem.policy, h * dm, m, d, pack);
                if (dithered) {
                    load<L>(dither, problem.dither, h * mm, m, m, pack);
                    product<L>(d, m, d, PB, zero, P, B);
                    product<L>(m, m, d, S, R_h, B, PB);
                    constant += weighted_sum<L>(S, dither.data, m);
                    if (careful) {
                        product<L>(d, m, d, PB, zero, error, B);
                        product<L>(m, m, d, S, zero, B, PB);
                        lost += weighted_sum<L>(S, dither.data, m);
                    }
                }
            } else {  // K = -(R + Bᵀ P B)⁻¹ (Bᵀ P A + Nᵀ)
                product<L>(d, m, d, PB, zero, P, B);
                product<L>(m, m, d, S, R_h, B, PB);
                product<L>(m, d, d, K, N_t, PB, A);
                if (careful) mark(not_finite<L>(S, m), NOT_FINITE, h + 1);
                const auto pivots =
                    solve_positive<L>(S, K, &diagonal.at(0, 0), m, d, L::EPSILON / LOSS);
                if (L::any(pivots.weak)) {
                    mark(pivots.failed & doubtful, INACCURATE, h + 1);
                    mark(pivots.failed, NOT_POSITIVE_DEFINITE, h + 1);
                    digits.suspect |= pivots.weak, doubtful |= pivots.weak;
                }
                if (careful) weigh_pivots<L>(S, diagonal, m);
            }
            if (!folded) product<L>(m, d, m, RK, N_t, R_h, K);
            closed_loop(K_h);
            product<L>(d, d, d, PF, zero, P, F, room.data);
            if constexpr (careful)
                for (int j = 0; j < d; ++j) added.at(0, j) = summed(j);
            else if (digits.carrying)
                digits.carry(h, P, A, F);
            if (!lean) P = P_of(h);
            // = Q + Kᵀ (R K + Nᵀ) + Fᵀ P F + N K
            if (folded)
                product<L, true>(d, d, d, P, Q_h, F, PF);
            else
                product<L, true>(d, d, plus(m, d), P, Q_h, K, RK, room.data);
            if (crossed || hedged) product<L, true>(d, d, m, P, P, N_t, K);
            mirror_upper(P, d);
            if constexpr (careful) {
                mark(not_finite<L>(P, d), NOT_FINITE, h + 1);
                product<L>(d, d, d, PF, zero, error, F);
                product<L, true>(d, d, d, error, zero, F, PF);
                mirror_upper(error, d);
                for (int i = 0; i < d; ++i) {
                    added.at(0, i) += L::absolute(P.at(i, i));
                    error.at(i, i) += added.at(0, i);
                    doubt(error.at(i, i), P.at(i, i), added.at(0, i));
                }
            } else {
                digits.measure(P);
                if (problem.A.stage) digits.measure_inputs(B);
                if (digits.carrying) digits.watch(h, P, W, noisy);
                if (h % 4 == 0 && digits.outgrown()) return backward<careful, lean>();
            }
            if (kept_K) copy(all_K.copy_number(h), K, m);
            if (!lean) store_value(h);
            if (tracked) all_c.at(0, h) = constant;
        }
        if constexpr (careful) {
            doubt(lost, constant, L::scalar(0));
        } else {
            digits.finish(P, constant);
            if (L::any(not_finite<L>(P, d) | infinite<L>(constant))) trace();
        }
    }

    // The same, lean, for a given policy.
    template <int n, int k> void evaluate(Known<n>, Known<k>) {
        failed = doubtful = L::all(false);
        P = all_P, constant = value_of(problem, d, m, digits, A, B, W, Q, R,
                                       folded ? all_K : Matrix<L>(), P, pack);
        if (L::any(not_finite<L>(P, d) | infinite<L>(constant))) trace();
    }
    void evaluate(int, int) { backward<false, true>(); }

    void trace() {
        const Flags suspected = digits.suspect;
        backward<true>();
        digits.suspect = suspected;
    }

    template <bool careful> void expected_cost() {  // J = xᵀ P_1 x + c_1
        const E J = quadratic_form(constant, P, x, d);
        if constexpr (careful) {
            E terms = L::absolute(constant);
            for (int i = 0; i < d; ++i) terms += x.at(0, i) * x.at(0, i) * added.at(0, i);
            doubt(quadratic_form(lost, error, x, d), J, terms);
        } else {
            digits.watch_cost(J, P, x, constant);
        }
        for (int l = 0; l < pack.count; ++l) problem.cost.data[pack.member[l]] = L::member(J, l);
    }

    // dA = Σ_h P F X and dB = Σ_h P F X Kᵀ, with X twice the second moment of the state:
    // X_1 = 2 x xᵀ, X_{h+1} = F X Fᵀ + 2 W. If A and B change, the terms of each step are its own
    // gradient.
    void forward() {
        const int stages = problem.A.stage ? H - 1 : 1;
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j) X.at(i, j) = (x.at(0, i) + x.at(0, i)) * x.at(0, j);
        add_multiple(twice_W, W, L::scalar(1), W, d);  // zero where there is no noise
        for (int h = 0; h < H - 1; ++h) {
            const Matrix<L> P_next = P_of(h + 1), K_h = all_K.copy_number(h);
            if (varying) system_of(h);
            closed_loop(K_h);
            product<L>(d, d, d, FtP, zero, F, P_next);
            const Matrix<L> dA = all_dA.copy_number(stages > 1 ? h : 0),
                            dB = all_dB.copy_number(stages > 1 ? h : 0);
            const bool first = h < stages;
            product<L>(d, d, d, dA, first ? zero : dA, FtP, X);
            transpose(Kt, K_h, m, d);
            product<L>(d, m, d, XKt, zero, X, Kt);
            product<L>(d, m, d, dB, first ? zero : dB, FtP, XKt);
            transpose(Ft, F, d, d);
            product<L>(d, d, d, XFt, zero, X, Ft);
            if (problem.noise.stage) add_multiple(twice_W, W, L::scalar(1), W, d);
            product<L, true>(d, d, d, X, twice_W, Ft, XFt);
            mirror_upper(X, d);
        }
        store_copies<L>(problem.dA, all_dA, stages, d, d, pack);
        store_copies<L>(problem.dB, all_dB, stages, d, m, pack);
    }

  public:
    Recursion(const Problem &given, D states, M inputs) : problem(given), d(states), m(inputs) {
        carve({});
        load_shared<L>(Q, problem.Q, H, d, d);
        load_shared<L>(R, problem.R, H - 1, m, m);
        load_shared<L>(N, problem.N, H - 1, d, m);
        if (folded) fold();
        digits.prepare(problem);
    }
    ~Recursion() { ::operator delete(memory, std::align_val_t(64)); }
    Recursion(const Recursion &) = delete;
    Recursion &operator=(const Recursion &) = delete;

    template <bool careful> void solve(const Pack &members) {
        pack = members;
        for (int l = 0; l < WIDTH; ++l) status[l] = SOLVED, failed_step[l] = 0;
        if (H > 1) load_system();
        if (problem.start.data) load<L>(x, problem.start, 0, 1, d, pack);
        if constexpr (careful) {
            backward<true>();
        } else {
            digits.set_limit(A, B, problem.A.stage);
            if (lean && problem.policy.data && !varying)
                evaluate(d, m);
            else if (lean)
                backward<false, true>();
            else
                backward<false>();
        }
        store_kept();
        if (problem.cost.data) expected_cost<careful>();
        if (gradient) forward();
        for (int l = 0; l < pack.count; ++l) {
            if (problem.refine && status[l] == SOLVED &&
                L::flagged(careful ? doubtful : digits.suspect, l))
                status[l] = careful ? INACCURATE : SUSPECT;
            problem.status[pack.member[l]] = status[l];
            problem.failed_step[pack.member[l]] = failed_step[l];
            if (status[l] != SOLVED && status[l] != SUSPECT) blank_out(problem, pack.member[l]);
        }
    }
};

}  // namespace
}  // namespace KERNEL_TARGET
