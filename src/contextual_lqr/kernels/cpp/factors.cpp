// Triangular factors: Householder's QR on columns in the cache, and the ellipsoid of a factor.
//
//   v = x - β e₁,  β = -sign(x₁) ‖x‖,   column -= v (vᵀ column) / -βv₁,   for vᵀv = -2βv₁
//
// Compiled once for each kind of processor (vector.hpp says with which care).

#include "factors.hpp"

#include "vector.hpp"

namespace KERNEL_TARGET {
namespace {

INLINE double dot(const double *a, const double *b, std::int64_t count) {
    V p = {0, 0, 0, 0}, q = p, r = p, s = p;
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        p += load(a + i) * load(b + i), q += load(a + i + 4) * load(b + i + 4);
        r += load(a + i + 8) * load(b + i + 8), s += load(a + i + 12) * load(b + i + 12);
    }
    double rest = 0;
    for (; i < count; ++i) rest += a[i] * b[i];
    return sum((p + q) + (r + s)) + rest;
}

INLINE void subtract(double *a, double factor, const double *v, std::int64_t count) {
    const V f = {factor, factor, factor, factor};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        store(a + i, load(a + i) - f * load(v + i));
        store(a + i + 4, load(a + i + 4) - f * load(v + i + 4));
    }
    for (; i < count; ++i) a[i] -= factor * v[i];
}

// The same for two columns, which share the reading of v; each sum in the order it has above.
INLINE void reflect_two(double *a, double *b, double v0, double scale, const double *v,
                        std::int64_t count) {
    V p = {0, 0, 0, 0}, q = p, r = p, s = p, t = p, u = p, w = p, z = p;
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const V c = load(v + i), d = load(v + i + 4), e = load(v + i + 8), f = load(v + i + 12);
        p += c * load(a + 1 + i), q += d * load(a + 5 + i);
        r += e * load(a + 9 + i), s += f * load(a + 13 + i);
        t += c * load(b + 1 + i), u += d * load(b + 5 + i);
        w += e * load(b + 9 + i), z += f * load(b + 13 + i);
    }
    double more = 0, rest = 0;
    for (; i < count; ++i) more += v[i] * a[1 + i], rest += v[i] * b[1 + i];
    const double x = scale * (v0 * a[0] + (sum((p + q) + (r + s)) + more));
    const double y = scale * (v0 * b[0] + (sum((t + u) + (w + z)) + rest));
    a[0] -= x * v0, b[0] -= y * v0;
    const V g = {x, x, x, x}, h = {y, y, y, y};
    for (i = 0; i + 8 <= count; i += 8) {
        const V c = load(v + i), d = load(v + i + 4);
        store(a + 1 + i, load(a + 1 + i) - g * c), store(a + 5 + i, load(a + 5 + i) - g * d);
        store(b + 1 + i, load(b + 1 + i) - h * c), store(b + 5 + i, load(b + 5 + i) - h * d);
    }
    for (; i < count; ++i) a[1 + i] -= x * v[i], b[1 + i] -= y * v[i];
}

// Squares below it are of no number: callers leave out those below 1e-140. Where rows repeat, each
// reflection leaves the rounding of the one before, 1e-16 times as large, until 1 / (βv₁) is infinite.
constexpr double nothing = 1e-280;

// The triangle of `height` rows, in place; columns are `height` apart.
INLINE void reduce(double *panel, std::int64_t height, int n) {
    for (int k = 0; k < n && k < height; ++k) {
        double *x = panel + k * height + k;
        const std::int64_t below = height - k - 1;
        const double tail = dot(x + 1, x + 1, below);
        if (tail < nothing) continue;
        const double norm = std::sqrt(x[0] * x[0] + tail);
        const double beta = x[0] > 0 ? -norm : norm, v0 = x[0] - beta, scale = -1 / (beta * v0);
        int j = k + 1;
        for (; j + 1 < n; j += 2) {
            double *y = panel + j * height + k;
            reflect_two(y, y + height, v0, scale, x + 1, below);
        }
        if (j < n) {
            double *y = panel + j * height + k;
            const double w = scale * (v0 * y[0] + dot(x + 1, y + 1, below));
            y[0] -= w * v0;
            subtract(y + 1, w, x + 1, below);
        }
        x[0] = beta;
    }
}

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

// Takes a panel of rows into the triangle T above it: only row k of T and the panel take part in
// reflection k. Rows of T are n + 3 apart and columns of the panel `height`, a multiple of four; three
// more columns are zero. Returns how many reflections were made: all n, or as many as there are before
// a row of T that is so small beside the panel that what it says would be lost in rounding, or that
// says nothing while rows of the panel are not `even`.
INLINE int reduce_below(double *T, double *panel, std::int64_t height, int n, bool even) {
    for (int k = 0; k < n; ++k) {
        double *x = panel + k * height, *t = T + k * (n + 3);
        const double tail = square(x, height);
        if (tail < nothing) continue;
        double size = 0;
        for (int j = k; j < n; ++j) size = std::fabs(t[j]) > size ? std::fabs(t[j]) : size;
        if ((size > 0 || !even) && tail > 1e8 * size * size) return k;
        const double norm = std::sqrt(t[k] * t[k] + tail);
        const double beta = t[k] > 0 ? -norm : norm, v0 = t[k] - beta, scale = -1 / (beta * v0);
        for (int j = k + 1; j < n; j += 4)
            reflect_four(panel + j * height, height, t + j, v0, scale, x);
        t[k] = beta;
    }
    return n;
}

// Sorts rows of these sizes, the largest first and those of one size as they came.
INLINE void sort_rows(const double *sizes, std::int64_t count, std::int64_t *order) {
    for (std::int64_t i = 1; i < count; ++i) {
        const std::int64_t row = order[i];
        std::int64_t place = i;
        for (; place > 0 && sizes[order[place - 1]] < sizes[row]; --place)
            order[place] = order[place - 1];
        order[place] = row;
    }
}

// The larger of two; a NaN, once there, stays.
INLINE double larger(double a, double b) { return a >= b || a != a ? a : b; }

// Whether the rows are about of one size, for others must be sorted first, and within the limit.
INLINE bool even(const double *panel, std::int64_t height, int n, double limit, double *sizes) {
    for (std::int64_t i = 0; i < height; ++i) sizes[i] = std::fabs(panel[i]);
    for (int j = 1; j < n; ++j) {
        const double *column = panel + j * height;
        for (std::int64_t i = 0; i < height; ++i) {
            const double a = std::fabs(column[i]);
            sizes[i] = larger(sizes[i], a);
        }
    }
    double least = sizes[0], most = sizes[0];
    for (std::int64_t i = 1; i < height; ++i) {
        least = sizes[i] < least ? sizes[i] : least;
        most = larger(most, sizes[i]);
    }
    return most <= 1e4 * least && most <= limit && least > 1e-100 && most < 1e100;
}

// Writes the upper triangle of a reduced panel row by row, its diagonal not negative.
INLINE void write_triangle(const double *panel, std::int64_t height, int n, double *R) {
    for (int i = 0; i < n; ++i) {
        const double sign = i < height && panel[i * height + i] < 0 ? -1 : 1;
        for (int j = 0; j < n; ++j)
            R[i * n + j] = i <= j && i < height ? sign * panel[j * height + i] : 0.0;
    }
}

}  // namespace

bool factor_blocks(const double *const *columns, int n, const std::int64_t *chosen,
                   std::int64_t rows, std::int64_t block, double limit, double *triangles,
                   double *work) {
    for (std::int64_t first = 0, b = 0; first < rows; first += block, ++b) {
        const std::int64_t height = rows - first < block ? rows - first : block;
        for (int j = 0; j < n; ++j) {
            const double *column = columns[j];
            double *panel = work + j * height;
            if (chosen)
                for (std::int64_t i = 0; i < height; ++i) panel[i] = column[chosen[first + i]];
            else
                for (std::int64_t i = 0; i < height; ++i) panel[i] = column[first + i];
        }
        if (!even(work, height, n, limit, work + n * height)) return false;
        reduce(work, height, n);
        write_triangle(work, height, n, triangles + b * n * n);
    }
    return true;
}

bool factor_rows(const double *rows, std::int64_t count, int n, double *triangle, double *work,
                 std::int64_t *order) {
    double *sizes = work + n * count;
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        double size = 0;
        for (int j = 0; j < n; ++j) {
            const double a = std::fabs(rows[i * n + j]);
            if (a != 0 && !(a > 1e-140 && a < 1e140)) return false;
            size = a > size ? a : size;
        }
        sizes[i] = size, order[i] = i;
        least = size < least ? size : least, most = size > most ? size : most;
    }
    if (most > 1e4 * least) sort_rows(sizes, count, order);
    for (std::int64_t i = 0; i < count; ++i)
        for (int j = 0; j < n; ++j) work[j * count + i] = rows[order[i] * n + j];
    reduce(work, count, n);
    write_triangle(work, count, n, triangle);
    return true;
}

namespace {

// The largest number of each row of a panel, NaN if there is one; whether none but 0 is tiny.
INLINE bool row_sizes(const double *panel, std::int64_t height, int n, double *sizes) {
    V least = splat(1);
    for (std::int64_t i = 0; i < height; i += 4) {
        V most = splat(0);
        Mask number = most == most;
        for (int j = 0; j < n; ++j) {
            const V a = absolute(load(panel + j * height + i));
            most = choose(a > most, a, most), number &= a == a;
            least = choose((a > splat(0)) & (a < least), a, least);
        }
        store(sizes + i, choose(number, most, splat(std::numeric_limits<double>::quiet_NaN())));
    }
    for (int l = 0; l < 4; ++l)
        if (least[l] < 1e-140) return false;
    return true;
}

// The triangle of the rows of T and of those of the panel whose first `done` columns are gone, into T.
INLINE void reduce_all(double *T, const double *panel, std::int64_t height, std::int64_t count,
                       int n, int done, double *work, std::int64_t *order) {
    const std::int64_t all = n + count;
    double *sizes = work + n * all;
    const auto entry = [&](std::int64_t i, int j) {
        if (i < n) return j < i ? 0.0 : T[i * (n + 3) + j];
        return j < done ? 0.0 : panel[j * height + i - n];
    };
    for (std::int64_t i = 0; i < all; ++i) {
        sizes[i] = 0, order[i] = i;
        for (int j = 0; j < n; ++j) sizes[i] = larger(sizes[i], std::fabs(entry(i, j)));
    }
    sort_rows(sizes, all, order);
    for (std::int64_t i = 0; i < all; ++i)
        for (int j = 0; j < n; ++j) work[j * all + i] = entry(order[i], j);
    reduce(work, all, n);
    for (int i = 0; i < n; ++i)
        for (int j = i; j < n; ++j) T[i * (n + 3) + j] = work[j * all + i];
}

}  // namespace

void update_triangles(const double *const *columns, int n, const std::int64_t *rows,
                      const std::int64_t *ends, std::int64_t count, std::int64_t most, double limit,
                      double *packed, std::int64_t *used, double *work, std::int64_t *order) {
    const int width = n + 3;
    double *T = work, *panel = T + n * width, *sizes = panel + width * most, *rest = sizes + most;
    for (int e = 0; e < n * width; ++e) T[e] = 0;
    for (std::int64_t s = 0, first = 0; s < count; ++s, packed += n * (n + 1) / 2) {
        bool fit = true, fresh = true;
        used[s] = 0;
        double *entry = packed;
        for (int i = 0; i < n; ++i)
            for (int j = i; j < n; ++j) fresh &= *entry == 0, T[i * width + j] = *entry++;
        for (; first < ends[s] && fit; first += most) {
            const std::int64_t here = ends[s] - first < most ? ends[s] - first : most;
            const std::int64_t height = (here + 3) / 4 * 4;
            for (int j = 0; j < n; ++j) {
                const double *column = columns[j];
                double *to = panel + j * height;
                for (std::int64_t i = 0; i < here; ++i) to[i] = column[rows[first + i]];
                for (std::int64_t i = here; i < height; ++i) to[i] = 0;
            }
            fit = row_sizes(panel, height, n, sizes);
            for (std::int64_t e = n * height; e < width * height; ++e) panel[e] = 0;
            double largest = 0, least = 1e140;  // of rows that say something
            for (std::int64_t i = 0; i < here; ++i) {
                const bool within = sizes[i] <= limit;
                used[s] += within, fit &= !within || sizes[i] < 1e140;
                for (int j = 0; !within && j < n; ++j) panel[j * height + i] = 0;
                if (!within || sizes[i] == 0) continue;
                largest = sizes[i] > largest ? sizes[i] : largest;
                least = sizes[i] < least ? sizes[i] : least;
            }
            if (!fit) break;
            const bool even = largest <= 1e4 * least;
            if (!fresh) {
                const int done = reduce_below(T, panel, height, n, even);
                if (done < n) reduce_all(T, panel, height, here, n, done, rest, order);
            } else if (even && used[s] == here) {
                reduce(panel, height, n);
                for (int i = 0; i < n; ++i)
                    for (int j = i; j < n; ++j)
                        T[i * width + j] = i < height ? panel[j * height + i] : 0.0;
            } else {
                reduce_all(T, panel, height, here, n, 0, rest, order);
            }
            fresh &= largest == 0;
        }
        first = ends[s];
        if (!fit) {
            used[s] = -1;
            continue;
        }
        entry = packed;
        for (int i = 0; i < n; ++i) {
            const double sign = T[i * width + i] < 0 ? -1 : 1;
            for (int j = i; j < n; ++j) *entry++ = sign * T[i * width + j];
        }
    }
}

void decode(const double *thetas, std::int64_t count, int d, int m, int p, const double *G,
            double *A, double *B, double *work) {
    const int y = d + m, blocks = (y + 3) / 4, width = 4 * blocks;
    double *padded = work, *row = work + p * width;  // G in rows of whole vectors, and one of Θ G
    for (int k = 0; k < p; ++k)
        for (int j = 0; j < width; ++j) padded[k * width + j] = j < y ? G[k * y + j] : 0.0;
    for (std::int64_t r = 0; r < count * d; ++r, thetas += p, A += d, B += m) {
        for (int j = 0; j < width; j += 4) {
            V sum = {0, 0, 0, 0};
            for (int k = 0; k < p; ++k) sum += thetas[k] * load(padded + k * width + j);
            store(row + j, sum);
        }
        for (int j = 0; j < d; ++j) A[j] = row[j];
        for (int j = 0; j < m; ++j) B[j] = row[d + j];
    }
}

void sample_ellipsoid(const double *Y, std::int64_t count, int d, int p, const double *R,
                      const double *centre, double reach, const double *fractions,
                      double *members) {
    for (std::int64_t n = 0; n < count; ++n, Y += d * p, members += d * p) {
        const double size = reach * fractions[n] / std::sqrt(dot(Y, Y, d * p));
        for (int e = 0; e < d * p; ++e) members[e] = Y[e];
        for (int k = p - 1; k >= 0; --k) {  // Y R⁻ᵀ, from the last column on
            const double *row = R + k * p, inverse = 1 / row[k];
            for (int i = 0; i < d; ++i) {
                double *y = members + i * p;
                y[k] = (y[k] - dot(y + k + 1, row + k + 1, p - k - 1)) * inverse;
            }
        }
        for (int e = 0; e < d * p; ++e) members[e] = centre[e] + size * members[e];
    }
}

}  // namespace KERNEL_TARGET
