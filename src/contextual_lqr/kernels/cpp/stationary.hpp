// The problem handed from the Python door (native.cpp) to the doubling (stationary.cpp).
#pragma once

#include "recursions.hpp"

constexpr std::int8_t NOT_CONVERGED = 4;

// The Riccati equation of A, B, Q, R, N for its gain and value, or, where B is null, the Lyapunov
// equation value = Q + Aᵀ value A.
struct Stationary {
    std::int64_t batch = 0;
    int d = 0, m = 0;
    Operand A, B, Q, R, N;  // N may be null
    Result gain, value;
    std::int8_t *status = nullptr;
};

using Doubling = void(const Stationary &, std::int64_t first, std::int64_t last);

// double_members leaves those to redouble_members that may have lost too many digits.
#define STATIONARY_OF(target)  \
    namespace target {         \
    Doubling double_members;   \
    Doubling redouble_members; \
    }
STATIONARY_OF(baseline)
STATIONARY_OF(avx2)
#undef STATIONARY_OF
