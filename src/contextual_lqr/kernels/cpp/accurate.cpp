// The recursions and the doubling with twice the digits, for the members that would lose too many of 16.
//
// So systems that lose 20 digits keep 12. The alternative, to propagate a triangular factor of P by QR,
// saves half of what is lost, needs factors of the costs (which may be indefinite), and a second set
// of equations.

#include "doubling.hpp"
#include "pairs.hpp"
#include "recursion.hpp"

namespace KERNEL_TARGET {

void refine_members(const Problem &problem, std::int64_t first, std::int64_t last) {
    const auto wanted = [](int status) {
        return status == INACCURATE || status == NOT_POSITIVE_DEFINITE;
    };
    while (first < last && !wanted(problem.status[first])) ++first;
    if (first == last) return;
    Recursion<Pairs, int, int> recursion(problem, problem.d, problem.m);
    in_packs<Pairs>(problem, first, last, wanted,
                    [&](const Pack &pack) { recursion.template solve<true>(pack); });
}

// A member that cannot be had with these either stays as it was.
void redouble_members(const Stationary &problem, std::int64_t first, std::int64_t last) {
    const auto wanted = [](int status) { return status != SOLVED; };
    while (first < last && !wanted(problem.status[first])) ++first;
    if (first == last) return;
    Doubled<Pairs> doubled(problem);
    in_packs<Pairs>(problem, first, last, wanted, [&](const Pack &pack) { doubled.solve(pack); });
    for (std::int64_t i = first; i < last; ++i)
        if (problem.status[i] == DOUBTED) problem.status[i] = SOLVED;
}

}  // namespace KERNEL_TARGET
