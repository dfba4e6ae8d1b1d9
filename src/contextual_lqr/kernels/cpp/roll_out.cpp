// x' = A x + B u + w with u = K x + offset, step by step, as reference.py says it.
//
// An episode ends before a step that overflows, and after one that leaves the bound.

#include "roll_out.hpp"

#include <cmath>

namespace {

double row_times(const double *row, const double *x, int count) {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += row[i] * x[i];
    return sum;
}

bool within(const double *x, const double *bound, int count) {
    for (int i = 0; i < count; ++i)
        if (std::fabs(x[i]) > bound[i]) return false;
    return true;
}

}  // namespace

int roll_out(const Episode &e) {
    const int d = e.d, m = e.m;
    if (e.bound && !within(e.states, e.bound, d)) return 0;
    for (int h = 0; h < e.steps; ++h) {
        const double *x = e.states + h * d, *K = e.gains + h * m * d;
        const double *A = e.A + (e.varying ? h * d * d : 0), *B = e.B + (e.varying ? h * d * m : 0);
        double *u = e.inputs + h * m, *next = e.states + (h + 1) * d;
        double total = 0;  // not finite if one of the numbers is not
        for (int j = 0; j < m; ++j) {
            u[j] = row_times(K + j * d, x, d) + (e.offsets ? e.offsets[h * m + j] : 0.0);
            total += u[j] * 0;
        }
        for (int i = 0; i < d; ++i) {
            next[i] = row_times(A + i * d, x, d) + row_times(B + i * m, u, m) + e.shocks[h * d + i];
            total += next[i] * 0;
        }
        if (!(total == 0)) return h;
        if (e.bound && !within(next, e.bound, d)) return h + 1;
    }
    return e.steps;
}
