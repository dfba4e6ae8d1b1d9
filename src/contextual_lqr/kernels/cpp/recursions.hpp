// The problem handed from the Python door (native.cpp) to the recursions (recursions.cpp).
#pragma once

#include <cstdint>

// One operand of a batch: `data` of the first member, `step` doubles to the next (0: shared by all).
struct Operand {
    const double *data = nullptr;
    std::int64_t step = 0;
};

// The same for what is written; a null `data` was not asked for and costs nothing.
struct Result {
    double *data = nullptr;
    std::int64_t step = 0;
};

enum Status : std::int8_t { SOLVED = 0, NOT_POSITIVE_DEFINITE = 1, NOT_FINITE = 2 };

struct Problem {
    std::int64_t batch = 0;
    int d = 0, m = 0, horizon = 0;  // states, inputs, H (H states and H-1 inputs an episode)
    Operand A, B, Q, R, N, noise, start;  // N, noise and start may be null
    Operand policy;       // gains to be evaluated; null: find the optimal ones
    Operand dither;       // covariance of what is added to the policy's inputs, or null
    Operand covariances;  // of each row of [A, B] itself, (d, d+m, d+m); or null
    Result gains, values, constants, cost, dA, dB;
    std::int8_t *status = nullptr;         // a Status for each member
    std::int32_t *failed_step = nullptr;   // the step h = 1..H where it failed, 0 if it did not
};

// Members first..last-1 of the problem. One version for every kind of processor; the results for
// a member depend on nothing but that member, so any split of the batch gives the same bits.
using Solver = void (*)(const Problem &, std::int64_t first, std::int64_t last);

namespace baseline { void solve_members(const Problem &, std::int64_t first, std::int64_t last); }
namespace avx2 { void solve_members(const Problem &, std::int64_t first, std::int64_t last); }
