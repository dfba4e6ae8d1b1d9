// stationary_reference.py, compiled: the same equations in the same order, four systems at once or, for
// large ones, four entries of a row. A member that is done is held, so that what the others of its
// pack still need changes none of its bits.

#include "stationary.hpp"

#include <initializer_list>
#include <new>

#include "packs.hpp"

namespace KERNEL_TARGET {
namespace {

constexpr int LARGE = 24;  // states from which Rows are quicker than Lanes
constexpr int ROUNDS = 40, NEWTON = 8;
constexpr double SETTLED = 1e-12, ACCURATE = 3e-7;

template <class L> class Solver_of {
    using V = typename L::V;
    using E = typename L::S;
    using Flags = typename L::Flags;

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

    // Which members have |after - before| ≤ share · after on the diagonal.
    INLINE Flags settled(Matrix<L> after, Matrix<L> before, double share) {
        Flags good = L::all(true);
        for (int i = 0; i < d; ++i)
            good &= L::at_most(L::absolute(after.at(i, i) - before.at(i, i)),
                               L::scalar(share) * after.at(i, i));
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
            const Flags gone = vanished(next_a, sound) & settled(next_h, P, L::EPSILON) & open;
            take(P, next_h, open, d);
            take(F, next_a, open, d);
            stable |= gone;
            open &= ~gone & sound & finite(P, d);
        }
        return stable;
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

    // Newton's method from the h that doubling has found.
    void riccati(std::int8_t *status) {
        Flags open = doubled(), solved = L::all(false), fine = L::all(false), held = open;
        copy(P, h, d);
        gain();
        copy(K, wide, m);
        copy(h, P, d);
        for (int step = 0; step < NEWTON && L::any(open); ++step) {
            product<L>(d, d, m, F, A, Bt, K);
            product<L>(m, d, m, RK, Nt, R, K);
            product<L, true>(d, d, m, P, Q, K, RK);  // Q + Kᵀ (R K + Nᵀ) + N K
            product<L, true>(d, d, m, P, P, Nt, K);
            mirror_upper(P, d);
            const Flags stable = lyapunov();
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
        solved |= fine & open;
        solved &= finite(K, m) & finite(h, d);
        for (int l = 0; l < L::MEMBERS; ++l)
            status[l] = L::flagged(solved, l) ? std::int8_t(SOLVED)
                        : L::flagged(held, l) ? std::int8_t(INACCURATE)
                                              : NOT_CONVERGED;
    }

    void blank_out(const Result &out, std::int64_t member) {
        for (std::int64_t e = 0; out.data && e < out.step; ++e)
            out.data[member * out.step + e] = std::numeric_limits<double>::quiet_NaN();
    }

  public:
    explicit Solver_of(const Stationary &given) : problem(given), d(given.d), m(given.m) {
        carve({});
    }
    ~Solver_of() { ::operator delete(memory, std::align_val_t(64)); }
    Solver_of(const Solver_of &) = delete;
    Solver_of &operator=(const Solver_of &) = delete;

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
            if (status[l] == SOLVED) continue;
            blank_out(problem.gain, pack.member[l]);
            blank_out(problem.value, pack.member[l]);
        }
    }
};

template <class L>
void double_range(const Stationary &problem, std::int64_t first, std::int64_t last) {
    Solver_of<L> solver(problem);
    Pack pack{{}, 0};
    for (std::int64_t i = first; i < last; ++i) {
        pack.member[pack.count++] = i;
        if (pack.count < L::MEMBERS && i + 1 < last) continue;
        for (int l = pack.count; l < WIDTH; ++l) pack.member[l] = pack.member[pack.count - 1];
        solver.solve(pack);
        pack.count = 0;
    }
}

}  // namespace

void double_members(const Stationary &problem, std::int64_t first, std::int64_t last) {
    if (problem.d < LARGE) return double_range<Lanes>(problem, first, last);
    double_range<Rows>(problem, first, last);
}

}  // namespace KERNEL_TARGET
