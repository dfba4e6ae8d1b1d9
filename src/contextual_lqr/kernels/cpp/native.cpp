// The door between NumPy and the compiled recursions: it checks nothing but sizes.
//
// Every operand has one leading batch axis, of the batch's length or 1 (shared by all members).

#include <nanobind/stl/optional.h>

#include <limits>
#include <optional>

#include "door.hpp"
#include "factors.hpp"
#include "roll_out.hpp"
#include "stationary.hpp"
#include "tables.hpp"

namespace {

using Places = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The kernels as they were compiled for one kind of processor.
struct Kernels {
    const char *processor;
    Solver *solve_members;
    Factoring *factor_blocks;
    RowFactoring *factor_rows;
    Updating *update_triangles;
    Sampling *sample_ellipsoid;
    Decoding *decode;
    Doubling *double_members;
    Hashing *row_hashes;
    Digesting *digests;
    Ranging *column_ranges;
    Finding *find_keys;
    Entering *enter_keys;
    Substituting *solve_lower;
};

#define KERNELS(target)                                                                         \
    Kernels {                                                                                   \
        #target, target::solve_members, target::factor_blocks, target::factor_rows,             \
            target::update_triangles, target::sample_ellipsoid, target::decode,                 \
            target::double_members, target::row_hashes, target::digests, target::column_ranges, \
            target::find_keys, target::enter_keys, target::solve_lower                          \
    }

Kernels chosen() {
#if defined(__x86_64__) && defined(KERNEL_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return KERNELS(avx2);
#endif
    return KERNELS(baseline);
}

const Kernels kernels = chosen();

void run(const Problem &problem, int threads) {
    const double d = problem.d, m = problem.m;
    const double each = (3 * d * d * d + 8 * d * d * m) * problem.horizon;
    in_parts(problem.batch, each, threads, [&](std::int64_t first, std::int64_t last) {
        kernels.solve_members(problem, first, last);
    });
}

void recursions(int d, int m, int horizon, std::int64_t batch, const In &A, const In &B,
                const In &Q, const In &R, const In &N, const In &noise, const In &start,
                const In &policy, const In &dither, const In &covariances, const Out &gains,
                const Out &values, const Out &constants, const Out &cost, const Out &dA,
                const Out &dB, nb::ndarray<std::int8_t, nb::c_contig, nb::device::cpu> status,
                nb::ndarray<std::int32_t, nb::c_contig, nb::device::cpu> failed_step, bool refine,
                int threads) {
    if (d < 1 || m < 1 || horizon < 1 || batch < 0)
        throw std::invalid_argument("sizes must be positive");
    const std::int64_t H = horizon, inputs = H - 1, dd = std::int64_t(d) * d;
    const std::int64_t md = std::int64_t(m) * d;
    Problem problem;
    problem.batch = batch, problem.d = d, problem.m = m, problem.horizon = horizon;
    problem.refine = refine;
    problem.A = staged(A, 3, inputs, batch, dd, "A");
    problem.B = staged(B, 3, inputs, batch, md, "B");
    problem.Q = operand(Q, batch, H * dd, "Q");
    problem.R = operand(R, batch, inputs * m * m, "R");
    problem.N = operand(N, batch, inputs * md, "N");
    problem.start = operand(start, batch, d, "start");
    problem.policy = operand(policy, batch, inputs * md, "policy");
    problem.dither = operand(dither, batch, inputs * m * m, "dither");
    problem.covariances =
        staged(covariances, 4, inputs, batch, d * std::int64_t(d + m) * (d + m), "covariances");
    problem.noise = staged(noise, 3, inputs, batch, dd, "noise");
    problem.gains = result(gains, batch, inputs * md, "gains");
    problem.values = result(values, batch, H * dd, "values");
    problem.constants = result(constants, batch, H, "constants");
    problem.cost = result(cost, batch, 1, "cost");
    const std::int64_t each = problem.A.stage ? inputs : 1;
    problem.dA = result(dA, batch, each * dd, "dA");
    problem.dB = result(dB, batch, each * md, "dB");
    if (std::int64_t(status.size()) != batch || std::int64_t(failed_step.size()) != batch)
        throw std::invalid_argument("status has the wrong size for this batch");
    if ((cost.is_valid() || dA.is_valid()) && !start.is_valid())
        throw std::invalid_argument("a cost or gradient needs a start");
    if (A.ndim() != B.ndim()) throw std::invalid_argument("A and B change together");
    if (dA.is_valid() != dB.is_valid()) throw std::invalid_argument("dA and dB go together");
    if (dither.is_valid() && !policy.is_valid())
        throw std::invalid_argument("dither is for a policy that is given");
    if (covariances.is_valid() && dA.is_valid())
        throw std::invalid_argument("there is no gradient for uncertain systems");
    problem.status = status.data(), problem.failed_step = failed_step.data();
    if (batch == 0) return;
    nb::gil_scoped_release unlocked;
    run(problem, threads);
}

// The Riccati equation of a loop that runs on and on, or with m = 0 the Lyapunov equation.
void stationary(int d, int m, std::int64_t batch, const In &A, const In &B, const In &Q,
                const In &R, const In &N, const Out &gain, const Out &value,
                nb::ndarray<std::int8_t, nb::c_contig, nb::device::cpu> status, int threads) {
    require(d >= 1 && m >= 0 && batch >= 0, "sizes must be positive");
    require(std::int64_t(status.size()) == batch, "status has the wrong size for this batch");
    require(m == 0 || (B.is_valid() && R.is_valid() && gain.is_valid()), "B, R, gain go together");
    const std::int64_t dd = std::int64_t(d) * d, md = std::int64_t(m) * d;
    Stationary problem;
    problem.batch = batch, problem.d = d, problem.m = m;
    problem.A = operand(A, batch, dd, "A"), problem.Q = operand(Q, batch, dd, "Q");
    if (m) {
        problem.B = operand(B, batch, md, "B");
        problem.R = operand(R, batch, std::int64_t(m) * m, "R");
        problem.N = operand(N, batch, md, "N");
        problem.gain = result(gain, batch, md, "gain");
    }
    problem.value = result(value, batch, dd, "value");
    problem.status = status.data();
    if (batch == 0) return;
    nb::gil_scoped_release unlocked;
    in_parts(batch, 250. * d * d * d, threads, [&](std::int64_t first, std::int64_t last) {
        kernels.double_members(problem, first, last);
    });
}

// The columns of a table, kept alive, of one length.
struct Table {
    std::vector<In> arrays;
    std::vector<const double *> starts;
    std::int64_t rows = 0;

    explicit Table(const nb::sequence &columns) {
        for (nb::handle one : columns) {
            arrays.push_back(nb::cast<In>(one));
            starts.push_back(arrays.back().data());
            require(arrays.back().ndim() == 1 && arrays.back().size() == arrays[0].size(),
                    "the columns must have one length");
        }
        rows = arrays.empty() ? 0 : std::int64_t(arrays[0].size());
    }

    void require_places(const std::int64_t *places, std::int64_t count) const {
        for (std::int64_t i = 0; i < count; ++i)
            require(places[i] >= 0 && places[i] < rows, "a chosen row is not there");
    }
};

bool factor_blocks(const nb::sequence &columns, const std::optional<Places> &chosen,
                   std::int64_t block, double limit, const Out &triangles) {
    const Table table(columns);
    const auto n = std::int64_t(table.starts.size());
    const std::int64_t *places = chosen ? chosen->data() : nullptr;
    const std::int64_t rows = chosen ? std::int64_t(chosen->size()) : table.rows;
    if (chosen) table.require_places(places, rows);
    require(block >= 1 && std::int64_t(triangles.size()) == (rows + block - 1) / block * n * n,
            "triangles has the wrong size");
    if (n == 0 || rows == 0) return true;
    nb::gil_scoped_release unlocked;
    std::vector<double> work(std::size_t((n + 1) * block));
    return kernels.factor_blocks(table.starts.data(), int(n), places, rows, block, limit,
                                 triangles.data(), work.data());
}

void update_triangles(const nb::sequence &columns, const Places &rows, const Places &ends,
                      double limit, const Out &packed, const Places &at,
                      nb::ndarray<std::int64_t, nb::c_contig, nb::device::cpu> used,
                      const std::optional<Places> &steps, int moves, int acting) {
    const Table table(columns);
    const auto own = std::int64_t(table.starts.size()), count = std::int64_t(ends.size());
    table.require_places(rows.data(), std::int64_t(rows.size()));
    require(!steps ||
                (0 < moves && moves <= own && 0 <= acting && acting <= moves &&
                 std::int64_t(steps->size()) == table.rows && !(table.rows && steps->data()[0])),
            "moves or steps do not fit the columns");
    const std::int64_t states = own - moves, n = steps ? step_columns(moves, states, acting) : own;
    const std::int64_t numbers = n * (n + 1) / 2;
    require(std::int64_t(at.size()) == count && std::int64_t(used.size()) == count,
            "at or used has the wrong size");
    std::int64_t before = 0;
    for (std::int64_t s = 0; s < count; before = ends.data()[s++]) {
        require(ends.data()[s] >= before, "ends must not fall");
        require(at.data()[s] >= 0 && (at.data()[s] + 1) * numbers <= std::int64_t(packed.size()),
                "a triangle is not there");
    }
    require(before == std::int64_t(rows.size()), "the last of ends must be that of rows");
    nb::gil_scoped_release unlocked;
    const auto most = std::min<std::int64_t>(256, (before + 3) / 4 * 4);  // they stay in the cache
    std::vector<double> work(std::size_t(update_room(n, most)));
    std::vector<std::int64_t> order(std::size_t(n + most));
    const Additions given{table.starts.data(),
                          int(n),
                          moves,
                          int(states),
                          acting,
                          steps ? steps->data() : nullptr,
                          rows.data(),
                          ends.data(),
                          at.data(),
                          count,
                          limit};
    kernels.update_triangles(given, most, packed.data(), used.data(), work.data(), order.data());
}

void row_hashes(const nb::sequence &columns,
                nb::ndarray<std::uint64_t, nb::c_contig, nb::device::cpu> found) {
    const Table table(columns);
    require(std::int64_t(found.size()) == table.rows, "found has the wrong size");
    nb::gil_scoped_release unlocked;
    kernels.row_hashes(table.starts.data(), int(table.starts.size()), table.rows, found.data());
}

void column_ranges(const nb::sequence &columns, const Places &rows, const Out &low,
                   const Out &high) {
    const Table table(columns);
    const auto n = table.starts.size(), count = rows.size();
    table.require_places(rows.data(), std::int64_t(count));
    require(count && low.size() == n && high.size() == n, "low or high has the wrong size");
    nb::gil_scoped_release unlocked;
    kernels.column_ranges(table.starts.data(), int(n), rows.data(), std::int64_t(count), low.data(),
                          high.data());
}

using Hashes = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void digests(const Hashes &hashes, const Places &starts,
             nb::ndarray<std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> found) {
    const auto rows = std::int64_t(hashes.size());
    require(found.size() == hashes.size() && (!rows || (starts.size() && !starts.data()[0])),
            "found has the wrong size, or the first stretch does not begin at row 0");
    for (std::size_t s = 0; s < starts.size(); ++s)
        require(starts.data()[s] < rows && (!s || starts.data()[s] > starts.data()[s - 1]),
                "starts must rise");
    kernels.digests(hashes.data(), rows, starts.data(), std::int64_t(starts.size()), found.data());
}

using Slots = nb::ndarray<std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void require_slots(const Slots &table) {
    const std::size_t slots = table.size();
    require(slots && !(slots & (slots - 1)), "the slots of a table must be a power of two");
}

void find_keys(const Hashes &known, const Slots &table, const Hashes &wanted,
               const Numbers &found) {
    require_slots(table);
    require(found.size() == wanted.size(), "found has the wrong size");
    kernels.find_keys({known.data(), table.data(), std::int64_t(table.size())}, wanted.data(),
                      std::int64_t(wanted.size()), found.data());
}

void enter_keys(const Hashes &known, const Slots &table, const Places &places) {
    require_slots(table);
    for (std::size_t i = 0; i < places.size(); ++i)
        require(places.data()[i] >= 0 && places.data()[i] < std::int64_t(known.size()),
                "a key is not there");
    require(places.size() < table.size() && table.size() < (std::size_t(1) << 32),
            "the table is full, or too large");
    kernels.enter_keys({known.data(), table.data(), std::int64_t(table.size())}, places.data(),
                       std::int64_t(places.size()));
}

void solve_lower(const In &L, const Out &right) {
    require(L.ndim() == 3 && right.ndim() == 3 && L.shape(1) == L.shape(2) &&
                L.shape(1) == right.shape(1) && (L.shape(0) == 1 || L.shape(0) == right.shape(0)),
            "the triangles do not fit the right sides");
    nb::gil_scoped_release unlocked;
    kernels.solve_lower(L.data(), L.shape(0) == 1, std::int64_t(right.shape(0)),
                        int(right.shape(1)), int(right.shape(2)), right.data());
}

bool factor_rows(const In &rows, const Out &triangle) {
    require(rows.ndim() == 2, "rows must be a matrix");
    const auto count = std::int64_t(rows.shape(0)), n = std::int64_t(rows.shape(1));
    require(std::int64_t(triangle.size()) == n * n, "triangle has the wrong size");
    std::vector<double> work(std::size_t((n + 1) * count + 1));
    std::vector<std::int64_t> order(std::size_t(count) + 1);
    return kernels.factor_rows(rows.data(), count, int(n), triangle.data(), work.data(),
                               order.data());
}

void sample_ellipsoid(const In &Y, const In &factor, const In &centre, double reach,
                      const In &fractions, const Out &members) {
    require(Y.ndim() == 3, "Y must be a stack of matrices");
    const auto count = Y.shape(0), d = Y.shape(1), p = Y.shape(2);
    require(factor.size() == p * p && centre.size() == d * p && fractions.size() == count &&
                members.size() == count * d * p,
            "the sizes of the ellipsoid do not fit together");
    kernels.sample_ellipsoid(Y.data(), std::int64_t(count), int(d), int(p), factor.data(),
                             centre.data(), reach, fractions.data(), members.data());
}

// The decoder whose machine costs least, its cost, how many cannot be believed, and the gains.
nb::tuple best_decoder(const In &thetas, const In &G, const In &Q, const In &R, const In &N,
                       const In &noise, const In &start, double floor, const Out &gains,
                       int threads) {
    require(thetas.ndim() == 3 && G.ndim() == 2 && Q.ndim() == 3 && R.ndim() == 3 &&
                G.shape(0) == thetas.shape(2),
            "the sizes of the decoders do not fit together");
    const auto n = std::int64_t(thetas.shape(0)), d = std::int64_t(thetas.shape(1)),
               p = std::int64_t(thetas.shape(2)), H = std::int64_t(Q.shape(0)),
               m = std::int64_t(R.shape(1));
    require(std::int64_t(G.shape(1)) == d + m, "G has the wrong size");
    Problem problem;
    problem.batch = n, problem.d = int(d), problem.m = int(m), problem.horizon = int(H);
    problem.Q = operand(Q, 1, H * d * d, "Q"), problem.R = operand(R, 1, (H - 1) * m * m, "R");
    problem.N = operand(N, 1, (H - 1) * d * m, "N");
    problem.noise = operand(noise, 1, d * d, "noise");
    problem.start = operand(start, 1, d, "start");
    problem.refine = false;  // costs are compared only, and most machines are wild
    const Result policy = result(gains, 1, (H - 1) * m * d, "gains");
    std::int64_t best = -1, rejected = 0;
    double least = 0;
    {
        nb::gil_scoped_release unlocked;
        std::vector<double> A(std::size_t(n * d * d)), B(std::size_t(n * d * m));
        std::vector<double> cost(static_cast<std::size_t>(n));
        std::vector<std::int8_t> status(static_cast<std::size_t>(n));
        std::vector<std::int32_t> failed_step(static_cast<std::size_t>(n));
        std::vector<double> work(std::size_t((p + 1) * (d + m + 3)));
        kernels.decode(thetas.data(), n, int(d), int(m), int(p), G.data(), A.data(), B.data(),
                       work.data());
        problem.A = {A.data(), d * d}, problem.B = {B.data(), d * m};
        problem.cost = {cost.data(), 1};
        problem.status = status.data(), problem.failed_step = failed_step.data();
        if (n) run(problem, threads);
        for (std::int64_t i = 0; i < n; ++i) {
            if (!(cost[i] >= floor && cost[i] < std::numeric_limits<double>::infinity()))
                ++rejected;
            else if (best < 0 || cost[i] < least)
                best = i, least = cost[i];
        }
        if (best >= 0) {  // once more, with its gains
            problem.A = {A.data() + best * d * d, 0}, problem.B = {B.data() + best * d * m, 0};
            problem.batch = 1, problem.gains = policy, problem.cost = {};
            run(problem, 1);
        }
    }
    return nb::make_tuple(best, least, rejected);
}

int play(const In &A, const In &B, const In &gains, const In &offsets, const In &shocks,
         const In &bound, const Out &states, const Out &inputs) {
    require(gains.ndim() == 3, "gains must have three axes");
    const auto steps = gains.shape(0), m = gains.shape(1), d = gains.shape(2);
    const auto stages = A.ndim() == 3 ? steps : 1;
    require(A.size() == stages * d * d && B.size() == stages * d * m &&
                shocks.size() == steps * d && states.size() == (steps + 1) * d &&
                inputs.size() == steps * m &&
                (!offsets.is_valid() || offsets.size() == steps * m) &&
                (!bound.is_valid() || bound.size() == d),
            "the sizes of the episode do not fit together");
    Episode episode;
    episode.d = int(d), episode.m = int(m), episode.steps = int(steps);
    episode.A = A.data(), episode.B = B.data(), episode.gains = gains.data();
    episode.varying = A.ndim() == 3;
    episode.offsets = offsets.is_valid() ? offsets.data() : nullptr;
    episode.bound = bound.is_valid() ? bound.data() : nullptr;
    episode.shocks = shocks.data(), episode.states = states.data(), episode.inputs = inputs.data();
    return roll_out(episode);
}

}  // namespace

NB_MODULE(native, module) {
    module.doc() = "The recursions of reference.py, compiled.";
    // Operands may lie in memory as they like: what is not in rows of doubles is copied. Results are
    // not converted: a copy would be filled and lost.
    module.def("recursions", &recursions, nb::arg("d"), nb::arg("m"), nb::arg("horizon"),
               nb::arg("batch"), nb::arg("A"), nb::arg("B"), nb::arg("Q"), nb::arg("R"),
               nb::arg("N").none(), nb::arg("noise").none(), nb::arg("start").none(),
               nb::arg("policy").none(), nb::arg("dither").none(), nb::arg("covariances").none(),
               nb::arg("gains").none().noconvert(), nb::arg("values").none().noconvert(),
               nb::arg("constants").none().noconvert(), nb::arg("cost").none().noconvert(),
               nb::arg("dA").none().noconvert(), nb::arg("dB").none().noconvert(),
               nb::arg("status").noconvert(), nb::arg("failed_step").noconvert(), nb::arg("refine"),
               nb::arg("threads"));
    module.def("factor_blocks", &factor_blocks, nb::arg("columns"), nb::arg("chosen").none(),
               nb::arg("block"), nb::arg("limit"), nb::arg("triangles").noconvert());
    module.def("update_triangles", &update_triangles, nb::arg("columns"), nb::arg("rows"),
               nb::arg("ends"), nb::arg("limit"), nb::arg("packed").noconvert(), nb::arg("at"),
               nb::arg("used").noconvert(), nb::arg("steps").none(), nb::arg("moves"),
               nb::arg("acting"));
    module.def("row_hashes", &row_hashes, nb::arg("columns"), nb::arg("found").noconvert());
    module.def("digests", &digests, nb::arg("hashes"), nb::arg("starts"),
               nb::arg("found").noconvert());
    module.def("column_ranges", &column_ranges, nb::arg("columns"), nb::arg("rows"),
               nb::arg("low").noconvert(), nb::arg("high").noconvert());
    module.def("find_keys", &find_keys, nb::arg("known"), nb::arg("table").noconvert(),
               nb::arg("wanted"), nb::arg("found").noconvert());
    module.def("enter_keys", &enter_keys, nb::arg("known"), nb::arg("table").noconvert(),
               nb::arg("places"));
    module.def("solve_lower", &solve_lower, nb::arg("L"), nb::arg("right").noconvert());
    module.def("factor_rows", &factor_rows, nb::arg("rows"), nb::arg("triangle").noconvert());
    module.def("sample_ellipsoid", &sample_ellipsoid, nb::arg("Y"), nb::arg("factor"),
               nb::arg("centre"), nb::arg("reach"), nb::arg("fractions"),
               nb::arg("members").noconvert());
    module.def("best_decoder", &best_decoder, nb::arg("thetas"), nb::arg("G"), nb::arg("Q"),
               nb::arg("R"), nb::arg("N").none(), nb::arg("noise"), nb::arg("start"),
               nb::arg("floor"), nb::arg("gains").noconvert(), nb::arg("threads"));
    module.def("roll_out", &play, nb::arg("A"), nb::arg("B"), nb::arg("gains"),
               nb::arg("offsets").none(), nb::arg("shocks"), nb::arg("bound").none(),
               nb::arg("states").noconvert(), nb::arg("inputs").noconvert());
    module.def("stationary", &stationary, nb::arg("d"), nb::arg("m"), nb::arg("batch"),
               nb::arg("A"), nb::arg("B").none(), nb::arg("Q"), nb::arg("R").none(),
               nb::arg("N").none(), nb::arg("gain").none().noconvert(),
               nb::arg("value").noconvert(), nb::arg("status").noconvert(), nb::arg("threads"));
    add_ilqr(module, std::string(kernels.processor) == "avx2");
    module.attr("processor") = kernels.processor;
}
