// Memory of one thread's own, and what else iterative LQR needs of the standard library. Nothing here
// is shared between the kinds of processor that it is compiled for.
#pragma once

#include <cmath>
#include <cstddef>
#include <new>

#include "recursions.hpp"

namespace KERNEL_TARGET {
namespace {

template <class T> class Room {
    T *memory = nullptr;
    std::size_t count = 0;

  public:
    Room() = default;
    Room(const Room &) = delete;
    Room &operator=(const Room &) = delete;
    ~Room() { ::operator delete(memory); }

    void resize(std::size_t wanted) {  // all of it zero
        ::operator delete(memory);
        memory = nullptr, count = 0;
        memory = static_cast<T *>(::operator new(wanted * sizeof(T) + sizeof(T)));
        count = wanted;
        clear();
    }
    void clear() {
        for (std::size_t i = 0; i < count; ++i) memory[i] = T(0);
    }
    void read(const T *from) {
        for (std::size_t i = 0; i < count; ++i) memory[i] = from[i];
    }
    void write(T *to) const {
        for (std::size_t i = 0; i < count; ++i) to[i] = memory[i];
    }
    void swap(Room &other) {
        T *const mine = memory;
        memory = other.memory, other.memory = mine;
    }
    T *data() { return memory; }
    T &operator[](std::size_t i) { return memory[i]; }
    const T &operator[](std::size_t i) const { return memory[i]; }
};

inline void copy(const double *from, int count, double *to) {
    for (int i = 0; i < count; ++i) to[i] = from[i];
}

inline double within(double value, double low, double high) {
    return value < low ? low : value > high ? high : value;
}

inline const double *of(const Operand &operand, std::int64_t member) {
    return operand.data ? operand.data + member * operand.step : nullptr;
}

inline double *of(const Result &result, std::int64_t member) {
    return result.data + member * result.step;
}

}  // namespace
}  // namespace KERNEL_TARGET
