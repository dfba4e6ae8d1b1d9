{% set suffix = "f" if single else "" %}
{% macro numbers(array) -%}
  {% for row in array %}
    {{ row | join(", ") }}{{ "," if not loop.last }}
  {% endfor %}
{%- endmacro %}
/*
 * A controller of machines that were never tried, from what a fleet has shown.
 * Written by contextual-lqr {{ version }} from {{ rows }} logged steps; needs C99 and math.h, allocates nothing.
 *
 *   context  {{ context_names | join(", ") }}
 *   y        {{ state_names | join(", ") }}
 *   u        {{ input_names | join(", ") }}
{% if target_names %}
 *   target   {{ target_names | join(", ") }}{{ " (integrated: " ~ integrated_names | join(", ") ~ ")" if integrated_names }}
{% endif %}
 *
 * controller_context forms [A, B] = Theta G(context), and solves the Riccati equation for the gain; it
 * refuses a context outside its bounds or outside the data. controller_step is
 *
 *   u = limited(u0 + K (y - x0){{ " + Kq q" if integrated_names }}),   (x0, u0) at rest at the target{{ ",   q' = q + y - target" if integrated_names }}
 *
{% if integrated_names %}
 * where q stands still as long as it would drive an input further beyond its limit. It begins, and goes
 * on when the target changes, where what is to come costs least: q = lead (y - x0).
{% endif %}
 * Data {{ data_bytes }} bytes, one controller {{ state_bytes }}, stack about {{ stack_bytes }}. Multiplications and divisions:
 * at most {{ "{:,}".format(context_operations) }} for a context{{ ", " ~ "{:,}".format(target_operations) ~ " for a target" if at_rest }}, {{ step_operations }} for a step.
 */
{% if header %}
#include "{{ header }}"
{% else %}
{% include "controller.h" %}
{% endif %}

#include <math.h>

typedef controller_real real;

enum {
  NC = CONTROLLER_CONTEXTS,
  NX = CONTROLLER_STATES,
  NU = CONTROLLER_INPUTS,
  NR = CONTROLLER_TARGETS,
  NQ = CONTROLLER_INTEGRATORS,
  NA = NX + NQ,                /* states and integrators */
  NF = {{ features | length }}, /* features of the context */
  NY = {{ columns }}, /* columns of [A, B]: states, constants, inputs */
{% if at_rest %}
  NK = 2 * NX + NU + NR, /* unknowns of the state at rest, and their multipliers */
{% endif %}
  DOUBLINGS = {{ doublings }},
  REFINEMENTS = {{ refinements }}
};

#define TOLERANCE {{ tolerance }} /* of the Riccati equation, relative */
#define FAR {{ far }} /* the largest score that is not outside the data */

/* [A, B] is the sum over features of feature times matrix */
static const real MATRICES[NF * NX * NY] = {
{{ numbers(matrices) }}};
static const real LOWEST_CONTEXT[NC] = {
{{ numbers([lowest_context]) }}}, HIGHEST_CONTEXT[NC] = {
{{ numbers([highest_context]) }}};
static const real LOWEST[NU] = {
{{ numbers([lowest]) }}}, HIGHEST[NU] = {
{{ numbers([highest]) }}};
/* the cost of a step: [x; q]' Q [x; q] + u' R u{{ " + 2 [x; q]' N u" if cross }} */
static const real Q[NA * NA] = {
{{ numbers(Q) }}};
static const real R[NU * NU] = {
{{ numbers(R) }}};
{% if cross %}
static const real N[NA * NU] = {
{{ numbers(N) }}};
{% endif %}
{% if discounted %}
#define DISCOUNT {{ discount }}
{% endif %}
{% if target_names %}
static const int HELD[NR] = { {{ held | join(", ") }} }; /* the states that have targets */
static const real TARGET[NR] = {
{{ numbers([target]) }}};
{% endif %}
{% if at_rest and not has_constant %}
static const real ZERO[NX] = {0};
{% endif %}
{% if integrated_names %}
static const int INTEGRATED[NQ] = { {{ integrated | join(", ") }} };  /* the states that are integrated, */
static const int ITS_TARGET[NQ] = { {{ its_target | join(", ") }} };  /* and the places of their targets */
{% endif %}
{% if root is defined %}
/* the score of a context's features f is |ROOT^-T f|^2 */
static const real ROOT[NF * NF] = {
{{ numbers(root) }}};
{% else %}
/* the score of steps y is E|HALVES y|^2, HALVES the sum over features of feature times matrix */
enum { NP = {{ halves_rows }} };
static const real HALVES[NF * NP * NY] = {
{{ numbers(halves) }}};
static const real NOISE[NX] = {
{{ numbers([noise]) }}}; /* variances of a step */
static const int MOVING[NX] = { {{ moving | join(", ") }} }; /* the columns of the states */
{% endif %}

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

static void copy(const real *from, real *to, int count) {
  for (int i = 0; i < count; i++) to[i] = from[i];
}

static int all_finite(const real *a, int count) {
  for (int i = 0; i < count; i++)
    if (!isfinite(a[i])) return 0;
  return 1;
}

/* b = a^-1 b by elimination with partial pivoting; a is lost. 0 if a is singular */
static int solve(real *a, real *b, int n, int columns) {
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++)
      if (fabs{{ suffix }}(a[i * n + k]) > fabs{{ suffix }}(a[pivot * n + k])) pivot = i;
    if (!(fabs{{ suffix }}(a[pivot * n + k]) > 0)) return 0;
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

/* whether no entry of a and b, weights of the states, differs by more than the tolerance */
static int alike(const real *a, const real *b, real tolerance) {
  for (int i = 0; i < NA; i++)
    for (int j = 0; j < NA; j++) {
      const real size = sqrt{{ suffix }}(fabs{{ suffix }}(b[i * NA + i])) * sqrt{{ suffix }}(fabs{{ suffix }}(b[j * NA + j]));
      if (!(fabs{{ suffix }}(a[i * NA + j] - b[i * NA + j]) <= tolerance * size)) return 0;
    }
  return 1;
}

/* K = -(R + B'PB)^-1 (B'PA + N'), and P' = Q + A'PA + (A'PB + N) K; 0 if there is none */
static int riccati_step(const real *A, const real *B, const real *P, real *K, real *next) {
  real PA[NA * NA], PB[NA * NU], S[NU * NU], cross[NU * NA];
  product(P, A, PA, NA, NA, NA);
  product(P, B, PB, NA, NA, NU);
  product_t(B, PB, S, NU, NA, NU);
  product_t(B, PA, cross, NU, NA, NA);
  product_t(A, PA, next, NA, NA, NA);
  for (int i = 0; i < NU * NU; i++) S[i] = R[i] + {{ "DISCOUNT * " if discounted }}S[i];
  for (int i = 0; i < NU; i++)
    for (int j = 0; j < NA; j++)
      cross[i * NA + j] = {{ "DISCOUNT * " if discounted }}cross[i * NA + j]{{ " + N[j * NU + i]" if cross }};
  copy(cross, K, NU * NA);
  if (!solve(S, K, NU, NA)) return 0;
  for (int i = 0; i < NU * NA; i++) K[i] = -K[i];
  for (int i = 0; i < NA; i++)
    for (int j = 0; j < NA; j++) {
      real sum = Q[i * NA + j] + {{ "DISCOUNT * " if discounted }}next[i * NA + j];
      for (int k = 0; k < NU; k++) sum += cross[k * NA + i] * K[k * NA + j];
      next[i * NA + j] = sum;
    }
  for (int i = 0; i < NA; i++)
    for (int j = 0; j < i; j++) {
      const real mean = (next[i * NA + j] + next[j * NA + i]) / 2;
      next[i * NA + j] = next[j * NA + i] = mean;
    }
  return all_finite(next, NA * NA);
}

/* The stationary gain, by doubling: a, g, P stand for 2^i steps, and P converges quadratically.
 * 0 if it does not, if the equation is not fulfilled, or if the loop A + B K is not stable. */
static int stationary_gain(const real *A, const real *B, real *K{{ ", real *lead" if integrated_names }}) {
  real a[NA * NA], g[NA * NA], P[NA * NA], w[NA * NA], v[NA * NA], next[NA * NA], s[NU * NU], b[NU * NA];
  int same = 0;
  for (int i = 0; i < NU; i++) /* g = B R^-1 B' */
    for (int j = 0; j < NA; j++) b[i * NA + j] = B[j * NU + i];
  copy(R, s, NU * NU);
  if (!solve(s, b, NU, NA)) return 0;
  product(B, b, g, NA, NU, NA);
  copy(A, a, NA * NA);
  copy(Q, P, NA * NA);
{% if cross %}
  for (int i = 0; i < NU; i++) /* a = A - B R^-1 N', P = Q - N R^-1 N' */
    for (int j = 0; j < NA; j++) b[i * NA + j] = N[j * NU + i];
  copy(R, s, NU * NU);
  if (!solve(s, b, NU, NA)) return 0;
  product(B, b, w, NA, NU, NA);
  product(N, b, v, NA, NU, NA);
  for (int i = 0; i < NA * NA; i++) {
    a[i] -= w[i];
    P[i] -= v[i];
  }
{% endif %}
{% if discounted %}
  for (int i = 0; i < NA * NA; i++) {
    a[i] *= sqrt{{ suffix }}(DISCOUNT);
    g[i] *= DISCOUNT;
  }
{% endif %}
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
    for (int i = 0; i < NA; i++)
      for (int j = 0; j < i; j++) {
        P[i * NA + j] = P[j * NA + i] = (P[i * NA + j] + P[j * NA + i]) / 2;
        g[i * NA + j] = g[j * NA + i] = (g[i * NA + j] + g[j * NA + i]) / 2;
      }
  }
  same = 0;
  for (int count = 0; count < REFINEMENTS; count++) { /* what rounding has left, and the residual */
    if (!riccati_step(A, B, P, K, next)) return 0;
    same = alike(P, next, TOLERANCE);
    copy(next, P, NA * NA);
  }
  if (!same) return 0;
{% if integrated_names %}
  for (int i = 0; i < NQ; i++) { /* lead = -Pqq^-1 Pqx */
    for (int j = 0; j < NQ; j++) w[i * NQ + j] = P[(NX + i) * NA + NX + j];
    for (int j = 0; j < NX; j++) lead[i * NX + j] = -P[(NX + i) * NA + j];
  }
  if (!solve(w, lead, NQ, NX)) return 0;
{% endif %}
  product(B, K, a, NA, NU, NA);
  for (int i = 0; i < NA * NA; i++) a[i] += A[i];
  for (int count = 0; count < DOUBLINGS; count++) { /* (A + B K)^(2^i) */
    real largest = 0;
    product(a, a, next, NA, NA, NA);
    copy(next, a, NA * NA);
    for (int i = 0; i < NA * NA; i++) largest = fmax{{ suffix }}(largest, fabs{{ suffix }}(a[i]));
    if (!all_finite(a, NA * NA)) return 0;
    if (largest < TOLERANCE) return 1;
  }
  return 0;
}
{% if at_rest %}

/* The state and input at rest at the target, (A - I) x + B u + offset = 0 and x[HELD] = target, and of
 * these the cheapest: x and u with multipliers, by elimination with complete pivoting of the equations
 * in equal sizes. 0 if nothing is at rest there within the limits of the inputs. */
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
        most = fmax{{ suffix }}(most, fabs{{ suffix }}(size[i] * a[i * NK + j] * size[j]));
      factor[i] = most > 0 ? 1 / sqrt{{ suffix }}(most) : 1;
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
        if (fabs{{ suffix }}(a[i * NK + j]) > fabs{{ suffix }}(a[row * NK + column])) row = i, column = j;
    if (!(fabs{{ suffix }}(a[row * NK + column]) > {{ singular }})) break;
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
  for (int i = 0; i < NX + NU; i++) largest = fmax{{ suffix }}(largest, fabs{{ suffix }}(z[i]));
  for (int i = 0; i < NX; i++) { /* is it at rest there? */
    real moved = offset[i] - x[i];
    for (int j = 0; j < NX; j++) moved += A[i * NX + j] * x[j];
    for (int j = 0; j < NU; j++) moved += B[i * NU + j] * u[j];
    if (!(size[NX + NU + i] * fabs{{ suffix }}(moved) <= {{ unheld }} * largest)) return 0;
  }
{% if target_names %}
  for (int i = 0; i < NR; i++)
    if (!(size[2 * NX + NU + i] * fabs{{ suffix }}(x[HELD[i]] - target[i]) <= {{ unheld }} * largest)) return 0;
{% endif %}
  for (int i = 0; i < NU; i++) {
    const real room = {{ unheld }} * fabs{{ suffix }}(u[i]);
    if (!(u[i] >= LOWEST[i] - room && u[i] <= HIGHEST[i] + room)) return 0;
  }
  return 1;
}
{% endif %}
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
  real F[NA * NA], X[NA * NA], FX[NA * NA], V[NY * NY], half[NP * NY], y[NY], total = 0;
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
        if (i == j && X[i * NA + i] > 0) grown = fmax{{ suffix }}(grown, sum / X[i * NA + i]);
      }
    product(F, F, FX, NA, NA, NA);
    copy(FX, F, NA * NA);
    if (grown < TOLERANCE) break;
  }
  for (int i = 0; i < NY; i++) y[i] = 1; /* of constants */
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
  for (int i = 0; i < NP * NY; i++) {
    half[i] = 0;
    for (int f = 0; f < NF; f++) half[i] += features[f] * HALVES[f * NP * NY + i];
  }
  for (int i = 0; i < NP; i++)
    for (int j = 0; j < NY; j++)
      for (int k = 0; k < NY; k++) total += half[i * NY + j] * V[j * NY + k] * half[i * NY + k];
  return total;
}
{% endif %}

static real limited(real u, int i) {
  return u < LOWEST[i] ? LOWEST[i] : u > HIGHEST[i] ? HIGHEST[i] : u;
}

void controller_init(controller *c) {
  const controller none = {0};
  *c = none;
{% if target_names %}
  copy(TARGET, c->target, NR);
{% endif %}
  for (int i = 0; i < NU; i++) c->input[i] = limited(0, i);
}

void controller_reset(controller *c) {
{% if integrated_names %}
  for (int i = 0; i < NQ; i++) c->integral[i] = 0;
  c->begun = 0;
{% else %}
  (void)c;
{% endif %}
}

controller_status controller_context(controller *c, const real context[NC]) {
  real features[NF], A[NA * NA], B[NA * NU];
  controller made = *c;
  if (!all_finite(context, NC)) return CONTROLLER_NOT_FINITE;
  for (int i = 0; i < NC; i++)
    if (context[i] < LOWEST_CONTEXT[i] || context[i] > HIGHEST_CONTEXT[i]) return CONTROLLER_OUT_OF_BOUNDS;
{% for text, code in features %}
  features[{{ loop.index0 }}] = {{ code }}; /* {{ text }} */
{% endfor %}
  if (!all_finite(features, NF)) return CONTROLLER_NOT_FINITE;
{% if root is defined %}
  if (!(score(features) <= (real)FAR)) return CONTROLLER_OUTSIDE_DATA;
{% endif %}
  for (int i = 0; i < NA * NA; i++) A[i] = 0;
  for (int i = 0; i < NA * NU; i++) B[i] = 0;
  for (int i = 0; i < NX; i++) {
{% if has_constant %}
    made.offset[i] = 0;
{% endif %}
    for (int f = 0; f < NF; f++) {
      const real *row = MATRICES + (f * NX + i) * NY;
{% for place in moving %}
      A[i * NA + {{ loop.index0 }}] += features[f] * row[{{ place }}];
{% endfor %}
{% for place in constants %}
      made.offset[i] += features[f] * row[{{ place }}];
{% endfor %}
      for (int j = 0; j < NU; j++) B[i * NU + j] += features[f] * row[NY - NU + j];
    }
  }
  for (int i = 0; i < NX; i++) {
    for (int j = 0; j < NX; j++) made.A[i * NX + j] = A[i * NA + j];
    for (int j = 0; j < NU; j++) made.B[i * NU + j] = B[i * NU + j];
  }
{% if integrated_names %}
  for (int i = 0; i < NQ; i++) { /* q' = q + x[INTEGRATED] - target */
    A[(NX + i) * NA + INTEGRATED[i]] = 1;
    A[(NX + i) * NA + NX + i] = 1;
  }
{% endif %}
  if (!all_finite(A, NA * NA) || !all_finite(B, NA * NU)) return CONTROLLER_NOT_FINITE;
  if (!stationary_gain(A, B, made.gain{{ ", made.lead" if integrated_names }})) return CONTROLLER_NO_GAIN;
{% if at_rest %}
  if (!at_rest(made.A, made.B, {{ "made.offset" if has_constant else "ZERO" }}, {{ "made.target" if target_names else "0" }}, made.x0, made.u0)) return CONTROLLER_NOT_HELD;
{% endif %}
{% if root is not defined %}
  if (!(score(features, A, B, &made) <= (real)FAR)) return CONTROLLER_OUTSIDE_DATA;
{% endif %}
  made.ready = 1;
  *c = made;
  return CONTROLLER_OK;
}
{% if target_names %}

controller_status controller_target(controller *c, const real target[NR]) {
  real x0[NX], u0[NU];
  if (!all_finite(target, NR)) return CONTROLLER_NOT_FINITE;
  if (c->ready) {
    if (!at_rest(c->A, c->B, {{ "c->offset" if has_constant else "ZERO" }}, target, x0, u0)) return CONTROLLER_NOT_HELD;
{% if integrated_names %}
    for (int i = 0; i < NQ; i++)
      for (int j = 0; j < NX; j++) c->integral[i] += c->lead[i * NX + j] * (c->x0[j] - x0[j]);
{% endif %}
    copy(x0, c->x0, NX);
    copy(u0, c->u0, NU);
  }
  copy(target, c->target, NR);
  return CONTROLLER_OK;
}
{% endif %}

controller_status controller_step(controller *c, const real y[NX], real u[NU]) {
  real asked[NU]{{ ", away[NQ]" if integrated_names }};
{% if integrated_names %}
  int winds_up = 0;
{% endif %}
  if (!c->ready || !all_finite(y, NX)) { /* the last input, at first 0 */
    copy(c->input, u, NU);
    return c->ready ? CONTROLLER_NOT_FINITE : CONTROLLER_NOT_READY;
  }
{% if integrated_names %}
  for (int i = 0; i < NQ && !c->begun; i++) {
    c->integral[i] = 0;
    for (int j = 0; j < NX; j++) c->integral[i] += c->lead[i * NX + j] * (y[j] - c->x0[j]);
  }
  c->begun = 1;
{% endif %}
  for (int i = 0; i < NU; i++) {
    asked[i] = c->u0[i];
    for (int j = 0; j < NX; j++) asked[i] += c->gain[i * NA + j] * (y[j] - c->x0[j]);
{% if integrated_names %}
    for (int j = 0; j < NQ; j++) asked[i] += c->gain[i * NA + NX + j] * c->integral[j];
{% endif %}
  }
  if (!all_finite(asked, NU)) {
    copy(c->input, u, NU);
    return CONTROLLER_NOT_FINITE;
  }
{% if integrated_names %}
  for (int j = 0; j < NQ; j++) away[j] = y[INTEGRATED[j]] - c->target[ITS_TARGET[j]];
{% endif %}
  c->saturated = 0;
  for (int i = 0; i < NU; i++) {
    u[i] = c->input[i] = limited(asked[i], i);
    if (u[i] < asked[i] || u[i] > asked[i]) c->saturated = 1;
{% if integrated_names %}
    if (asked[i] < u[i] || asked[i] > u[i]) {
      real push = 0;
      for (int j = 0; j < NQ; j++) push += c->gain[i * NA + NX + j] * away[j];
      if ((asked[i] > u[i] && push > 0) || (asked[i] < u[i] && push < 0)) winds_up = 1;
    }
{% endif %}
  }
{% if integrated_names %}
  for (int j = 0; !winds_up && j < NQ; j++) c->integral[j] += away[j];
{% endif %}
  return CONTROLLER_OK;
}
