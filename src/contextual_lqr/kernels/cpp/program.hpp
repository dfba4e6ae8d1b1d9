// Features φ(x, u, context) as a list of instructions.
//
// Registers: the variables (states, inputs, then the numbers of the context), the constants, and one
// for the result of each instruction.
#pragma once

#include <cstdint>

enum Operation : std::int32_t {
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    POWER,
    NEGATE,
    SQRT,
    EXP,
    LOG,
    SIN,
    COS,
    TAN,
    TANH,
    ABS,
    ASIN,
    ACOS,
    ATAN,
    SINH,
    COSH,
    SIGN,
    ATAN2,
    HYPOT,
    MINIMUM,
    MAXIMUM,
    OPERATIONS
};

struct Program {
    int variables = 0, constants = 0, length = 0, outputs = 0;
    const double *constant = nullptr;
    const std::int32_t *code = nullptr;    // (length, 3): operation, first and second register
    const std::int32_t *output = nullptr;  // the registers that are features
};
