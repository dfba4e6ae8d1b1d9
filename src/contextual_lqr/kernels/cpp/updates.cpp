// Rows taken into many triangles, each of few: what logs of many machines ask for.
//
// A reflection waits for a root and a quotient before it can begin. So some triangles take in their
// rows side by side: while one waits, others reflect.
//
// Compiled once for each kind of processor (vector.hpp says with which care).

#include "four_triangles.hpp"

namespace KERNEL_TARGET {
namespace {

// A triangle T, and below it a panel of rows that it takes in. Rows of T are n + 3 apart and columns of
// the panel `height`, a multiple of four; three more columns are zero.
struct Lane {
    double *T, *panel;
    std::int64_t number, here, height;  // which triangle it is, its rows, and with those of zeros
    bool even, nothing;                 // whether the rows are about of one size; all zeros
    int done;                           // reflections
};

// ‖v‖², `whole` a multiple of four.
INLINE double square(const double *v, std::int64_t whole) {
    V p = splat(0);
    for (std::int64_t i = 0; i < whole; i += 4) p += load(v + i) * load(v + i);
    return sum(p);
}

// Four columns y, `height` apart, and the entries t above them: less v (vᵀ column) / -βv₁ each.
INLINE void reflect_four(double *y, std::int64_t height, double *t, double v0, double scale,
                         const double *v) {
    double *b = y + height, *c = b + height, *d = c + height;
    V p = splat(0), q = p, r = p, s = p;
    for (std::int64_t i = 0; i < height; i += 4) {
        const V w = load(v + i);
        p += w * load(y + i), q += w * load(b + i), r += w * load(c + i), s += w * load(d + i);
    }
    V in[4] = {p, q, r, s}, out[4];
    transpose_four(in, out);
    const V above = load(t), by = scale * (v0 * above + ((out[0] + out[1]) + (out[2] + out[3])));
    store(t, above - v0 * by);
    const V e = splat(by[0]), f = splat(by[1]), g = splat(by[2]), h = splat(by[3]);
    for (std::int64_t i = 0; i < height; i += 4) {
        const V w = load(v + i);
        store(y + i, load(y + i) - e * w), store(b + i, load(b + i) - f * w);
        store(c + i, load(c + i) - g * w), store(d + i, load(d + i) - h * w);
    }
}

// Takes the panels into the triangles: only row k of T and the panel take part in reflection k. All n
// are `done`, or as many as there are before a row of T that is so small beside the panel that what it
// says would be lost in rounding, or that says nothing while rows of the panel are not even.
INLINE void reduce_below(Lane *lanes, int count, int n) {
    double v0[LANES], scale[LANES];
    for (int l = 0; l < count; ++l) lanes[l].done = 0;
    for (int k = 0; k < n; ++k) {
        for (int l = 0; l < count; ++l) {
            Lane &lane = lanes[l];
            scale[l] = 0;
            if (lane.done < k) continue;
            double *t = lane.T + k * (n + 3);
            const double tail = square(lane.panel + k * lane.height, lane.height);
            if (tail > 1e8 * t[k] * t[k]) {
                double size = 0;
                for (int j = k; j < n; ++j) size = std::fabs(t[j]) > size ? std::fabs(t[j]) : size;
                if ((size > 0 || !lane.even) && tail > 1e8 * size * size) continue;
            }
            lane.done = k + 1;
            if (tail < NOTHING) continue;
            const double norm = std::sqrt(t[k] * t[k] + tail);
            const double beta = t[k] > 0 ? -norm : norm;
            v0[l] = t[k] - beta, scale[l] = -1 / (beta * v0[l]), t[k] = beta;
        }
        for (int l = 0; l < count; ++l) {
            if (scale[l] == 0) continue;
            double *t = lanes[l].T + k * (n + 3), *panel = lanes[l].panel;
            const std::int64_t height = lanes[l].height;
            for (int j = k + 1; j < n; j += 4)
                reflect_four(panel + j * height, height, t + j, v0[l], scale[l],
                             panel + k * height);
        }
    }
}

// The largest number of each of 4 B rows of a panel, NaN if there is one; where a number is tiny, not 0.
template <int B>
INLINE Mask sizes_of_rows(const double *panel, std::int64_t height, int n, double *sizes) {
    const V zero = splat(0), least = splat(1e-140);
    V most[B];
    Mask odd[B], tiny = zero > zero;
    for (int b = 0; b < B; ++b) most[b] = zero, odd[b] = tiny;
    for (int j = 0; j < n; ++j)
        for (int b = 0; b < B; ++b) {
            const V a = absolute(load(panel + j * height + 4 * b));
            most[b] = choose(a > most[b], a, most[b]);
            odd[b] |= ~(a == a), tiny |= (a > zero) & (a < least);
        }
    const V nan = splat(std::numeric_limits<double>::quiet_NaN());
    for (int b = 0; b < B; ++b) store(sizes + 4 * b, choose(odd[b], nan, most[b]));
    return tiny;
}

// The same for all rows; whether no number but 0 is tiny.
INLINE bool row_sizes(const double *panel, std::int64_t height, int n, double *sizes) {
    std::int64_t i = 0;
    Mask tiny = splat(0) > splat(0);
    for (; i + 20 <= height; i += 20) tiny |= sizes_of_rows<5>(panel + i, height, n, sizes + i);
    for (; i + 8 <= height; i += 8) tiny |= sizes_of_rows<2>(panel + i, height, n, sizes + i);
    for (; i < height; i += 4) tiny |= sizes_of_rows<1>(panel + i, height, n, sizes + i);
    return !any(tiny);
}

// The triangle of the rows of T and of those of the panel, after so many reflections that are `done`: what
// is left are rows of the other columns, which are sorted. Into T.
INLINE void reduce_all(double *T, const double *panel, std::int64_t height, std::int64_t count,
                       int n, int done, double *work, std::int64_t *order) {
    const int left = n - done;
    double *sizes = work + left * (left + count);
    const auto entry = [&](std::int64_t i, int j) {
        if (i >= left) return panel[(done + j) * height + i - left];
        return j < i ? 0.0 : T[(done + i) * (n + 3) + done + j];
    };
    std::int64_t all = 0;  // that say something
    for (std::int64_t i = 0; i < left + count; ++i) {
        sizes[i] = 0;
        for (int j = 0; j < left; ++j) sizes[i] = larger(sizes[i], std::fabs(entry(i, j)));
        if (sizes[i] > 0) order[all++] = i;
    }
    sort_rows(sizes, all, order);
    for (std::int64_t i = 0; i < all; ++i)
        for (int j = 0; j < left; ++j) work[j * all + i] = entry(order[i], j);
    reduce(work, all, left);
    for (int i = 0; i < left; ++i)
        for (int j = i; j < left; ++j)
            T[(done + i) * (n + 3) + done + j] = i < all ? work[j * all + i] : 0.0;
}

// A column of the rows that go in, and zeros below; rows that stand `together` are copied as they are.
INLINE void lay_out(const double *column, const std::int64_t *rows, std::int64_t here,
                    bool together, double *to, std::int64_t height) {
    if (together) {
        const double *from = column + rows[0];
        std::int64_t i = 0;
        for (; i + 4 <= here; i += 4) store(to + i, load(from + i));
        for (; i < here; ++i) to[i] = from[i];
    } else {
        for (std::int64_t i = 0; i < here; ++i) to[i] = column[rows[i]];
    }
    for (std::int64_t i = here; i < height; ++i) to[i] = 0;
}

// All columns of rows.
INLINE void lay_out_rows(const Additions &given, std::int64_t first, std::int64_t here,
                         double *panel, std::int64_t height) {
    const std::int64_t *rows = given.rows + first;
    const bool together = side_by_side(rows, here);
    for (int j = 0; j < given.n; ++j)
        lay_out(given.columns[j], rows, here, together, panel + j * height, height);
}

// All columns of steps; the first is NaN in rows that are beyond the limit.
INLINE void lay_out_steps(const Additions &given, std::int64_t first, std::int64_t here,
                          double *panel, std::int64_t height) {
    constexpr double squared = 1e75;  // whose square has a square that is a number
    const double limit = given.limit < squared ? given.limit : squared;
    const int y = given.moves, before = y, d = given.states, acting = given.acting;
    const std::int64_t *rows = given.rows + first;
    const bool together = side_by_side(rows, here);
    for (int j = 0; j < y; ++j) {
        const double *column = given.columns[j];
        double *to = panel + j * height, *last = to + before * height;
        lay_out(column, rows, here, together, to, height);
        for (std::int64_t i = 0; i < here; ++i)
            last[i] = given.steps[rows[i]] ? column[rows[i] - 1] : to[i];
        for (std::int64_t i = here; i < height; ++i) last[i] = 0;
        double *sign = last + y * height, *square = sign + y * height, *size = square + y * height;
        double *aged = panel + (5 * y + 1 + j) * height;
        for (std::int64_t i = 0; i < here; ++i) aged[i] = double(given.steps[rows[i]]) * to[i];
        for (std::int64_t i = here; i < height; ++i) aged[i] = 0;
        for (std::int64_t i = 0; i < height; ++i) {
            const double a = to[i];
            size[i] = std::fabs(a), square[i] = a * size[i];
            sign[i] = double(a > 0) - double(a < 0);
        }
    }
    double *one = panel + 5 * y * height, *turn = one + (1 + y) * height;
    double *fifth = turn + (y - acting) * height;
    for (std::int64_t i = 0; i < height; ++i) one[i] = i < here;
    for (int j = acting; j < y; ++j, turn += height, fifth += height) {
        const double *now = panel + j * height, *last = now + before * height;
        for (std::int64_t i = 0; i < height; ++i) {
            turn[i] = double(now[i] > last[i]) - double(now[i] < last[i]);
            double u = now[i] > 1e27 ? 1e27 : now[i] < -1e27 ? -1e27 : now[i];
            u = std::fabs(u) < 1e-27 ? 0.0 : u;
            fifth[i] = u * u * (u * u) * u;
        }
    }
    double *after = fifth;
    for (int j = 0; j < d; ++j)
        lay_out(given.columns[y + j], rows, here, together, after + j * height, height);
    for (std::int64_t i = 0; i < here; ++i) {
        bool within = true;
        for (int j = 0; j < 2 * y; ++j) within &= std::fabs(panel[j * height + i]) <= limit;
        for (int j = 0; j < d; ++j) within &= std::fabs(after[j * height + i]) <= limit;
        if (!within) panel[i] = std::numeric_limits<double>::quiet_NaN();
    }
}

// Lays out rows from the first on below the triangle; rows that do not go in are zeros. False if squares
// leave the range of a double.
INLINE bool lay_out_below(const Additions &given, std::int64_t first, Lane &lane, double *sizes,
                          std::int64_t &used) {
    const double limit = given.steps ? std::numeric_limits<double>::infinity() : given.limit;
    const int n = given.n;
    double *panel = lane.panel;
    if (given.steps)
        lay_out_steps(given, first, lane.here, panel, lane.height);
    else
        lay_out_rows(given, first, lane.here, panel, lane.height);
    bool fit = row_sizes(panel, lane.height, n, sizes);
    for (std::int64_t e = n * lane.height; e < (n + 3) * lane.height; ++e) panel[e] = 0;
    double largest = 0, least = 1e140;  // of rows that say something
    for (std::int64_t i = 0; i < lane.here; ++i) {
        const bool within = sizes[i] <= limit;
        used += within, fit &= !within || sizes[i] < 1e140;
        for (int j = 0; !within && j < n; ++j) panel[j * lane.height + i] = 0;
        if (!within || sizes[i] == 0) continue;
        largest = sizes[i] > largest ? sizes[i] : largest;
        least = sizes[i] < least ? sizes[i] : least;
    }
    lane.even = largest <= 1e4 * least, lane.nothing = largest == 0;
    return fit;
}

}  // namespace

void update_triangles(const Additions &given, std::int64_t most, double *all, std::int64_t *used,
                      double *work, std::int64_t *order) {
    const int n = given.n, width = n + 3, numbers = n * (n + 1) / 2;
    Lane lanes[LANES];
    for (int l = 0; l < LANES; ++l, work += width * (n + most)) {
        lanes[l].T = work, lanes[l].panel = work + n * width;
        for (int e = 0; e < n * width; ++e) work[e] = 0;
    }
    double *sizes = work, *rest = sizes + most, *fours = rest + (n + 1) * (n + most);
    int waiting = 0;
    const auto write = [&](const Lane &lane) {
        double *entry = all + given.at[lane.number] * numbers;
        for (int i = 0; i < n; ++i) {
            const double sign = lane.T[i * width + i] < 0 ? -1 : 1;
            for (int j = i; j < n; ++j) entry[j - i] = sign * lane.T[i * width + j];
            entry += n - i;
        }
    };
    const auto take_in = [&](Lane *some, int count) {
        reduce_below(some, count, n);
        for (Lane *one = some; one < some + count; ++one)
            if (one->done < n)
                reduce_all(one->T, one->panel, one->height, one->here, n, one->done, rest, order);
    };
    const auto all_in = [&] {
        take_in(lanes, waiting);
        for (int l = 0; l < waiting; ++l) write(lanes[l]);
        waiting = 0;
    };
    const auto take_in_one = [&](std::int64_t s) {
        Lane &lane = lanes[waiting];
        std::int64_t first = s ? given.ends[s - 1] : 0;
        const double *entry = all + given.at[s] * numbers;
        bool fit = true, fresh = true, last = false;
        lane.number = s, used[s] = 0;
        for (int i = 0; i < n; entry += n - i++) {
            double *row = lane.T + i * width + i;
            for (int j = 0; j < n - i; ++j) row[j] = entry[j];
            for (int j = 0; fresh && j < n - i; ++j) fresh = entry[j] == 0;
        }
        for (; first < given.ends[s] && fit && !last; first += most) {
            const std::int64_t left = given.ends[s] - first;
            lane.here = left < most ? left : most, lane.height = (lane.here + 3) / 4 * 4;
            fit = lay_out_below(given, first, lane, sizes, used[s]);
            if (!fit) break;
            if (!fresh) {
                last = left <= most;
                if (!last) take_in(&lane, 1);
            } else if (lane.even && used[s] == lane.here) {
                reduce(lane.panel, lane.height, n);
                for (int i = 0; i < n; ++i)
                    for (int j = i; j < n; ++j)
                        lane.T[i * width + j] =
                            i < lane.height ? lane.panel[j * lane.height + i] : 0.0;
            } else {
                reduce_all(lane.T, lane.panel, lane.height, lane.here, n, 0, rest, order);
            }
            fresh &= lane.nothing;
        }
        if (!fit)
            used[s] = -1;
        else if (!last)
            write(lane);
        else if (++waiting == LANES)
            all_in();
    };
    for (std::int64_t s = 0; s < given.count;) {
        if (!alike(given, s)) {
            take_in_one(s++);
            continue;
        }
        const Mask done = take_in_four(given, s, all, fours);
        for (int l = 0; l < WIDTH; ++l, ++s)
            if (done[l])
                used[s] = given.ends[s] - (s ? given.ends[s - 1] : 0);
            else
                take_in_one(s);
    }
    all_in();
}

}  // namespace KERNEL_TARGET
