// The door between NumPy and iterative LQR: it checks nothing but sizes.

#include "door.hpp"
#include "ilqr.hpp"

namespace {

using Codes = nb::ndarray<const std::int32_t, nb::c_contig, nb::device::cpu>;
using Statuses = nb::ndarray<std::int8_t, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<std::int32_t, nb::c_contig, nb::device::cpu>;

Descending *descend = baseline::descend_members;
Passing *pass = baseline::pass_members;

// The features of a batch: (code, constants, outputs, context variables).
Program program_of(const Codes &code, const In &constants, const Codes &outputs, int variables) {
    Program program;
    program.variables = variables, program.constants = int(constants.size());
    program.length = int(code.size() / 3), program.outputs = int(outputs.size());
    program.code = code.data(), program.constant = constants.data();
    program.output = outputs.data();
    const int base = variables + program.constants;
    require(code.size() % 3 == 0, "a line of a program has three numbers");
    for (int i = 0; i < program.length; ++i) {
        const std::int32_t *line = program.code + 3 * i;
        require(line[0] >= 0 && line[0] < OPERATIONS, "a program has an unknown operation");
        for (int operand : {line[1], line[2]})
            require(operand >= 0 && operand < base + i, "a program reads what is not yet there");
    }
    for (int i = 0; i < program.outputs; ++i)
        require(program.output[i] >= 0 && program.output[i] < base + program.length,
                "a feature is not there");
    return program;
}

// The part of a problem that both doors take, as a tuple of arrays (kernels/bindings.py).
Descent problem_of(const nb::tuple &sizes, const nb::tuple &given, const In &period) {
    Descent problem;
    const auto number = [&](int i) { return nb::cast<std::int64_t>(sizes[i]); };
    const std::int64_t n = number(0), d = number(1), m = number(2), p = number(3), H = number(4);
    require(n >= 0 && d >= 1 && m >= 1 && p >= 1 && H >= 1, "sizes must be positive");
    problem.batch = n, problem.d = int(d), problem.m = int(m), problem.p = int(p);
    problem.horizon = int(H);
    const auto array = [&](int i, std::int64_t each, const char *name) {
        return given[i].is_none() ? Operand{} : operand(nb::cast<In>(given[i]), n, each, name);
    };
    problem.theta = array(0, d * p, "theta");
    problem.covariances = array(1, d * p * p, "covariances");
    problem.Q = array(2, H * d * d, "Q"), problem.R = array(3, (H - 1) * m * m, "R");
    problem.N = array(4, (H - 1) * d * m, "N");
    problem.target = array(5, H * d, "target");
    problem.input_target = array(6, (H - 1) * m, "input_target");
    problem.low = array(7, m, "low"), problem.high = array(8, m, "high");
    require(std::int64_t(period.size()) == d, "period has the wrong size");
    require(problem.theta.data && problem.Q.data && problem.R.data && problem.target.data &&
                problem.input_target.data && !problem.low.data == !problem.high.data,
            "something is missing");
    problem.period = period.data();
    return problem;
}

// `given` and `made` hold what is kept alive by their caller.
void ilqr(const nb::tuple &sizes, const nb::tuple &given, const In &period, const Codes &code,
          const In &constants, const Codes &outputs, const In &contexts, const In &start,
          const In &guess, const In &path, const In &feedback, int iterations, double tolerance,
          const Out &states, const Out &inputs, const Out &gains, const Out &cost, const Out &hedge,
          Statuses status, Counts used, int threads) {
    Descent problem = problem_of(sizes, given, period);
    const std::int64_t n = problem.batch, d = problem.d, m = problem.m, H = problem.horizon;
    const std::int64_t c = contexts.ndim() == 2 ? std::int64_t(contexts.shape(1)) : -1;
    require(c >= 0, "contexts must be a matrix");
    problem.program = program_of(code, constants, outputs, int(d + m + c));
    require(problem.program.outputs == problem.p, "a program has the wrong number of features");
    if (c) problem.contexts = operand(contexts, n, c, "contexts");
    problem.start = operand(start, n, d, "start");
    problem.guess = operand(guess, n, (H - 1) * m, "guess");
    problem.path = operand(path, n, H * d, "path");
    problem.feedback = operand(feedback, n, (H - 1) * m * d, "feedback");
    require(!problem.path.data == !problem.feedback.data, "path and feedback go together");
    problem.iterations = iterations, problem.tolerance = tolerance;
    problem.states = result(states, n, H * d, "states");
    problem.inputs = result(inputs, n, (H - 1) * m, "inputs");
    problem.gains = result(gains, n, (H - 1) * m * d, "gains");
    problem.cost = result(cost, n, 1, "cost"), problem.hedge = result(hedge, n, 1, "hedge");
    require(std::int64_t(status.size()) == n && std::int64_t(used.size()) == n,
            "status has the wrong size for this batch");
    problem.status = status.data(), problem.used = used.data();
    nb::gil_scoped_release unlocked;
    const double each = 20. * double(H) * double((d + m) * (d + m) * d + problem.program.length);
    in_parts(n, each, threads,
             [&](std::int64_t first, std::int64_t last) { descend(problem, first, last); });
}

void backward(const nb::tuple &sizes, const nb::tuple &given, const In &period, const In &states,
              const In &inputs, const In &features, const In &jacobians, const In &damping,
              const Out &offsets, const Out &gains, const Out &expected, const Out &weights,
              const Out &hedge, Statuses status, int threads) {
    Pass one;
    one.problem = problem_of(sizes, given, period);
    const std::int64_t n = one.problem.batch, d = one.problem.d, m = one.problem.m;
    const std::int64_t T = one.problem.horizon - 1;
    const std::int64_t p = one.problem.p;
    one.states = operand(states, n, (T + 1) * d, "states");
    one.inputs = operand(inputs, n, T * m, "inputs");
    one.features = operand(features, n, T * p, "features");
    one.jacobians = operand(jacobians, n, T * p * (d + m), "jacobians");
    require(std::int64_t(damping.size()) == n && std::int64_t(status.size()) == n,
            "damping or status has the wrong size for this batch");
    one.damping = damping.data(), one.status = status.data();
    one.offsets = result(offsets, n, T * m, "offsets");
    one.gains = result(gains, n, T * m * d, "gains");
    one.expected = result(expected, n, 2, "expected");
    one.weights = result(weights, n, T * d, "weights");
    one.hedge = result(hedge, n, 1, "hedge");
    nb::gil_scoped_release unlocked;
    const double each = double(T) * double((d + m) * (d + m) * d);
    in_parts(n, each, threads,
             [&](std::int64_t first, std::int64_t last) { pass(one, first, last); });
}

}  // namespace

void add_ilqr(nb::module_ &module, bool quick) {
#if defined(__x86_64__) && defined(KERNEL_AVX2)
    if (quick) descend = avx2::descend_members, pass = avx2::pass_members;
#else
    (void)quick;
#endif
    module.def(
        "ilqr", &ilqr, nb::arg("sizes"), nb::arg("given"), nb::arg("period"), nb::arg("code"),
        nb::arg("constants"), nb::arg("outputs"), nb::arg("contexts"), nb::arg("start"),
        nb::arg("guess"), nb::arg("path").none(), nb::arg("feedback").none(), nb::arg("iterations"),
        nb::arg("tolerance"), nb::arg("states").noconvert(), nb::arg("inputs").noconvert(),
        nb::arg("gains").noconvert(), nb::arg("cost").noconvert(), nb::arg("hedge").noconvert(),
        nb::arg("status").noconvert(), nb::arg("used").noconvert(), nb::arg("threads"));
    module.def("ilqr_backward", &backward, nb::arg("sizes"), nb::arg("given"), nb::arg("period"),
               nb::arg("states"), nb::arg("inputs"), nb::arg("features"), nb::arg("jacobians"),
               nb::arg("damping"), nb::arg("offsets").noconvert(), nb::arg("gains").noconvert(),
               nb::arg("expected").noconvert(), nb::arg("weights").noconvert(),
               nb::arg("hedge").noconvert(), nb::arg("status").noconvert(), nb::arg("threads"));
}
