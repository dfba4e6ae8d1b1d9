// The members of a batch that are solved at once, and their way out of the caller's arrays and back.
#pragma once

#include <initializer_list>

#include "matrix.hpp"
#include "recursions.hpp"

namespace KERNEL_TARGET {
namespace {

// Which members of the batch a pack holds; the last pack repeats its last member to be full.
struct Pack {
    std::int64_t member[WIDTH];
    int count;
};

// Lanes (and Pairs): an entry of four systems.
template <class L>
INLINE void load(Matrix<L> to, const Operand &from, std::int64_t offset, int rows, int columns,
                 const Pack &pack) {
    const double *p = from.data + offset;
    if (from.step == 0) {
        for (int e = 0; e < rows * columns; ++e) to.data[e] = L::vector(splat(p[e]));
        return;
    }
    const double *p0 = p + pack.member[0] * from.step, *p1 = p + pack.member[1] * from.step,
                 *p2 = p + pack.member[2] * from.step, *p3 = p + pack.member[3] * from.step;
    int e = 0;
    for (; e + WIDTH <= rows * columns; e += WIDTH) {  // four entries of four systems
        const double *const place[WIDTH] = {p0 + e, p1 + e, p2 + e, p3 + e};
        V entry[WIDTH];
        load_transposed(place, entry);
        for (int l = 0; l < WIDTH; ++l) to.data[e + l] = L::vector(entry[l]);
    }
    for (; e < rows * columns; ++e) to.data[e] = L::vector(V{p0[e], p1[e], p2[e], p3[e]});
}

template <>
INLINE void load<Rows>(Matrix<Rows> to, const Operand &from, std::int64_t offset, int rows,
                       int columns, const Pack &pack) {
    const double *p = from.data + offset + pack.member[0] * from.step;
    for (int i = 0; i < rows; ++i) {
        double *row = reinterpret_cast<double *>(to.row(i));
        for (int j = 0; j < columns; ++j) row[j] = p[std::int64_t(i) * columns + j];
        for (int j = columns; j < to.width * WIDTH; ++j) row[j] = 0;
    }
}

// The stage costs of all steps, if small systems share them; those of one step, if they do not.
template <class L, class I, class J>
INLINE void load_shared(Matrix<L> all, const Operand &from, int steps, I rows, J columns) {
    if (from.data && from.step == 0 && L::MEMBERS > 1)
        for (int h = 0; h < steps; ++h)
            load<L>(all.copy_number(h), from, std::int64_t(h) * rows * columns, rows, columns, {});
}

template <class L, class I, class J>
INLINE Matrix<L> at_step(Matrix<L> all, const Operand &from, int h, I rows, J columns,
                         const Pack &pack) {
    if (from.step == 0 && L::MEMBERS > 1) return all.copy_number(h);
    load<L>(all, from, std::int64_t(h) * rows * columns, rows, columns, pack);
    return all;
}

// What may change from step to step, of small systems all steps in one go: step by step, too many
// streams of memory would be open. Of large ones the first alone; `stage` then loads each.
template <class L, class I, class J>
INLINE void load_stages(Matrix<L> all, const Operand &from, int steps, I rows, J columns,
                        const Pack &pack) {
    load<L>(all, from, 0, (from.stage && L::MEMBERS > 1 ? steps : 1) * rows, columns, pack);
}

template <class L, class I, class J>
INLINE Matrix<L> stage(Matrix<L> all, const Operand &from, int h, I rows, J columns,
                       const Pack &pack) {
    if (L::MEMBERS > 1) return all.copy_number(h);
    load<L>(all, from, h * from.stage, rows, columns, pack);
    return all;
}

// The covariances of the rows of [A, B] at step h, by way of C, in blocks for x and u.
template <class L>
INLINE void load_rows(Matrix<L> C, Matrix<L> Cxx, Matrix<L> Cux, Matrix<L> Cuu, const Operand &from,
                      int h, int d, int m, const Pack &pack) {
    const int y = d + m;
    for (int r = 0; r < d; ++r) {
        const Matrix<L> xx = Cxx.copy_number(r), ux = Cux.copy_number(r), uu = Cuu.copy_number(r);
        load<L>(C, from, h * from.stage + std::int64_t(r) * y * y, y, y, pack);
        for (int i = 0; i < y; ++i)
            for (int j = 0; j < (i < d ? d : y); ++j)
                (i < d ? xx.at(i, j) : j < d ? ux.at(i - d, j) : uu.at(i - d, j - d)) = C.at(i, j);
    }
}

template <class L>
INLINE void store(const Result &to, std::int64_t offset, Matrix<L> from, int rows, int columns,
                  const Pack &pack) {
    const int entries = rows * columns;
    double *p[WIDTH];
    for (int l = 0; l < WIDTH; ++l) p[l] = to.data + pack.member[l] * to.step + offset;
    int e = 0;
    for (; e + WIDTH <= entries; e += WIDTH) {  // four entries of four systems
        V entry[WIDTH], lane[WIDTH];
        for (int l = 0; l < WIDTH; ++l) entry[l] = L::rounded(from.data[e + l]);
        transpose_four(entry, lane);
        for (int l = 0; l < WIDTH; ++l) store(p[l] + e, lane[l]);
    }
    for (; e < entries; ++e)
        for (int l = 0; l < WIDTH; ++l) p[l][e] = L::rounded(from.data[e])[l];
}

template <>
INLINE void store<Rows>(const Result &to, std::int64_t offset, Matrix<Rows> from, int rows,
                        int columns, const Pack &pack) {
    double *p = to.data + pack.member[0] * to.step + offset;
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) p[std::int64_t(i) * columns + j] = from.entries(i)[j];
}

// Several matrices that lie one after the other, here and there.
template <class L>
INLINE void store_copies(const Result &to, Matrix<L> all, int copies, int rows, int columns,
                         const Pack &pack) {
    if (L::MEMBERS > 1) return store<L>(to, 0, all, copies * rows, columns, pack);
    for (int n = 0; n < copies; ++n)
        store<L>(to, std::int64_t(n) * rows * columns, all.copy_number(n), rows, columns, pack);
}

constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr double NOT_A_NUMBER = std::numeric_limits<double>::quiet_NaN();

// A member that failed has no answer: no gains, no values, no gradient; its cost is infinite.
inline void blank_out(const Problem &problem, std::int64_t member) {
    const auto overwrite = [&](const Result &out, double value) {
        for (std::int64_t e = 0; out.data && e < out.step; ++e)
            out.data[member * out.step + e] = value;
    };
    for (const Result *out : {&problem.gains, &problem.values, &problem.dA, &problem.dB})
        overwrite(*out, NOT_A_NUMBER);
    for (const Result *out : {&problem.constants, &problem.cost}) overwrite(*out, INFINITE);
}

// Calls `solve` with packs of the members first..last-1 whose status is wanted.
template <class L, class Any, class Wanted, class Solve>
INLINE void in_packs(const Any &problem, std::int64_t first, std::int64_t last, Wanted wanted,
                     Solve solve) {
    Pack pack{{}, 0};
    for (std::int64_t i = first; i < last; ++i) {
        if (wanted(problem.status[i])) pack.member[pack.count++] = i;
        if (pack.count == 0 || (pack.count < L::MEMBERS && i + 1 < last)) continue;
        for (int l = pack.count; l < WIDTH; ++l) pack.member[l] = pack.member[pack.count - 1];
        solve(pack);
        pack.count = 0;
    }
}

}  // namespace
}  // namespace KERNEL_TARGET
