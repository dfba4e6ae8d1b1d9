// Runs the program of the features: values, or exact derivatives by x and u too, which go forward
// with the values. What depends on the context alone is computed once.
#pragma once

#include "program.hpp"
#include "room.hpp"
#include "vector.hpp"

namespace KERNEL_TARGET {
namespace {

class Evaluator {
    const Program program;
    const int y, wide;          // states and inputs: what derivatives are by; in whole vectors
    Room<double> value, slope;  // (registers,) and (registers, wide), 0 beyond y
    Room<char> by;              // (registers, y): what each register depends on
    Room<int> moving;           // the instructions that depend on any
    int moves = 0;

    struct Local {
        double value, first, second;
    };  // and its derivatives by both operands

    Local apply(std::int32_t operation, double a, double b) const {
        switch (operation) {
        case ADD:
            return {a + b, 1, 1};
        case SUBTRACT:
            return {a - b, 1, -1};
        case MULTIPLY:
            return {a * b, b, a};
        case DIVIDE:
            return {a / b, 1 / b, -a / (b * b)};
        case POWER: {
            const double power = std::pow(a, b);
            return {power, b == 0 ? 0 : b * std::pow(a, b - 1), 0};
        }
        case NEGATE:
            return {-a, -1, 0};
        case SQRT:
            return {std::sqrt(a), 0.5 / std::sqrt(a), 0};
        case EXP:
            return {std::exp(a), std::exp(a), 0};
        case LOG:
            return {std::log(a), 1 / a, 0};
        case SIN:
            return {std::sin(a), std::cos(a), 0};
        case COS:
            return {std::cos(a), -std::sin(a), 0};
        case TAN: {
            const double t = std::tan(a);
            return {t, 1 + t * t, 0};
        }
        case TANH: {
            const double t = std::tanh(a);
            return {t, 1 - t * t, 0};
        }
        case ABS:
            return {std::fabs(a), a < 0 ? -1. : a > 0 ? 1. : 0., 0};
        case ASIN:
            return {std::asin(a), 1 / std::sqrt(1 - a * a), 0};
        case ACOS:
            return {std::acos(a), -1 / std::sqrt(1 - a * a), 0};
        case ATAN:
            return {std::atan(a), 1 / (1 + a * a), 0};
        case SINH:
            return {std::sinh(a), std::cosh(a), 0};
        case COSH:
            return {std::cosh(a), std::sinh(a), 0};
        case SIGN:
            return {a < 0 ? -1. : a > 0 ? 1. : a * 0, 0, 0};
        case ATAN2: {
            const double square = a * a + b * b;
            return {std::atan2(a, b), b / square, -a / square};
        }
        case HYPOT: {
            const double size = std::hypot(a, b), by_size = size > 0 ? 1 / size : 0;
            return {size, a * by_size, b * by_size};
        }
        case MINIMUM:
            return {a <= b || a != a ? a : b, double(a <= b), double(!(a <= b))};
        default:
            return {a >= b || a != a ? a : b, double(a >= b), double(!(a >= b))};
        }
    }

    int base() const { return program.variables + program.constants; }

    bool moves_with(int own) const {
        for (int j = 0; j < y; ++j)
            if (by[own * y + j]) return true;
        return false;
    }

  public:
    Evaluator(const Program &given, int states_and_inputs)
        : program(given), y(states_and_inputs), wide((y + 3) / 4 * 4) {
        const int registers = base() + program.length;
        value.resize(registers), slope.resize(std::size_t(registers) * wide);
        by.resize(std::size_t(registers) * y), moving.resize(program.length);
        for (int i = 0; i < y; ++i) by[i * y + i] = 1, slope[i * wide + i] = 1;
        for (int i = 0; i < program.constants; ++i)
            value[program.variables + i] = program.constant[i];
        for (int i = 0; i < program.length; ++i) {
            const std::int32_t *line = program.code + 3 * i;
            for (int j = 0; j < y; ++j)
                by[(base() + i) * y + j] = by[line[1] * y + j] | by[line[2] * y + j];
            if (moves_with(base() + i)) moving[moves++] = i;
        }
    }

    // What follows is of this context.
    void hold(const double *context) {
        for (int i = y; i < program.variables; ++i) value[i] = context[i - y];
        for (int i = 0; i < program.length; ++i) {
            const std::int32_t *line = program.code + 3 * i;
            if (!moves_with(base() + i))
                value[base() + i] = apply(line[0], value[line[1]], value[line[2]]).value;
        }
    }

    void values(const double *x, int d, const double *u, double *phi) {
        for (int i = 0; i < d; ++i) value[i] = x[i];
        for (int i = d; i < y; ++i) value[i] = u[i - d];
        for (int at = 0; at < moves; ++at) {
            const int i = moving[at];
            const std::int32_t *line = program.code + 3 * i;
            const double a = value[line[1]], b = value[line[2]];
            double &out = value[base() + i];
            switch (line[0]) {  // the frequent ones without their derivatives
            case ADD:
                out = a + b;
                break;
            case SUBTRACT:
                out = a - b;
                break;
            case MULTIPLY:
                out = a * b;
                break;
            case DIVIDE:
                out = a / b;
                break;
            case SIN:
                out = std::sin(a);
                break;
            case COS:
                out = std::cos(a);
                break;
            default:
                out = apply(line[0], a, b).value;
            }
        }
        for (int i = 0; i < program.outputs; ++i) phi[i] = value[program.output[i]];
    }

    // φ, and its Jacobian (outputs, y).
    void derivatives(const double *x, int d, const double *u, double *phi, double *jacobian) {
        for (int i = 0; i < d; ++i) value[i] = x[i];
        for (int i = d; i < y; ++i) value[i] = u[i - d];
        for (int at = 0; at < moves; ++at) {
            const int i = moving[at];
            const std::int32_t *line = program.code + 3 * i;
            const int first = line[1], second = line[2], own = base() + i;
            Local local = apply(line[0], value[first], value[second]);
            if (line[0] == POWER && moves_with(second))  // ∂ aᵇ / ∂b
                local.second = local.value * std::log(value[first]);
            value[own] = local.value;
            double *mine = &slope[std::size_t(own) * wide];
            const double *left = &slope[std::size_t(first) * wide];
            const double *right = &slope[std::size_t(second) * wide];
            if (local.second == 0)
                for (int j = 0; j < wide; j += 4) store(mine + j, local.first * load(left + j));
            else
                for (int j = 0; j < wide; j += 4)
                    store(mine + j, local.first * load(left + j) + local.second * load(right + j));
        }
        for (int i = 0; i < program.outputs; ++i) {
            phi[i] = value[program.output[i]];
            for (int j = 0; j < y; ++j)
                jacobian[i * y + j] = slope[std::size_t(program.output[i]) * wide + j];
        }
    }
};

}  // namespace
}  // namespace KERNEL_TARGET
