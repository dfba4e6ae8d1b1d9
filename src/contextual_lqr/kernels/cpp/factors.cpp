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

// The triangle of `height` rows, in place; columns are `height` apart.
INLINE void reduce(double *panel, std::int64_t height, int n) {
    for (int k = 0; k < n && k < height; ++k) {
        double *x = panel + k * height + k;
        const std::int64_t below = height - k - 1;
        const double tail = dot(x + 1, x + 1, below);
        if (tail == 0) continue;
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
    if (most > 1e4 * least)  // largest first, and those of one size as they came
        for (std::int64_t i = 1; i < count; ++i) {
            const std::int64_t row = order[i];
            std::int64_t place = i;
            for (; place > 0 && sizes[order[place - 1]] < sizes[row]; --place)
                order[place] = order[place - 1];
            order[place] = row;
        }
    for (std::int64_t i = 0; i < count; ++i)
        for (int j = 0; j < n; ++j) work[j * count + i] = rows[order[i] * n + j];
    reduce(work, count, n);
    write_triangle(work, count, n, triangle);
    return true;
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
