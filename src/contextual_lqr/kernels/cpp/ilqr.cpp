// ilqr_reference.py, compiled: the same equations in the same order, one member after the other.
// The letters are those of its glossary.

#include "ilqr.hpp"

#include "backward.hpp"
#include "evaluator.hpp"

namespace KERNEL_TARGET {
namespace {

constexpr double SUFFICIENT = 1e-4, LEAST_DAMPING = 1e-3, MOST_DAMPING = 1e8, DAMPING_STEP = 8;
constexpr double ROUNDED = 1e-13;
constexpr int HALVINGS = 10, SMALL = 4;

template <int D, int C> struct Member : Backward<D, C> {
    using Base = Backward<D, C>;
    using Base::backward;
    using Base::Base;
    using Base::d;
    using Base::deviations;
    using Base::drift;
    using Base::error;
    using Base::hedge;
    using Base::high;
    using Base::J;
    using Base::k;
    using Base::K;
    using Base::linear;
    using Base::low;
    using Base::m;
    using Base::N;
    using Base::new_phi;
    using Base::new_u;
    using Base::new_x;
    using Base::p;
    using Base::phi;
    using Base::problem;
    using Base::Q;
    using Base::quadratic;
    using Base::R;
    using Base::T;
    using Base::theta;
    using Base::u;
    using Base::w;
    using Base::x;
    using Base::y;

    double clip(double input, int i) const { return low ? within(input, low[i], high[i]) : input; }

    // eᵀQe + rᵀRr + 2eᵀNr
    double stage(int t, const double *state, const double *input) {
        deviations(t, state, input);
        double sum = 0;
        const double *weight = Q + t * d() * d();
        for (int i = 0; i < d(); ++i)
            for (int j = 0; j < d(); ++j) sum += error[i] * weight[i * d() + j] * error[j];
        if (t == T) return sum;
        weight = R + t * m() * m();
        for (int i = 0; i < m(); ++i)
            for (int j = 0; j < m(); ++j) sum += drift[i] * weight[i * m() + j] * drift[j];
        if (N)
            for (int i = 0; i < d(); ++i)
                for (int j = 0; j < m(); ++j)
                    sum += 2 * error[i] * N[(t * d() + i) * m() + j] * drift[j];
        return sum;
    }

    // x' = Θ φ
    void next(const double *f, double *state) const {
        for (int r = 0; r < d(); ++r) {
            double sum = 0;
            for (int i = 0; i < p; ++i) sum += theta[r * p + i] * f[i];
            state[r] = sum;
        }
    }

    // The path of u = clip(guess + feedback (x - path)) from new_x[0]; its cost, NaN if not finite.
    template <class Input> double roll_out(Evaluator &evaluator, const Input &input) {
        double cost = 0;
        for (int t = 0; t < T; ++t) {
            double *state = &new_x[t * d()], *f = &new_phi[t * p];
            for (int i = 0; i < m(); ++i) new_u[t * m() + i] = clip(input(t, i, state), i);
            evaluator.values(state, d(), &new_u[t * m()], f);
            next(f, state + d());
            cost += stage(t, state, &new_u[t * m()]);
            if (!std::isfinite(cost)) return NAN;
        }
        return cost + stage(T, &new_x[T * d()], nullptr);
    }

    void accept() { x.swap(new_x), u.swap(new_u), phi.swap(new_phi); }

    void linearise(Evaluator &evaluator) {
        for (int t = 0; t < T; ++t)
            evaluator.derivatives(&x[t * d()], d(), &u[t * m()], &phi[t * p],
                                  &J[std::size_t(t) * p * y()]);
    }

    double first_roll_out(Evaluator &evaluator, std::int64_t member) {
        const double *guess = of(problem.guess, member), *path = of(problem.path, member);
        const double *feedback = of(problem.feedback, member);
        copy(of(problem.start, member), d(), new_x.data());
        return roll_out(evaluator, [&](int t, int i, const double *state) {
            double input = guess[t * m() + i];
            if (path)
                for (int j = 0; j < d(); ++j) {
                    double off = state[j] - path[t * d() + j];
                    if (problem.period[j] > 0)
                        off -= problem.period[j] * std::floor(off / problem.period[j] + 0.5);
                    input += feedback[(t * m() + i) * d() + j] * off;
                }
            return input;
        });
    }

    double next_roll_out(Evaluator &evaluator, double size) {
        copy(x.data(), d(), new_x.data());
        return roll_out(evaluator, [&](int t, int i, const double *state) {
            double input = u[t * m() + i] + size * k[t * m() + i];
            for (int j = 0; j < d(); ++j)
                input += K[(t * m() + i) * d() + j] * (state[j] - x[t * d() + j]);
            return input;
        });
    }

    // The first size of 1, 1/2, 1/4 ... whose step lowers the cost enough, as a number of halvings.
    int search(Evaluator &evaluator, double before, double &cost) {
        double size = 1;
        for (int half = 0; half < HALVINGS; ++half, size /= 2) {
            const double then = next_roll_out(evaluator, size);
            const double expected = -(size * linear + size * size * quadratic);
            if (before - (then + hedge(new_phi)) >= SUFFICIENT * expected) {
                cost = then;
                accept();
                return half;
            }
        }
        return HALVINGS;
    }

    std::int8_t descend(Evaluator &evaluator, std::int64_t member, double &cost, int &used) {
        cost = first_roll_out(evaluator, member);
        accept();
        used = 0;
        K.clear();
        w.clear();
        if (!std::isfinite(cost)) return DIVERGED;
        linearise(evaluator);
        double damping = 0;
        std::int8_t end = backward(damping);
        for (;;) {
            int halvings = HALVINGS;
            if (end == NOT_FINITE) return end;
            if (end == SOLVED) {
                const double before = cost + hedge(phi), decrease = -(linear + quadratic);
                const double share = (1 + damping) * decrease / std::fabs(before);
                if (!(decrease > 0) || share <= problem.tolerance) break;
                end = LIMIT;
                if (used == problem.iterations) break;
                halvings = search(evaluator, before, cost);
                end = SOLVED;
                if (halvings == HALVINGS && share <= ROUNDED) break;
            }
            if (halvings < HALVINGS) linearise(evaluator), ++used;
            if (halvings >= SMALL) damping = damping > 0 ? damping * DAMPING_STEP : LEAST_DAMPING;
            if (halvings == 0) damping = damping > LEAST_DAMPING ? damping / DAMPING_STEP : 0;
            end = STALLED;
            if (damping > MOST_DAMPING) break;
            end = backward(damping);
        }
        if (damping > 0) backward(0);  // the gains to play are not damped
        return end;
    }
};

template <int D, int C>
void descend_sized(const Descent &problem, std::int64_t first, std::int64_t last) {
    Evaluator evaluator(problem.program, problem.d + problem.m);
    Member<D, C> member(problem);
    for (std::int64_t i = first; i < last; ++i) {
        member.begin(i);
        evaluator.hold(of(problem.contexts, i));
        double cost = 0;
        int used = 0;
        problem.status[i] = member.descend(evaluator, i, cost, used);
        problem.used[i] = used;
        member.x.write(of(problem.states, i));
        member.u.write(of(problem.inputs, i));
        member.K.write(of(problem.gains, i));
        *of(problem.cost, i) = cost;
        *of(problem.hedge, i) = member.hedge(member.phi);
    }
}

}  // namespace

void descend_members(const Descent &problem, std::int64_t first, std::int64_t last) {
#ifdef KERNEL_SPECIALISED
    if (problem.m == 1 && problem.d == 2) return descend_sized<2, 1>(problem, first, last);
    if (problem.m == 1 && problem.d == 4) return descend_sized<4, 1>(problem, first, last);
#endif
    descend_sized<0, 0>(problem, first, last);
}

void pass_members(const Pass &pass, std::int64_t first, std::int64_t last) {
    Backward<0, 0> member(pass.problem);
    for (std::int64_t i = first; i < last; ++i) {
        member.begin(i);
        member.x.read(of(pass.states, i)), member.u.read(of(pass.inputs, i));
        member.phi.read(of(pass.features, i)), member.J.read(of(pass.jacobians, i));
        pass.status[i] = member.backward(pass.damping[i]);
        member.k.write(of(pass.offsets, i));
        member.K.write(of(pass.gains, i));
        member.w.write(of(pass.weights, i));
        of(pass.expected, i)[0] = member.linear, of(pass.expected, i)[1] = member.quadratic;
        *of(pass.hedge, i) = member.hedge(member.phi);
    }
}

}  // namespace KERNEL_TARGET
