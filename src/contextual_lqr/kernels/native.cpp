// The door between NumPy and the compiled recursions: checks nothing but sizes, and copies nothing.
//
// Every operand has one leading batch axis, of the batch's length or 1 (shared by all members).

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "factors.hpp"
#include "recursions.hpp"

namespace nb = nanobind;

namespace {

using In = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<double, nb::c_contig, nb::device::cpu>;
using Places = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Solver choose_solver() {
#if defined(__x86_64__) && defined(KERNEL_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::solve_members;
#endif
    return baseline::solve_members;
}

const Solver solver = choose_solver();

Factoring *choose_factoring() {
#if defined(__x86_64__) && defined(KERNEL_AVX2)
    if (solver == avx2::solve_members) return avx2::factor_blocks;
#endif
    return baseline::factor_blocks;
}

// The arrays come from our own Python code; a wrong size is a defect there, never to be read past.
std::int64_t step_of(std::size_t size, std::int64_t batch, std::int64_t each, const char *name) {
    if (std::int64_t(size) == batch * each) return batch == 1 ? 0 : each;
    if (std::int64_t(size) == each) return 0;
    throw std::invalid_argument(std::string(name) + " has the wrong size for this batch");
}

Operand operand(const In &array, std::int64_t batch, std::int64_t each, const char *name) {
    if (!array.is_valid()) return {};
    return {array.data(), step_of(array.size(), batch, each, name)};
}

Result result(const Out &array, std::int64_t batch, std::int64_t each, const char *name) {
    if (!array.is_valid()) return {};
    if (std::int64_t(array.size()) != batch * each)
        throw std::invalid_argument(std::string(name) + " has the wrong size for this batch");
    return {array.data(), each};
}

// A thread is started only for work that takes it about a millisecond.
constexpr double OPERATIONS_PER_THREAD = 2e7;

void run(const Problem &problem, int threads) {
    const double d = problem.d, m = problem.m;
    const double each = (3 * d * d * d + 8 * d * d * m) * problem.horizon;
    const double wanted = each * double(problem.batch) / OPERATIONS_PER_THREAD;
    const std::int64_t packs = (problem.batch + 3) / 4;
    const std::int64_t parts =
        std::max<std::int64_t>(1, std::min<std::int64_t>({threads, std::int64_t(wanted), packs}));
    const auto edge = [&](std::int64_t part) {
        return std::min(problem.batch, packs * part / parts * 4);
    };
    std::vector<std::thread> crew;
    for (std::int64_t part = 1; part < parts; ++part)
        crew.emplace_back(solver, std::cref(problem), edge(part), edge(part + 1));
    solver(problem, 0, edge(1));
    for (auto &one : crew) one.join();
}

void recursions(int d, int m, int horizon, std::int64_t batch, const In &A, const In &B,
                const In &Q, const In &R, const In &N, const In &noise, const In &start,
                const In &policy, const In &dither, const In &rows, const In &columns, const Out &gains, const Out &values, const Out &constants,
                const Out &cost, const Out &dA, const Out &dB,
                nb::ndarray<std::int8_t, nb::c_contig, nb::device::cpu> status,
                nb::ndarray<std::int32_t, nb::c_contig, nb::device::cpu> failed_step,
                int threads) {
    if (d < 1 || m < 1 || horizon < 1 || batch < 0)
        throw std::invalid_argument("sizes must be positive");
    const std::int64_t H = horizon, inputs = H - 1, dd = std::int64_t(d) * d;
    const std::int64_t md = std::int64_t(m) * d;
    Problem problem;
    problem.batch = batch, problem.d = d, problem.m = m, problem.horizon = horizon;
    problem.A = operand(A, batch, dd, "A"), problem.B = operand(B, batch, md, "B");
    problem.Q = operand(Q, batch, H * dd, "Q");
    problem.R = operand(R, batch, inputs * m * m, "R");
    problem.N = operand(N, batch, inputs * md, "N");
    problem.start = operand(start, batch, d, "start");
    problem.policy = operand(policy, batch, inputs * md, "policy");
    problem.dither = operand(dither, batch, inputs * m * m, "dither");
    problem.rows = operand(rows, batch, d, "rows");
    problem.columns = operand(columns, batch, std::int64_t(d + m) * (d + m), "columns");
    problem.noise = operand(noise, batch, dd, "noise");
    problem.gains = result(gains, batch, inputs * md, "gains");
    problem.values = result(values, batch, H * dd, "values");
    problem.constants = result(constants, batch, H, "constants");
    problem.cost = result(cost, batch, 1, "cost");
    problem.dA = result(dA, batch, dd, "dA"), problem.dB = result(dB, batch, md, "dB");
    if (std::int64_t(status.size()) != batch || std::int64_t(failed_step.size()) != batch)
        throw std::invalid_argument("status has the wrong size for this batch");
    if ((cost.is_valid() || dA.is_valid()) && !start.is_valid())
        throw std::invalid_argument("a cost or gradient needs a start");
    if (dA.is_valid() != dB.is_valid()) throw std::invalid_argument("dA and dB go together");
    if (rows.is_valid() != columns.is_valid())
        throw std::invalid_argument("rows and columns go together");
    if (dither.is_valid() && !policy.is_valid())
        throw std::invalid_argument("dither is for a policy that is given");
    if (rows.is_valid() && dA.is_valid())
        throw std::invalid_argument("there is no gradient for uncertain systems");
    problem.status = status.data(), problem.failed_step = failed_step.data();
    if (batch == 0) return;
    nb::gil_scoped_release unlocked;
    run(problem, std::max(threads, 1));
}

bool factor_blocks(const nb::list &columns, const std::optional<Places> &chosen, std::int64_t block,
                   double limit, const Out &triangles) {
    std::vector<In> arrays;
    std::vector<const double *> starts;
    for (nb::handle one : columns) {
        arrays.push_back(nb::cast<In>(one, false));
        starts.push_back(arrays.back().data());
        if (arrays.back().ndim() != 1 || arrays.back().size() != arrays[0].size())
            throw std::invalid_argument("the columns must have one length");
    }
    const auto n = std::int64_t(arrays.size());
    const auto length = n == 0 ? 0 : std::int64_t(arrays[0].size());
    const std::int64_t *places = chosen ? chosen->data() : nullptr;
    const std::int64_t rows = chosen ? std::int64_t(chosen->size()) : length;
    for (std::int64_t i = 0; chosen && i < rows; ++i)
        if (places[i] < 0 || places[i] >= length)
            throw std::invalid_argument("a chosen row is not there");
    if (block < 1 || std::int64_t(triangles.size()) != (rows + block - 1) / block * n * n)
        throw std::invalid_argument("triangles has the wrong size");
    if (n == 0 || rows == 0) return true;
    nb::gil_scoped_release unlocked;
    std::vector<double> work(std::size_t((n + 1) * block));
    static Factoring *const factoring = choose_factoring();
    return factoring(starts.data(), int(n), places, rows, block, limit, triangles.data(),
                     work.data());
}

}  // namespace

NB_MODULE(native, module) {
    module.doc() = "The recursions of reference.py, compiled.";
    // Nothing is converted: an output that were copied would be filled and lost.
    module.def("recursions", &recursions, nb::arg("d"), nb::arg("m"), nb::arg("horizon"),
               nb::arg("batch"), nb::arg("A").noconvert(), nb::arg("B").noconvert(),
               nb::arg("Q").noconvert(), nb::arg("R").noconvert(), nb::arg("N").none().noconvert(),
               nb::arg("noise").none().noconvert(), nb::arg("start").none().noconvert(),
               nb::arg("policy").none().noconvert(), nb::arg("dither").none().noconvert(),
               nb::arg("rows").none().noconvert(),
               nb::arg("columns").none().noconvert(), nb::arg("gains").none().noconvert(),
               nb::arg("values").none().noconvert(), nb::arg("constants").none().noconvert(),
               nb::arg("cost").none().noconvert(), nb::arg("dA").none().noconvert(),
               nb::arg("dB").none().noconvert(), nb::arg("status").noconvert(),
               nb::arg("failed_step").noconvert(), nb::arg("threads"));
    module.def("factor_blocks", &factor_blocks, nb::arg("columns"),
               nb::arg("chosen").noconvert().none(), nb::arg("block"), nb::arg("limit"),
               nb::arg("triangles").noconvert());
    module.attr("processor") = solver == baseline::solve_members ? "baseline" : "avx2";
}
