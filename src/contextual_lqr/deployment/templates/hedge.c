/* The covariances of the rows HEDGED of [A, B] that the gain hedges against: those of the machines about
 * their law, and that of the law, with a half that is the sum over features of feature times matrix. */
static void covariances(const real *features, real *C) {
  real half[ND * NZ], gram[NZ * NZ];
  for (int g = 0; g < NG; g++) {
    for (int i = 0; i < ND * NZ; i++) {
      half[i] = 0;
      for (int k = 0; k < NF; k++) half[i] += features[k] * DOUBT[(g * NF + k) * ND * NZ + i];
    }
    product_t(half, half, gram, NZ, ND, NZ);
    for (int h = 0; h < NH; h++)
      for (int i = 0; GROUP[h] == g && i < NZ * NZ; i++) C[h * NZ * NZ + i] = SCALE[h] * gram[i]{{ " + SPREAD[h * NZ * NZ + i]" if spread }};
  }
}

/* The weights q, r, s of [x; q], u and both with the sum over rows h of P_hh C_h added. */
static void weigh(const real *P, const real *C, real *q, real *r, real *s) {
  copy(Q, q, NA * NA);
  copy(R, r, NU * NU);
  for (int i = 0; i < NA * NU; i++) s[i] = N ? N[i] : 0;
  for (int h = 0; h < NH; h++, C += NZ * NZ) {
    const real p = P[HEDGED[h] * (NA + 1)];
    for (int i = 0; i < NX; i++) {
      for (int j = 0; j < NX; j++) q[i * NA + j] += p * C[i * NZ + j];
      for (int j = 0; j < NU; j++) s[i * NU + j] += p * C[i * NZ + NX + j];
    }
    for (int i = 0; i < NU; i++)
      for (int j = 0; j < NU; j++) r[i * NU + j] += p * C[(NX + i) * NZ + NX + j];
  }
}

/* P of the gain K on a machine whose rows h vary by C_h: with L(V) = V + F'L(V)F, F = A + B K, and p the
 * diagonal of P, P = L(weights) + sum of p_h L(varied_h). 0 if the gain does not hold this machine. */
static int value(const real *A, const real *B, const real *C, const real *K, real *P) {
  real L[(NH + 1) * NA * NA], F[NA * NA], work[NA * NA], moved[NA * NA], Y[NZ * NA], CY[NZ * NA], T[NH * NH], again[NH * NH], powers[NH * NH], p[NH];
  int settled = 0;
  product(B, K, F, NA, NU, NA);
  for (int i = 0; i < NA * NA; i++) F[i] += A[i];
  for (int i = 0; i < NX * NA; i++) Y[i] = i / NA == i % NA ? 1 : 0; /* of the states and inputs, by [x; q] */
  copy(K, Y + NX * NA, NU * NA);
  product(R, K, CY, NU, NU, NA); /* Q + K'(R K + N') + N K */
  for (int i = 0; N && i < NU; i++)
    for (int j = 0; j < NA; j++) CY[i * NA + j] += 2 * N[j * NU + i];
  product_t(K, CY, L, NA, NU, NA);
  for (int i = 0; i < NA * NA; i++) L[i] += Q[i];
  symmetric(L);
  for (int h = 0; h < NH; h++) {
    product(C + h * NZ * NZ, Y, CY, NZ, NZ, NA);
    product_t(Y, CY, L + (h + 1) * NA * NA, NA, NZ, NA);
  }
  for (int count = 0; count < DOUBLINGS && !settled; count++) {
    real largest = 0;
    for (int h = 0; h <= NH; h++) { /* L + F' L F */
      product(L + h * NA * NA, F, work, NA, NA, NA);
      product_t(F, work, moved, NA, NA, NA);
      for (int i = 0; i < NA * NA; i++) L[h * NA * NA + i] += moved[i];
    }
    product(F, F, work, NA, NA, NA);
    copy(work, F, NA * NA);
    for (int i = 0; i < NA * NA; i++) largest = fmax{{ f }}(largest, fabs{{ f }}(F[i]));
    if (!all_finite(F, NA * NA)) return 0;
    settled = largest < TOLERANCE;
  }
  if (!settled || !all_finite(L, (NH + 1) * NA * NA)) return 0;
  for (int j = 0; j < NH; j++)
    for (int h = 0; h < NH; h++) T[j * NH + h] = L[(h + 1) * NA * NA + HEDGED[j] * (NA + 1)];
  copy(T, again, NH * NH);
  if (!decays(again, powers, NH)) return 0;
  for (int j = 0; j < NH; j++) { /* p = (I - T)^-1 diag L(weights) */
    for (int h = 0; h < NH; h++) T[j * NH + h] = (j == h ? 1 : 0) - T[j * NH + h];
    p[j] = L[HEDGED[j] * (NA + 1)];
  }
  if (!solve(T, p, NH, 1)) return 0;
  copy(L, P, NA * NA);
  for (int h = 0; h < NH; h++)
    for (int i = 0; i < NA * NA; i++) P[i] += p[h] * L[(h + 1) * NA * NA + i];
  symmetric(P);
  return all_finite(P, NA * NA);
}

/* From P and K of the machine as expected to those of the machine that varies, by Newton's method; until a
 * gain holds it, with weights held fixed. */
static int hedge(const real *A, const real *B, const real *C, real *P, real *K) {
  real next[NA * NA], q[NA * NA], r[NU * NU], s[NA * NU], unused[NA * NA];
  for (int count = 0; count < HEDGINGS; count++) {
    const int holds = value(A, B, C, K, next);
    int same = holds;
    if (!holds) {
      weigh(P, C, q, r, s);
      if (!riccati(A, B, q, r, s, next, K)) return 0;
    }
    weigh(next, C, q, r, s);
    if (!riccati_step(A, B, q, r, s, next, K, unused)) return 0;
    for (int i = 0; i < NA; i++)
      if (!(fabs{{ f }}(next[i * (NA + 1)] - P[i * (NA + 1)]) <= SETTLED * next[i * (NA + 1)])) same = 0;
    copy(next, P, NA * NA);
    if (same) return 1;
  }
  return 0;
}
