// Which layout of the doubling (doubling.hpp) serves a problem, by its sizes alone.

#include "doubling.hpp"

namespace KERNEL_TARGET {
namespace {

constexpr int LARGE = 24;  // states from which Rows are quicker than Lanes

template <class L>
void double_range(const Stationary &problem, std::int64_t first, std::int64_t last) {
    Doubled<L> doubled(problem);
    in_packs<L>(
        problem, first, last, [](int) { return true; },
        [&](const Pack &pack) { doubled.solve(pack); });
    if (problem.m) redouble_members(problem, first, last);
}

}  // namespace

void double_members(const Stationary &problem, std::int64_t first, std::int64_t last) {
    if (problem.d < LARGE) return double_range<Lanes>(problem, first, last);
    double_range<Rows>(problem, first, last);
}

}  // namespace KERNEL_TARGET
