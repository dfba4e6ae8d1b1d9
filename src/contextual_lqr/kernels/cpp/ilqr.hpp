// The problem handed from the Python door (native_ilqr.cpp) to iterative LQR (ilqr.cpp).
#pragma once

#include "program.hpp"
#include "recursions.hpp"

constexpr std::int8_t LIMIT = 4, STALLED = 8, DIVERGED = 9;  // beside SOLVED and NOT_FINITE

struct Descent {
    std::int64_t batch = 0;
    int d = 0, m = 0, p = 0, horizon = 0;
    Program program;
    Operand contexts, theta, covariances;  // (c,), (d, p), (d, p, p) or null
    Operand Q, R, N;                       // of each step; N may be null
    Operand target, input_target;          // (horizon, d) and (horizon - 1, m)
    Operand low, high;                     // (m,), or null
    const double *period = nullptr;        // (d,): of states that wrap, else 0
    Operand start, guess, path, feedback;  // u = guess + feedback (x - path); the last two or null
    int iterations = 0;
    double tolerance = 0;
    Result states, inputs, gains, cost, hedge;
    std::int8_t *status = nullptr;
    std::int32_t *used = nullptr;  // iterations
};

// One backward pass along a path that Python has rolled out: features and their Jacobians are given.
struct Pass {
    Descent problem;
    Operand states, inputs, features, jacobians;
    const double *damping = nullptr;  // for each member
    Result offsets, gains, expected, weights, hedge;
    std::int8_t *status = nullptr;
};

using Descending = void(const Descent &, std::int64_t first, std::int64_t last);
using Passing = void(const Pass &, std::int64_t first, std::int64_t last);

#define ILQR_OF(target)         \
    namespace target {          \
    Descending descend_members; \
    Passing pass_members;       \
    }
ILQR_OF(baseline)
ILQR_OF(avx2)
#undef ILQR_OF
