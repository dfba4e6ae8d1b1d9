{% if root is defined %}

/* How far the features are from those of the logs: about 1 within them. */
static real score(const real *features) {
  real half[NF], total = 0;
  for (int i = 0; i < NF; i++) {
    real sum = features[i];
    for (int j = 0; j < i; j++) sum -= ROOT[j * NF + i] * half[j];
    half[i] = sum / ROOT[i * NF + i];
    total += half[i] * half[i];
  }
  return total;
}
{% else %}

/* How far steps of this loop are from those of the logs, about 1 within them: their mean at rest, and
 * the variances X = F X F' + noise of the loop F = A + B K, by doubling. */
static real score(const real *features, const real *A, const real *B, const controller *c) {
  real F[NA * NA], X[NA * NA], FX[NA * NA], V[NY * NY], half[NB * NY], y[NY], total = 0;
  product(B, c->gain, F, NA, NU, NA);
  for (int i = 0; i < NA * NA; i++) F[i] += A[i], X[i] = 0;
  for (int i = 0; i < NX; i++) X[i * NA + i] = NOISE[i];
  for (int count = 0; count < DOUBLINGS; count++) {
    real grown = 0;
    product(F, X, FX, NA, NA, NA);
    for (int i = 0; i < NA; i++)
      for (int j = 0; j < NA; j++) {
        real sum = 0;
        for (int k = 0; k < NA; k++) sum += FX[i * NA + k] * F[j * NA + k];
        X[i * NA + j] += sum;
        if (i == j && X[i * NA + i] > 0) grown = fmax{{ f }}(grown, sum / X[i * NA + i]);
      }
    product(F, F, FX, NA, NA, NA);
    copy(FX, F, NA * NA);
    if (grown < TOLERANCE) break;
  }
  for (int i = 0; i < NY; i++) y[i] = 1; /* of constants */
{% for place in measured %}
  y[{{ place }}] = c->w[{{ loop.index0 }}];
{% endfor %}
  for (int i = 0; i < NX; i++) y[MOVING[i]] = c->x0[i];
  for (int i = 0; i < NU; i++) y[NY - NU + i] = c->u0[i];
  for (int i = 0; i < NY; i++)
    for (int j = 0; j < NY; j++) V[i * NY + j] = y[i] * y[j];
  product(c->gain, X, FX, NU, NA, NA);  /* cov(u, x) */
  for (int i = 0; i < NX; i++) {
    for (int j = 0; j < NX; j++) V[MOVING[i] * NY + MOVING[j]] += X[i * NA + j];
    for (int j = 0; j < NU; j++) {
      V[MOVING[i] * NY + NY - NU + j] += FX[j * NA + i];
      V[(NY - NU + j) * NY + MOVING[i]] += FX[j * NA + i];
    }
  }
  for (int i = 0; i < NU; i++)
    for (int j = 0; j < NU; j++)
      for (int k = 0; k < NA; k++) V[(NY - NU + i) * NY + NY - NU + j] += FX[i * NA + k] * c->gain[j * NA + k];
  for (int i = 0; i < NB * NY; i++) {
    half[i] = 0;
    for (int f = 0; f < NF; f++) half[i] += features[f] * HALVES[f * NB * NY + i];
  }
  for (int i = 0; i < NB; i++)
    for (int j = 0; j < NY; j++)
      for (int k = 0; k < NY; k++) total += half[i * NY + j] * V[j * NY + k] * half[i * NY + k];
  return total;
}
{% endif %}
