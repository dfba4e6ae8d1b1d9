// Triangular factors of rows, and the ellipsoid of a factor.
//
// Compiled once for each kind of processor (vector.hpp says with which care).

#include "factors.hpp"

#include "householder.hpp"

namespace KERNEL_TARGET {
namespace {

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

void solve_lower(const double *L, bool shared, std::int64_t count, int q, int k, double *right) {
    for (std::int64_t n = 0; n < count; ++n, right += q * k, L += shared ? 0 : q * q)
        for (int i = 0; i < q; ++i) {
            double *row = right + i * k;
            for (int j = 0; j < i; ++j) {
                const double factor = L[i * q + j], *above = right + j * k;
                for (int c = 0; c < k; ++c) row[c] -= factor * above[c];
            }
            const double pivot = L[i * q + i];
            for (int c = 0; c < k; ++c) row[c] /= pivot;
        }
}

}  // namespace KERNEL_TARGET
