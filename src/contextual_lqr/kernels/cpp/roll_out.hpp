// One episode of a linear policy on one machine (roll_out.cpp), for the Python door (native.cpp).
#pragma once

struct Episode {
    int d = 0, m = 0, steps = 0;
    const double *A = nullptr, *B = nullptr;  // (d, d) and (d, m), row by row; if `varying`, one
    bool varying = false;                     // after the other for each step
    const double *gains = nullptr;            // (steps, m, d)
    const double *offsets = nullptr;          // (steps, m), added to the inputs; or null
    const double *shocks = nullptr;           // (steps, d)
    const double *bound = nullptr;            // (d,), what |x| may reach; or null
    double *states = nullptr;                 // (steps + 1, d), the first of them given
    double *inputs = nullptr;                 // (steps, m)
};

// Plays it, and returns the number of steps that were played.
int roll_out(const Episode &episode);
