// Rows taken into four triangles at once, one in each lane of a vector: what most machines of a log ask for.
//
// Nothing is summed across lanes, and four roots or quotients are one. Reflections go over the columns
// in pairs, which halves the traffic with the cache:
//
//   column -= v p, then column -= w q,   p = (vᵀ column) / -βv₁,   q = (wᵀ column - wᵀv p) / -γw₁
//
// Only usual numbers are taken in here. A triangle of others is left as it was, to updates.cpp.
#pragma once

#include "factors.hpp"

#include "householder.hpp"

namespace KERNEL_TARGET {
namespace {

// Four triangles of n columns, packed row by row, and below them a panel of `height` rows; an entry of
// either is four doubles, one of each triangle. Of lane l, the first here[l] rows are some, the others
// zeros.
struct FourLanes {
    double *T, *panel, *steps;
    const std::int64_t *rows[WIDTH];  // where they stand in the table
    std::int64_t here[WIDTH], height, least;
    bool together;  // whether those of each lane stand side by side
    int n;
    Mask good, even;  // which lanes have usual numbers; rows about of one size
    INLINE double *column(int j) const { return panel + WIDTH * j * height; }
};

// Whether rows stand side by side.
INLINE bool side_by_side(const std::int64_t *rows, std::int64_t here) {
    std::int64_t apart = 0;
    for (std::int64_t i = 1; i < here; ++i) apart |= (rows[i] - rows[i - 1]) ^ 1;
    return apart == 0;
}

// A column of the table.
INLINE void lay_out(const FourLanes &four, const double *column, double *to) {
    std::int64_t i = 0;
    for (; four.together && i + WIDTH <= four.least; i += WIDTH) {
        const double *from[WIDTH];
        V entries[WIDTH];
        for (int l = 0; l < WIDTH; ++l) from[l] = column + four.rows[l][i];
        load_transposed(from, entries);
        for (int l = 0; l < WIDTH; ++l) store(to + WIDTH * (i + l), entries[l]);
    }
    for (; i < four.height; ++i)
        for (int l = 0; l < WIDTH; ++l)
            to[WIDTH * i + l] = i < four.here[l] ? column[four.rows[l][i]] : 0.0;
}

// y of the step before, or of the step itself where there is none.
INLINE void lay_out_before(const FourLanes &four, const double *column, const double *y,
                           double *to) {
    const std::int64_t apart = four.together ? 1 : four.height;
    for (std::int64_t i = 0; i < apart; ++i)
        for (int l = 0; l < WIDTH; ++l) {
            const bool some = four.steps[WIDTH * i + l] > 0;  // and so a row
            to[WIDTH * i + l] = some ? column[four.rows[l][i] - 1] : y[WIDTH * i + l];
        }
    for (std::int64_t i = apart; i < four.height; ++i) {
        const V before = load(y + WIDTH * (i - 1)), now = load(y + WIDTH * i);
        store(to + WIDTH * i, choose(load(four.steps + WIDTH * i) > splat(0), before, now));
    }
}

INLINE V sign(V a) {
    const V zero = splat(0), one = splat(1);
    return choose(a > zero, one, choose(a < zero, -one, zero));
}

INLINE V power_of_five(V a) {
    const V zero = splat(0), least = splat(1e-27), most = splat(1e27);
    const V size = absolute(a);
    const V u = choose(size < least, zero, choose(size > most, most * sign(a), a));
    return u * u * (u * u) * u;
}

// All columns of steps, as factors.hpp says.
INLINE void lay_out_steps(const FourLanes &four, const Additions &given) {
    const int y = given.moves, acting = given.acting;
    double *one = four.column(5 * y);
    for (std::int64_t i = 0; i < four.height; ++i)
        for (int l = 0; l < WIDTH; ++l) {
            const bool some = i < four.here[l];
            one[WIDTH * i + l] = some;
            four.steps[WIDTH * i + l] = some ? double(given.steps[four.rows[l][i]]) : 0.0;
        }
    double *turn = four.column(6 * y + 1), *fifth = four.column(7 * y + 1 - acting);
    for (int j = 0; j < y; ++j) {
        double *now = four.column(j), *before = four.column(y + j);
        lay_out(four, given.columns[j], now);
        lay_out_before(four, given.columns[j], now, before);
        double *signs = four.column(2 * y + j), *squares = four.column(3 * y + j);
        double *sizes = four.column(4 * y + j), *aged = four.column(5 * y + 1 + j);
        for (std::int64_t e = 0; e < WIDTH * four.height; e += WIDTH) {
            const V a = load(now + e), size = absolute(a);
            store(signs + e, sign(a)), store(squares + e, a * size), store(sizes + e, size);
            store(aged + e, load(four.steps + e) * a);
            if (j >= acting)
                store(turn + e, sign(a - load(before + e))), store(fifth + e, power_of_five(a));
        }
        if (j >= acting) turn += WIDTH * four.height, fifth += WIDTH * four.height;
    }
    for (int j = 0; j < given.states; ++j)
        lay_out(four, given.columns[y + j], fifth + WIDTH * j * four.height);
}

// Lanes with a number beyond the limit, with one that is tiny but not 0, or with none, are not good.
INLINE void look_at(FourLanes &four, double limit) {
    const V zero = splat(0), tiny = splat(1e-140), far = splat(limit < 1e139 ? limit : 1e139);
    V largest = zero, least = far;
    for (std::int64_t i = 0; i < four.height; ++i) {
        V most = zero;
        Mask odd = zero > zero;
        for (int j = 0; j < four.n; ++j) {
            const V a = absolute(load(four.column(j) + WIDTH * i));
            most = choose(a > most, a, most);
            odd |= ~(a <= far) | ((a > zero) & (a < tiny));
        }
        four.good &= ~odd;
        largest = choose(most > largest, most, largest);
        least = choose((most > zero) & (most < least), most, least);
    }
    four.even = largest <= 1e4 * least;
}

struct Reflection {
    const double *tail;  // v but v₁
    V head, scale;       // v₁, -1 / βv₁
};

// That of column k, whose part in the panel has this square; `t` is its diagonal entry of T, and β goes
// there. A lane is no longer good if a row of T is so small beside the panel that what it says would be
// lost, or says nothing while rows are not even.
INLINE Reflection reflection(FourLanes &four, int k, V square, double *t) {
    const V first = load(t), zero = splat(0);
    const Mask large = square > 1e8 * (first * first);
    if (any(large & four.good)) {
        V size = zero;
        for (int j = 0; j < four.n - k; ++j) {
            const V a = absolute(load(t + WIDTH * j));
            size = choose(a > size, a, size);
        }
        four.good &= ~(large & ((size > zero) | ~four.even) & (square > 1e8 * (size * size)));
    }
    const V norm = root(first * first + square), beta = choose(first > zero, -norm, norm);
    const Mask nothing = square < splat(NOTHING);
    const V head = first - beta;
    store(t, choose(nothing, first, beta));
    return {four.column(k), head, choose(nothing, zero, splat(-1) / (beta * head))};
}

// The squares of x, and x times y.
INLINE void products(const double *x, const double *y, std::int64_t height, V &square, V &product) {
    V p = splat(0), q = p, r = p, s = p;
    std::int64_t e = 0;
    for (; e + 2 * WIDTH <= WIDTH * height; e += 2 * WIDTH) {
        const V a = load(x + e), b = load(x + e + WIDTH);
        p += a * a, q += b * b, r += a * load(y + e), s += b * load(y + e + WIDTH);
    }
    if (e < WIDTH * height) p += load(x + e) * load(x + e), r += load(x + e) * load(y + e);
    square = p + q, product = r + s;
}

// Two reflections of C columns from y on, and of the entries s and t of T above them.
template <int C>
INLINE void reflect(const Reflection &v, const Reflection &w, V cross, double *s, double *t,
                    double *y, std::int64_t height) {
    const std::int64_t next = WIDTH * height;  // column
    V p[C], q[C];
    for (int c = 0; c < C; ++c) p[c] = q[c] = splat(0);
    for (std::int64_t e = 0; e < next; e += WIDTH) {
        const V a = load(v.tail + e), b = load(w.tail + e);
        for (int c = 0; c < C; ++c) {
            const V entry = load(y + c * next + e);
            p[c] += a * entry, q[c] += b * entry;
        }
    }
    for (int c = 0; c < C; ++c) {
        const V above = load(s + WIDTH * c), below = load(t + WIDTH * c);
        p[c] = v.scale * (v.head * above + p[c]);
        q[c] = w.scale * (w.head * below + (q[c] - cross * p[c]));
        store(s + WIDTH * c, above - v.head * p[c]), store(t + WIDTH * c, below - w.head * q[c]);
    }
    for (std::int64_t e = 0; e < next; e += WIDTH) {
        const V a = load(v.tail + e), b = load(w.tail + e);
        for (int c = 0; c < C; ++c) {
            double *entry = y + c * next + e;
            store(entry, load(entry) - p[c] * a - q[c] * b);
        }
    }
}

// Takes the panel into the triangles: only row k of T and the panel take part in reflection k.
INLINE void take_in_panel(FourLanes &four) {
    const int n = four.n;
    const std::int64_t height = four.height;
    double *t = four.T;  // the row of reflection k, from the diagonal on
    for (int k = 0; k < n; k += 2) {
        double *x = four.column(k), *y = k + 1 < n ? four.column(k + 1) : x;
        double *below = t + WIDTH * (n - k);
        V square, cross;
        products(x, y, height, square, cross);
        const Reflection v = reflection(four, k, square, t);
        if (k + 1 == n) break;
        const V above = load(t + WIDTH), p = v.scale * (v.head * above + cross);
        store(t + WIDTH, above - v.head * p);
        for (std::int64_t e = 0; e < WIDTH * height; e += WIDTH)
            store(y + e, load(y + e) - p * load(x + e));
        products(y, x, height, square, cross);
        const Reflection w = reflection(four, k + 1, square, below);
        int j = k + 2;
        for (; j + 4 <= n; j += 4)
            reflect<4>(v, w, cross, t + WIDTH * (j - k), below + WIDTH * (j - k - 1),
                       four.column(j), height);
        for (; j < n; ++j)
            reflect<1>(v, w, cross, t + WIDTH * (j - k), below + WIDTH * (j - k - 1),
                       four.column(j), height);
        t = below + WIDTH * (n - k - 1);
    }
}

// Whether four triangles from number s on take in about as many rows each.
INLINE bool alike(const Additions &given, std::int64_t s) {
    if (s + WIDTH > given.count) return false;
    const std::int64_t before = s ? given.ends[s - 1] : 0;
    std::int64_t most = 0, first = before;
    for (std::int64_t l = s; l < s + WIDTH; first = given.ends[l++])
        most = given.ends[l] - first > most ? given.ends[l] - first : most;
    return most > 0 && given.ends[s + WIDTH - 1] - before >= 3 * most;
}

// Four triangles from number s on take in their rows; which have, the others are as they were.
NOINLINE Mask take_in_four(const Additions &given, std::int64_t s, double *all, double *work) {
    const int n = given.n, numbers = n * (n + 1) / 2;
    FourLanes four;
    four.n = n, four.T = work, four.steps = four.T + WIDTH * numbers;
    four.panel = four.steps + WIDTH * rows_of_four(n);
    double *place[WIDTH];
    std::int64_t left[WIDTH], most = 0;
    for (int l = 0; l < WIDTH; ++l) {
        const std::int64_t first = s + l ? given.ends[s + l - 1] : 0;
        place[l] = all + given.at[s + l] * numbers, four.rows[l] = given.rows + first;
        left[l] = given.ends[s + l] - first, most = left[l] > most ? left[l] : most;
    }
    V size = splat(0);
    int e = 0;
    for (; e + WIDTH <= numbers; e += WIDTH) {
        const double *const from[WIDTH] = {place[0] + e, place[1] + e, place[2] + e, place[3] + e};
        V entries[WIDTH];
        load_transposed(from, entries);
        for (int l = 0; l < WIDTH; ++l) {
            store(four.T + WIDTH * (e + l), entries[l]);
            size += absolute(entries[l]);
        }
    }
    for (; e < numbers; ++e) {
        for (int l = 0; l < WIDTH; ++l) four.T[WIDTH * e + l] = place[l][e];
        size += absolute(load(four.T + WIDTH * e));
    }
    four.good = size > splat(0);  // the first rows of all are reduced by themselves
    for (; most > 0 && any(four.good); most -= rows_of_four(n)) {
        four.height = 0, four.least = rows_of_four(n), four.together = true;
        for (int l = 0; l < WIDTH; ++l) {
            const std::int64_t here = left[l] < rows_of_four(n) ? left[l] : rows_of_four(n);
            four.here[l] = here, four.together &= side_by_side(four.rows[l], here);
            four.height = here > four.height ? here : four.height;
            four.least = here < four.least ? here : four.least;
        }
        if (given.steps)
            lay_out_steps(four, given);
        else
            for (int j = 0; j < n; ++j) lay_out(four, given.columns[j], four.column(j));
        look_at(four, given.limit);
        take_in_panel(four);
        for (int l = 0; l < WIDTH; ++l) four.rows[l] += four.here[l], left[l] -= four.here[l];
    }
    double *t = four.T;  // QR leaves signs free: no diagonal entry is negative
    for (int i = 0; i < n; t += WIDTH * (n - i++)) {
        const V by = choose(load(t) < splat(0), splat(-1), splat(1));
        for (int j = 0; j < n - i; ++j) store(t + WIDTH * j, by * load(t + WIDTH * j));
    }
    for (e = 0; e + WIDTH <= numbers; e += WIDTH) {
        const double *const from[WIDTH] = {four.T + WIDTH * e, four.T + WIDTH * (e + 1),
                                           four.T + WIDTH * (e + 2), four.T + WIDTH * (e + 3)};
        V entries[WIDTH];
        load_transposed(from, entries);
        for (int l = 0; l < WIDTH; ++l)
            if (four.good[l]) store(place[l] + e, entries[l]);
    }
    for (; e < numbers; ++e)
        for (int l = 0; l < WIDTH; ++l)
            if (four.good[l]) place[l][e] = four.T[WIDTH * e + l];
    return four.good;
}

}  // namespace
}  // namespace KERNEL_TARGET
