// The problem handed from the Python door (native.cpp) to the recursions (recursions.cpp).
#pragma once

#include <cstdint>

// One operand of a batch: `data` of the first member, `step` doubles to the next (0: shared by all).
// Of what may change from one step of an episode to the next, `stage` is how far that is (0: constant).
struct Operand {
    const double *data = nullptr;
    std::int64_t step = 0, stage = 0;
};

// The same for what is written; a null `data` was not asked for and costs nothing.
struct Result {
    double *data = nullptr;
    std::int64_t step = 0;
};

// INACCURATE: too many digits were lost for results that are good to 1e-6.
// SUSPECT never leaves recursions.cpp.
enum Status : std::int8_t { SOLVED, NOT_POSITIVE_DEFINITE, NOT_FINITE, INACCURATE, SUSPECT };

struct Problem {
    std::int64_t batch = 0;
    int d = 0, m = 0, horizon = 0;        // states, inputs, H (H states and H-1 inputs an episode)
    Operand A, B, Q, R, N, noise, start;  // N, noise and start may be null; A and B change together
    Operand policy;                       // gains to be evaluated; null: find the optimal ones
    Operand dither;       // covariance of what is added to the policy's inputs, or null
    Operand covariances;  // of each row of [A, B] itself, (d, d+m, d+m); or null
    bool refine = true;   // whether members that lose many digits are solved again, with more
    Result gains, values, constants, cost, dA, dB;  // dA and dB of each step if A and B change
    std::int8_t *status = nullptr;                  // a Status for each member
    std::int32_t *failed_step = nullptr;  // the step h = 1..H where it failed, 0 if it did not
};

// Members first..last-1 of the problem. One version for every kind of processor; the results for
// a member depend on nothing but that member, so any split of the batch gives the same bits.
using Solver = void(const Problem &, std::int64_t first, std::int64_t last);

// solve_members leaves those to refine_members that lose too many digits (INACCURATE, or perhaps
// wrongly NOT_POSITIVE_DEFINITE), which solves them again with twice as many.
#define RECURSIONS_OF(target) \
    namespace target {        \
    Solver solve_members;     \
    Solver refine_members;    \
    }
RECURSIONS_OF(baseline)
RECURSIONS_OF(avx2)
#undef RECURSIONS_OF
