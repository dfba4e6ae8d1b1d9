// What the doors between NumPy and the compiled kernels share: arrays as operands, work as threads.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "recursions.hpp"

namespace nb = nanobind;

using In = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<double, nb::c_contig, nb::device::cpu>;

// The arrays come from our own Python code; a wrong size is a defect there, never to be read past.
inline std::int64_t step_of(std::size_t size, std::int64_t batch, std::int64_t each,
                            const char *name) {
    if (std::int64_t(size) == batch * each) return batch == 1 ? 0 : each;
    if (std::int64_t(size) == each) return 0;
    throw std::invalid_argument(std::string(name) + " has the wrong size for this batch");
}

inline Operand operand(const In &array, std::int64_t batch, std::int64_t each, const char *name) {
    if (!array.is_valid()) return {};
    return {array.data(), step_of(array.size(), batch, each, name)};
}

// What may be given for each step: then it has one axis more than if it is `constant`.
inline Operand staged(const In &array, std::size_t constant, std::int64_t steps, std::int64_t batch,
                      std::int64_t each, const char *name) {
    if (!array.is_valid() || array.ndim() == constant) return operand(array, batch, each, name);
    Operand found = operand(array, batch, steps * each, name);
    found.stage = each;
    return found;
}

inline Result result(const Out &array, std::int64_t batch, std::int64_t each, const char *name) {
    if (!array.is_valid()) return {};
    if (std::int64_t(array.size()) != batch * each)
        throw std::invalid_argument(std::string(name) + " has the wrong size for this batch");
    return {array.data(), each};
}

// A thread is started only for work that takes it about a millisecond.
constexpr double OPERATIONS_PER_THREAD = 2e7;

// Does all members, of so many operations each, by `part(first, last)`. What a thread throws is thrown
// here, when all of them have ended; the work of a thread that cannot be started is done here too.
template <class Part>
void in_parts(std::int64_t batch, double each, int threads, const Part &part_of) {
    const double wanted = std::min(each * double(batch) / OPERATIONS_PER_THREAD, 1e6);
    const std::int64_t packs = (batch + 3) / 4;
    const auto parts = std::min<std::int64_t>({threads, std::int64_t(wanted), packs});
    if (parts <= 1) return part_of(0, batch);
    std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(parts));
    const auto solve_part = [&](std::int64_t part) {
        const std::int64_t first = packs * part / parts * 4, next = packs * (part + 1) / parts * 4;
        try {
            part_of(first, std::min(batch, next));
        } catch (...) {
            thrown[static_cast<std::size_t>(part)] = std::current_exception();
        }
    };
    std::vector<std::thread> crew;
    crew.reserve(static_cast<std::size_t>(parts));
    std::int64_t part = 1;
    try {
        for (; part < parts; ++part) crew.emplace_back(solve_part, part);
    } catch (const std::system_error &) {
    }
    for (solve_part(0); part < parts; ++part) solve_part(part);
    for (auto &one : crew) one.join();
    for (const auto &one : thrown)
        if (one) std::rethrow_exception(one);
}

inline void require(bool condition, const char *what) {
    if (!condition) throw std::invalid_argument(what);
}

// Iterative LQR (native_ilqr.cpp), added to the module; `quick`: this processor has AVX2.
void add_ilqr(nb::module_ &module, bool quick);
