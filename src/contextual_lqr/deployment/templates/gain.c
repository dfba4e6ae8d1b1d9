/* whether no entry of a and b, weights of the states, differs by more than the tolerance */
static int alike(const real *a, const real *b, real tolerance) {
  for (int i = 0; i < NA; i++)
    for (int j = 0; j < NA; j++) {
      const real size = sqrt{{ f }}(fabs{{ f }}(b[i * NA + i])) * sqrt{{ f }}(fabs{{ f }}(b[j * NA + j]));
      if (!(fabs{{ f }}(a[i * NA + j] - b[i * NA + j]) <= tolerance * size)) return 0;
    }
  return 1;
}

static void symmetric(real *a) {
  for (int i = 0; i < NA; i++)
    for (int j = 0; j < i; j++) a[i * NA + j] = a[j * NA + i] = (a[i * NA + j] + a[j * NA + i]) / 2;
}

/* whether the powers of a, which is lost, go to zero */
static int decays(real *a, real *work, int n) {
  for (int count = 0; count < DOUBLINGS; count++) {
    real largest = 0;
    product(a, a, work, n, n, n);
    copy(work, a, n * n);
    for (int i = 0; i < n * n; i++) largest = fmax{{ f }}(largest, fabs{{ f }}(a[i]));
    if (!all_finite(a, n * n)) return 0;
    if (largest < TOLERANCE) return 1;
  }
  return 0;
}

/* K = -(r + B'PB)^-1 (B'PA + s'), and P' = q + A'PA + (A'PB + s) K; 0 if there is none */
static int riccati_step(const real *A, const real *B, const real *q, const real *r, const real *s, const real *P,
                        real *K, real *next) {
  real PA[NA * NA], PB[NA * NU], S[NU * NU], cross[NU * NA];
  product(P, A, PA, NA, NA, NA);
  product(P, B, PB, NA, NA, NU);
  product_t(B, PB, S, NU, NA, NU);
  product_t(B, PA, cross, NU, NA, NA);
  product_t(A, PA, next, NA, NA, NA);
  for (int i = 0; i < NU * NU; i++) S[i] += r[i];
  for (int i = 0; i < NU; i++)
    for (int j = 0; j < NA; j++) cross[i * NA + j] += s ? s[j * NU + i] : 0;
  copy(cross, K, NU * NA);
  if (!solve(S, K, NU, NA)) return 0;
  for (int i = 0; i < NU * NA; i++) K[i] = -K[i];
  for (int i = 0; i < NA; i++)
    for (int j = 0; j < NA; j++) {
      real sum = q[i * NA + j] + next[i * NA + j];
      for (int k = 0; k < NU; k++) sum += cross[k * NA + i] * K[k * NA + j];
      next[i * NA + j] = sum;
    }
  symmetric(next);
  return all_finite(next, NA * NA);
}

/* P and K of the Riccati equation with the weights q, r, s, by doubling: a, g, P stand for 2^i steps,
 * and P converges quadratically. 0 if it does not, or if the equation is not fulfilled. */
static int riccati(const real *A, const real *B, const real *q, const real *r, const real *s, real *P, real *K) {
  real a[NA * NA], g[NA * NA], w[NA * NA], v[NA * NA], next[NA * NA], S[NU * NU], b[NU * NA];
  int same = 0;
  for (int i = 0; i < NU; i++) /* g = B r^-1 B' */
    for (int j = 0; j < NA; j++) b[i * NA + j] = B[j * NU + i];
  copy(r, S, NU * NU);
  if (!solve(S, b, NU, NA)) return 0;
  product(B, b, g, NA, NU, NA);
  copy(A, a, NA * NA);
  copy(q, P, NA * NA);
  if (s) {
    for (int i = 0; i < NU; i++) /* a = A - B r^-1 s', P = q - s r^-1 s' */
      for (int j = 0; j < NA; j++) b[i * NA + j] = s[j * NU + i];
    copy(r, S, NU * NU);
    if (!solve(S, b, NU, NA)) return 0;
    product(B, b, w, NA, NU, NA);
    product(s, b, v, NA, NU, NA);
    for (int i = 0; i < NA * NA; i++) {
      a[i] -= w[i];
      P[i] -= v[i];
    }
  }
  for (int count = 0; count < DOUBLINGS && !same; count++) {
    product(g, P, w, NA, NA, NA); /* w = I + g P, v = w^-1 g */
    for (int i = 0; i < NA; i++) w[i * NA + i] += 1;
    copy(w, next, NA * NA);
    copy(g, v, NA * NA);
    if (!solve(next, v, NA, NA)) return 0;
    product(a, v, next, NA, NA, NA); /* g + a v a' */
    for (int i = 0; i < NA; i++)
      for (int j = 0; j < NA; j++) {
        real sum = 0;
        for (int k = 0; k < NA; k++) sum += next[i * NA + k] * a[j * NA + k];
        v[i * NA + j] = g[i * NA + j] + sum;
      }
    copy(v, g, NA * NA);
    copy(a, v, NA * NA); /* v = w^-1 a */
    if (!solve(w, v, NA, NA)) return 0;
    product(P, v, w, NA, NA, NA);
    product_t(a, w, next, NA, NA, NA); /* P + a' P v */
    for (int i = 0; i < NA * NA; i++) next[i] += P[i];
    same = alike(P, next, TOLERANCE);
    copy(next, P, NA * NA);
    product(a, v, next, NA, NA, NA);
    copy(next, a, NA * NA);
    symmetric(P);
    symmetric(g);
  }
  same = 0;
  for (int count = 0; count < REFINEMENTS; count++) { /* what rounding has left, and the residual */
    if (!riccati_step(A, B, q, r, s, P, K, next)) return 0;
    same = alike(P, next, TOLERANCE);
    copy(next, P, NA * NA);
  }
  return same;
}
{% if hedged %}

{% include "hedge.c" %}
{% endif %}

/* The gain that is best in the long run{{ ", hedged" if hedged }}; 0 if there is none, or if the loop A + B K is not stable. */
static int stationary_gain(const real *A, const real *B{{ ", const real *C" if hedged }}, real *K{{ ", real *lead" if integrated_names }}) {
  real P[NA * NA], loop[NA * NA], work[NA * NA];
{% if discounted %}
  real a[NA * NA], b[NA * NU]; /* with the discount */
  for (int i = 0; i < NA * NA; i++) a[i] = sqrt{{ f }}(DISCOUNT) * A[i];
  for (int i = 0; i < NA * NU; i++) b[i] = sqrt{{ f }}(DISCOUNT) * B[i];
  if (!riccati(a, b, Q, R, N, P, K)) return 0;
{% if hedged %}
  if (!hedge(a, b, C, P, K)) return 0;
{% endif %}
{% else %}
  if (!riccati(A, B, Q, R, N, P, K)) return 0;
{% if hedged %}
  if (!hedge(A, B, C, P, K)) return 0;
{% endif %}
{% endif %}
{% if integrated_names %}
  for (int i = 0; i < NQ; i++) { /* lead = -Pqq^-1 Pqx */
    for (int j = 0; j < NQ; j++) work[i * NQ + j] = P[(NX + i) * NA + NX + j];
    for (int j = 0; j < NX; j++) lead[i * NX + j] = -P[(NX + i) * NA + j];
  }
  if (!solve(work, lead, NQ, NX)) return 0;
{% endif %}
  product(B, K, loop, NA, NU, NA);
  for (int i = 0; i < NA * NA; i++) loop[i] += A[i];
  return decays(loop, work, NA);
}
