// Which layout of the recursions (recursion.hpp) serves a problem, by its sizes alone.

#include "recursion.hpp"

namespace KERNEL_TARGET {
namespace {

constexpr int LARGE = 24;  // states from which Rows are quicker than Lanes (measured)

template <class L, class D, class M>
void solve_range(const Problem &problem, D d, M m, std::int64_t first, std::int64_t last) {
    Recursion<L, D, M> recursion(problem, d, m);
    in_packs<L>(
        problem, first, last, [](int) { return true; },
        [&](const Pack &pack) { recursion.template solve<false>(pack); });
    if (!problem.refine) return;
    in_packs<L>(
        problem, first, last, [](int status) { return status == SUSPECT; },
        [&](const Pack &pack) { recursion.template solve<true>(pack); });
    refine_members(problem, first, last);
}

}  // namespace

void solve_members(const Problem &problem, std::int64_t first, std::int64_t last) {
    const int d = problem.d, m = problem.m;
#ifdef KERNEL_SPECIALISED
#define SPECIALISED(D, M) \
    if (d == D && m == M) return solve_range<Lanes>(problem, Known<D>(), Known<M>(), first, last)
    SPECIALISED(2, 1);
    SPECIALISED(4, 1);
    SPECIALISED(4, 2);
    SPECIALISED(5, 2);
    SPECIALISED(6, 2);
    SPECIALISED(6, 3);
#undef SPECIALISED
#endif
    // The choice depends on the sizes alone, never on the batch: the same bits alone or in company.
    if (d < LARGE) return solve_range<Lanes>(problem, d, m, first, last);
    return solve_range<Rows>(problem, d, m, first, last);
}

}  // namespace KERNEL_TARGET
