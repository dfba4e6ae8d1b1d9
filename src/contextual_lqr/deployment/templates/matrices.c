/* out = a b, (rows, inner) by (inner, columns) */
static void product(const real *a, const real *b, real *out, int rows, int inner, int columns) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) {
      real sum = 0;
      for (int k = 0; k < inner; k++) sum += a[i * inner + k] * b[k * columns + j];
      out[i * columns + j] = sum;
    }
}

/* out = a' b, (inner, rows)' by (inner, columns) */
static void product_t(const real *a, const real *b, real *out, int rows, int inner, int columns) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) {
      real sum = 0;
      for (int k = 0; k < inner; k++) sum += a[k * rows + i] * b[k * columns + j];
      out[i * columns + j] = sum;
    }
}

/* b = a^-1 b by elimination with partial pivoting; a is lost. 0 if a is singular */
static int solve(real *a, real *b, int n, int columns) {
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++)
      if (fabs{{ f }}(a[i * n + k]) > fabs{{ f }}(a[pivot * n + k])) pivot = i;
    if (!(fabs{{ f }}(a[pivot * n + k]) > 0)) return 0;
    for (int j = 0; pivot != k && j < n; j++) {
      const real kept = a[k * n + j];
      a[k * n + j] = a[pivot * n + j];
      a[pivot * n + j] = kept;
    }
    for (int j = 0; pivot != k && j < columns; j++) {
      const real kept = b[k * columns + j];
      b[k * columns + j] = b[pivot * columns + j];
      b[pivot * columns + j] = kept;
    }
    for (int i = k + 1; i < n; i++) {
      const real factor = a[i * n + k] / a[k * n + k];
      for (int j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
      for (int j = 0; j < columns; j++) b[i * columns + j] -= factor * b[k * columns + j];
    }
  }
  for (int i = n - 1; i >= 0; i--)
    for (int j = 0; j < columns; j++) {
      real sum = b[i * columns + j];
      for (int k = i + 1; k < n; k++) sum -= a[i * n + k] * b[k * columns + j];
      b[i * columns + j] = sum / a[i * n + i];
    }
  return all_finite(b, n * columns);
}
