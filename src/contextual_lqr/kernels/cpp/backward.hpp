// The backward pass of ilqr_reference.py along one member's path, with its glossary.
#pragma once

#include <initializer_list>

#include "ilqr.hpp"
#include "room.hpp"

namespace KERNEL_TARGET {
namespace {

constexpr int NEWTON = 100;  // steps of the box-constrained problem of one stage

// M = LLᵀ in the lower triangle of M, (n, n); false if it is not positive definite.
bool cholesky(double *M, int n) {
    for (int j = 0; j < n; ++j) {
        double pivot = M[j * n + j];
        const double before = pivot;
        for (int k = 0; k < j; ++k) pivot -= M[j * n + k] * M[j * n + k];
        if (!(pivot > n * 2.2e-16 * before)) return false;
        M[j * n + j] = std::sqrt(pivot);
        for (int i = j + 1; i < n; ++i) {
            double sum = M[i * n + j];
            for (int k = 0; k < j; ++k) sum -= M[i * n + k] * M[j * n + k];
            M[i * n + j] = sum / M[j * n + j];
        }
    }
    return true;
}

// b <- (LLᵀ)⁻¹ b, its entries `stride` apart.
void substitute(const double *L, int n, double *b, int stride) {
    for (int i = 0; i < n; ++i) {
        for (int k = 0; k < i; ++k) b[i * stride] -= L[i * n + k] * b[k * stride];
        b[i * stride] /= L[i * n + i];
    }
    for (int i = n - 1; i >= 0; --i) {
        for (int k = i + 1; k < n; ++k) b[i * stride] -= L[k * n + i] * b[k * stride];
        b[i * stride] /= L[i * n + i];
    }
}

// States and inputs are counted when compiling (D, C), or not (0).
template <int D, int C> struct Backward {
    const Descent &problem;
    const int d_, m_;
    int d() const { return D ? D : d_; }
    int m() const { return C ? C : m_; }
    int y() const { return d() + m(); }
    const int p, T;  // features, steps
    const double *theta, *covariances, *Q, *R, *N, *target, *input_target, *low, *high;
    Room<double> P, v, M, q, F, PF, H, factor, mixed, error, drift, box, spread;
    Room<int> clamped;

    Room<double> x, u, phi, J, k, K, w, new_x, new_u, new_phi;
    double linear = 0, quadratic = 0;  // what a step of size α changes: α linear + α² quadratic

    explicit Backward(const Descent &given)
        : problem(given), d_(given.d), m_(given.m), p(given.p), T(given.horizon - 1) {
        const int dd = d() * d(), yy = y() * y();
        for (auto *one : {&x, &new_x}) one->resize((T + 1) * d());
        for (auto *one : {&u, &new_u, &k}) one->resize(T * m());
        for (auto *one : {&phi, &new_phi}) one->resize(T * p);
        J.resize(std::size_t(T) * p * y());
        K.resize(T * m() * d()), w.resize(T * d());
        P.resize(dd), v.resize(d()), M.resize(yy), q.resize(y()), F.resize(d() * y());
        PF.resize((d() > m() ? d() : m()) * y()), H.resize(m() * m()), factor.resize(m() * m()),
            clamped.resize(m());
        mixed.resize(p * p), error.resize(d()), drift.resize(m()), box.resize(4 * m());
        spread.resize(p * (y() + 1));
    }

    void begin(std::int64_t member) {
        theta = of(problem.theta, member), covariances = of(problem.covariances, member);
        Q = of(problem.Q, member), R = of(problem.R, member), N = of(problem.N, member);
        target = of(problem.target, member), input_target = of(problem.input_target, member);
        low = of(problem.low, member), high = of(problem.high, member);
    }

    // e = x - target, of states that wrap the nearest way round; r = u - its target.
    void deviations(int t, const double *state, const double *input) {
        for (int i = 0; i < d(); ++i) {
            error[i] = state[i] - target[t * d() + i];
            if (problem.period[i] > 0)
                error[i] -= problem.period[i] * std::floor(error[i] / problem.period[i] + 0.5);
        }
        if (t < T)
            for (int i = 0; i < m(); ++i) drift[i] = input[i] - input_target[t * m() + i];
    }

    // Σ_r w_r φᵀΣ_rφ along the path
    double hedge(const Room<double> &features) const {
        if (!covariances) return 0;
        double sum = 0;
        for (int t = 0; t < T; ++t)
            for (int r = 0; r < d(); ++r) {
                const double *f = &features[t * p];
                const double *S = covariances + r * p * p;
                double form = 0;
                for (int i = 0; i < p; ++i) {
                    double row = 0;
                    for (int j = 0; j < p; ++j) row += S[i * p + j] * f[j];
                    form += f[i] * row;
                }
                sum += w[t * d() + r] * form;
            }
        return sum;
    }

    // F = ∂x'/∂(x, u) = Θ J of step t.
    void dynamics(int t) {
        const double *jacobian = &J[std::size_t(t) * p * y()];
        for (int r = 0; r < d(); ++r) {
            double *row = &F[r * y()];
            for (int j = 0; j < y(); ++j) row[j] = 0;
            for (int i = 0; i < p; ++i) {
                const double factor_of = theta[r * p + i];
                if (factor_of != 0)
                    for (int j = 0; j < y(); ++j) row[j] += factor_of * jacobian[i * y() + j];
            }
        }
    }

    // q += JᵀΣφ and M += JᵀΣJ, Σ the covariance S of a list of features with its weight.
    void add_spread(const double *f, const double *jacobian, const double *S) {
        double *SJ = spread.data(), *Sf = SJ + p * y();
        for (int i = 0; i < p; ++i) {
            Sf[i] = 0;
            for (int j = 0; j < y(); ++j) SJ[i * y() + j] = 0;
            for (int l = 0; l < p; ++l) {
                const double s = S[i * p + l];
                if (s == 0) continue;
                Sf[i] += s * f[l];
                for (int j = 0; j < y(); ++j) SJ[i * y() + j] += s * jacobian[l * y() + j];
            }
        }
        for (int i = 0; i < p; ++i)
            for (int a = 0; a < y(); ++a) {
                const double slope = jacobian[i * y() + a];
                if (slope == 0) continue;
                q[a] += slope * Sf[i];
                for (int b = 0; b < y(); ++b) M[a * y() + b] += slope * SJ[i * y() + b];
            }
    }

    // The covariance of x' is φᵀΣ_rφ in state r, which costs P_rr of it.
    void add_hedge(int t) {
        mixed.clear();
        for (int r = 0; r < d(); ++r)
            for (int i = 0; i < p * p; ++i) mixed[i] += w[t * d() + r] * covariances[r * p * p + i];
        add_spread(&phi[t * p], &J[std::size_t(t) * p * y()], mixed.data());
    }

    // k of least qᵤᵀk·2 + kᵀHk within low - u ≤ k ≤ high - u, by projected Newton steps; `clamped`
    // are those at a limit that they press against, and `factor` is that of H of the others.
    bool boxed(int t, const double *offset) {
        const int n = m();
        double *least = box.data(), *most = least + n, *slope = most + n, *tried = slope + n;
        double *own = &k[t * n];
        for (int i = 0; i < n; ++i) {
            least[i] = low ? low[i] - u[t * n + i] : -HUGE_VAL;
            most[i] = low ? high[i] - u[t * n + i] : HUGE_VAL;
            own[i] = within(0.0, least[i], most[i]);
        }
        const auto value = [&](const double *at) {
            double sum = 0;
            for (int i = 0; i < n; ++i) {
                double row = 2 * offset[i];
                for (int j = 0; j < n; ++j) row += H[i * n + j] * at[j];
                sum += at[i] * row;
            }
            return sum;
        };
        double now = value(own);
        for (int round = 0; round < NEWTON; ++round) {
            for (int i = 0; i < n; ++i) {
                slope[i] = offset[i];
                for (int j = 0; j < n; ++j) slope[i] += H[i * n + j] * own[j];
                clamped[i] =
                    (own[i] <= least[i] && slope[i] > 0) || (own[i] >= most[i] && slope[i] < 0);
            }
            for (int i = 0; i < n; ++i)
                for (int j = 0; j < n; ++j)
                    factor[i * n + j] = clamped[i] || clamped[j] ? double(i == j) : H[i * n + j];
            if (!cholesky(factor.data(), n)) return false;
            double predicted = 0, size = 1;
            for (int i = 0; i < n; ++i) tried[i] = clamped[i] ? 0 : slope[i];
            substitute(factor.data(), n, tried, 1);
            for (int i = 0; i < n; ++i) predicted += tried[i] * slope[i];
            copy(tried, n, slope);  // from here on: minus the Newton step
            if (!(predicted > 1e-14 * std::fabs(now))) return true;
            for (int half = 0; half < 40; ++half, size /= 2) {
                for (int i = 0; i < n; ++i)
                    tried[i] = within(own[i] - size * slope[i], least[i], most[i]);
                const double then = value(tried);
                if (!(then < now)) {
                    if (half == 39) return true;  // what is left is rounding
                    continue;
                }
                copy(tried, n, own);
                now = then;
                break;
            }
            if (!low) return true;  // nothing was in the way of the first step
        }
        return true;
    }

    // From the last state to the first: k and K of every step. NOT_FINITE if numbers leave their
    // range, NOT_POSITIVE_DEFINITE if more damping is needed.
    std::int8_t backward(double damping) {
        const int n = y();
        linear = quadratic = 0;
        deviations(T, &x[T * d()], nullptr);
        const double *weight = Q + T * d() * d();
        for (int i = 0; i < d(); ++i) {
            v[i] = 0;
            for (int j = 0; j < d(); ++j) {
                P[i * d() + j] = weight[i * d() + j];
                v[i] += weight[i * d() + j] * error[j];
            }
        }
        for (int t = T - 1; t >= 0; --t) {
            dynamics(t);
            stage_derivatives(t);
            for (int i = 0; i < d(); ++i) w[t * d() + i] = P[i * d() + i] > 0 ? P[i * d() + i] : 0;
            for (int r = 0; r < d(); ++r)
                for (int j = 0; j < n; ++j) {
                    double sum = 0;
                    for (int l = 0; l < d(); ++l) sum += P[r * d() + l] * F[l * n + j];
                    PF[r * n + j] = sum;
                }
            for (int r = 0; r < d(); ++r)
                for (int a = 0; a < n; ++a) {
                    const double slope = F[r * n + a];
                    q[a] += slope * v[r];                                               // Fᵀv
                    for (int b = 0; b < n; ++b) M[a * n + b] += slope * PF[r * n + b];  // FᵀPF
                }
            if (covariances) add_hedge(t);
            for (int i = 0; i < m(); ++i)
                for (int j = 0; j < m(); ++j)
                    H[i * m() + j] = M[(d() + i) * n + d() + j] * (i == j ? 1 + damping : 1);
            double check = 0;
            for (int i = 0; i < n * n; ++i) check += M[i] * 0;
            for (int i = 0; i < n; ++i) check += q[i] * 0;
            if (!(check == 0)) return NOT_FINITE;
            if (!boxed(t, &q[d()])) return NOT_POSITIVE_DEFINITE;
            double *gain = &K[t * m() * d()];
            for (int i = 0; i < m(); ++i)
                for (int j = 0; j < d(); ++j)
                    gain[i * d() + j] = clamped[i] ? 0 : -M[(d() + i) * n + j];
            for (int j = 0; j < d(); ++j) substitute(factor.data(), m(), gain + j, d());
            step_back(gain, &k[t * m()]);
        }
        return SOLVED;
    }

    // q and M of the cost of step t alone.
    void stage_derivatives(int t) {
        const int n = y();
        deviations(t, &x[t * d()], &u[t * m()]);
        q.clear();
        M.clear();
        for (int i = 0; i < d(); ++i)
            for (int j = 0; j < d(); ++j) {
                M[i * n + j] = Q[(t * d() + i) * d() + j];
                q[i] += M[i * n + j] * error[j];
            }
        for (int i = 0; i < m(); ++i)
            for (int j = 0; j < m(); ++j) {
                const double weight = R[(t * m() + i) * m() + j];
                M[(d() + i) * n + d() + j] = weight;
                q[d() + i] += weight * drift[j];
            }
        if (!N) return;
        for (int i = 0; i < d(); ++i)
            for (int j = 0; j < m(); ++j) {
                const double cross = N[(t * d() + i) * m() + j];
                M[i * n + d() + j] = M[(d() + j) * n + i] = cross;
                q[i] += cross * drift[j];
                q[d() + j] += cross * error[i];
            }
    }

    // P and v of step t, of the inputs k + K δx, and what the step is expected to change.
    void step_back(const double *gain, const double *offset) {
        const int n = y(), inputs = m();
        for (int i = 0; i < inputs; ++i) {
            linear += 2 * offset[i] * q[d() + i];
            drift[i] = q[d() + i];  // H k + q_u
            double row = 0;
            for (int j = 0; j < inputs; ++j) row += M[(d() + i) * n + d() + j] * offset[j];
            quadratic += offset[i] * row;
            drift[i] += row;
        }
        for (int a = 0; a < d(); ++a) {
            v[a] = q[a];
            for (int i = 0; i < inputs; ++i)
                v[a] += gain[i * d() + a] * drift[i] + M[(d() + i) * n + a] * offset[i];
        }
        for (int i = 0; i < inputs; ++i)  // H K + M_ux, in PF
            for (int b = 0; b < d(); ++b) {
                double sum = M[(d() + i) * n + b];
                for (int j = 0; j < inputs; ++j)
                    sum += M[(d() + i) * n + d() + j] * gain[j * d() + b];
                PF[i * n + b] = sum;
            }
        for (int a = 0; a < d(); ++a)
            for (int b = 0; b < d(); ++b) {
                double sum = M[a * n + b];
                for (int i = 0; i < inputs; ++i)
                    sum += gain[i * d() + a] * PF[i * n + b] +
                           M[(d() + i) * n + a] * gain[i * d() + b];
                P[a * d() + b] = sum;
            }
        for (int a = 0; a < d(); ++a)
            for (int b = 0; b < a; ++b)
                P[a * d() + b] = P[b * d() + a] = (P[a * d() + b] + P[b * d() + a]) / 2;
    }
};

}  // namespace
}  // namespace KERNEL_TARGET
