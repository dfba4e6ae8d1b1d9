/* The state and input at rest at the target, (A - I) x + B u + offset = 0 and x[HELD] = target, and of
 * these the cheapest: x and u with multipliers, by elimination with complete pivoting of the equations
 * in equal sizes. 0 if nothing is at rest there{{ " within the limits of the inputs" if not measured_names }}. */
static int at_rest(const real *A, const real *B, const real *offset, const real *target, real *x, real *u) {
  real a[NK * NK], b[NK], size[NK], z[NK], largest = 0;
  int order[NK], rank = 0;
  for (int i = 0; i < NK * NK; i++) a[i] = 0;
  for (int i = 0; i < NK; i++) b[i] = 0, size[i] = 1, order[i] = i, z[i] = 0;
  for (int i = 0; i < NX; i++) {
    const int row = NX + NU + i;
    for (int j = 0; j < NX; j++) {
      a[i * NK + j] = Q[i * NA + j];
      a[row * NK + j] = a[j * NK + row] = A[i * NX + j] - (i == j ? 1 : 0);
    }
    for (int j = 0; j < NU; j++) a[row * NK + NX + j] = a[(NX + j) * NK + row] = B[i * NU + j];
    b[row] = -offset[i];
  }
  for (int i = 0; i < NU; i++)
    for (int j = 0; j < NU; j++) a[(NX + i) * NK + NX + j] = R[i * NU + j];
{% if target_names %}
  for (int i = 0; i < NR; i++) {
    const int row = 2 * NX + NU + i;
    a[row * NK + HELD[i]] = a[HELD[i] * NK + row] = 1;
    b[row] = target[i];
    for (int j = 0; j < NX; j++) b[j] += Q[j * NA + HELD[i]] * target[i];
  }
{% else %}
  (void)target;
{% endif %}
  for (int count = 0; count < {{ equilibrations }}; count++) { /* rows and columns to equal sizes */
    real factor[NK];
    for (int i = 0; i < NK; i++) {
      real most = 0;
      for (int j = 0; j < NK; j++)
        most = fmax{{ f }}(most, fabs{{ f }}(size[i] * a[i * NK + j] * size[j]));
      factor[i] = most > 0 ? 1 / sqrt{{ f }}(most) : 1;
    }
    for (int i = 0; i < NK; i++) size[i] *= factor[i];
  }
  for (int i = 0; i < NK; i++) {
    for (int j = 0; j < NK; j++) a[i * NK + j] *= size[i] * size[j];
    b[i] *= size[i];
  }
  for (rank = 0; rank < NK; rank++) {
    int row = rank, column = rank;
    for (int i = rank; i < NK; i++)
      for (int j = rank; j < NK; j++)
        if (fabs{{ f }}(a[i * NK + j]) > fabs{{ f }}(a[row * NK + column])) row = i, column = j;
    if (!(fabs{{ f }}(a[row * NK + column]) > {{ singular }})) break;
    for (int j = 0; row != rank && j < NK; j++) {
      const real kept = a[rank * NK + j];
      a[rank * NK + j] = a[row * NK + j];
      a[row * NK + j] = kept;
    }
    if (row != rank) {
      const real kept = b[rank];
      b[rank] = b[row];
      b[row] = kept;
    }
    if (column != rank) {
      const int kept = order[rank];
      for (int i = 0; i < NK; i++) {
        const real entry = a[i * NK + rank];
        a[i * NK + rank] = a[i * NK + column];
        a[i * NK + column] = entry;
      }
      order[rank] = order[column];
      order[column] = kept;
    }
    for (int i = rank + 1; i < NK; i++) {
      const real factor = a[i * NK + rank] / a[rank * NK + rank];
      for (int j = rank + 1; j < NK; j++) a[i * NK + j] -= factor * a[rank * NK + j];
      b[i] -= factor * b[rank];
    }
  }
  for (int i = rank - 1; i >= 0; i--) {
    real sum = b[i];
    for (int j = i + 1; j < rank; j++) sum -= a[i * NK + j] * z[order[j]];
    z[order[i]] = sum / a[i * NK + i];
  }
  for (int i = 0; i < NX; i++) x[i] = z[i] * size[i];
  for (int i = 0; i < NU; i++) u[i] = z[NX + i] * size[NX + i];
  if (!all_finite(x, NX) || !all_finite(u, NU)) return 0;
  for (int i = 0; i < NX + NU; i++) largest = fmax{{ f }}(largest, fabs{{ f }}(z[i]));
  for (int i = 0; i < NX; i++) { /* is it at rest there? */
    real moved = offset[i] - x[i];
    for (int j = 0; j < NX; j++) moved += A[i * NX + j] * x[j];
    for (int j = 0; j < NU; j++) moved += B[i * NU + j] * u[j];
    if (!(size[NX + NU + i] * fabs{{ f }}(moved) <= {{ unheld }} * largest)) return 0;
  }
{% if target_names %}
  for (int i = 0; i < NR; i++)
    if (!(size[2 * NX + NU + i] * fabs{{ f }}(x[HELD[i]] - target[i]) <= {{ unheld }} * largest)) return 0;
{% endif %}
{% if not measured_names %}
  for (int i = 0; i < NU; i++) {
    const real room = {{ unheld }} * fabs{{ f }}(u[i]);
    if (!(u[i] >= LOWEST[i] - room && u[i] <= HIGHEST[i] + room)) return 0;
  }
{% endif %}
  return 1;
}
{% if measured_names %}

/* How rest moves with each disturbance, at a target of 0; 0 if no input balances one. */
static int slopes(controller *c) {
  const real still[NR + 1] = {0};
  real column[NX], x[NX], u[NU];
  for (int k = 0; k < NW; k++) {
    for (int i = 0; i < NX; i++) column[i] = c->W[i * NW + k];
    if (!at_rest(c->A, c->B, column, still, x, u)) return 0;
    for (int i = 0; i < NX; i++) c->x_slope[i * NW + k] = x[i];
    for (int i = 0; i < NU; i++) c->u_slope[i * NW + k] = u[i];
  }
  return 1;
}
{% endif %}
