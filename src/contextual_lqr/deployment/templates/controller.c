{% macro numbers(array) -%}
  {% for row in array %}
    {{ row | join(", ") }}{{ "," if not loop.last }}
  {% endfor %}
{%- endmacro %}
/*
{% if fixed %}
 * Control of one machine, {{ fixed }}.
{% else %}
 * Control of machines that were never tried, from what a fleet has shown.
{% endif %}
 * Written by contextual-lqr {{ version }} from {{ rows }} logged steps; needs C99 and math.h, allocates nothing.
 *
{% if not fixed %}
 *   context  {{ context_names | join(", ") }}
{% endif %}
 *   y        {{ seen_names | join(", ") }}
 *   u        {{ input_names | join(", ") }}
{% if target_names %}
 *   target   {{ target_names | join(", ") }}{{ " (integrated: " ~ integrated_names | join(", ") ~ ")" if integrated_names }}
{% endif %}
 *
{% if not fixed %}
 * controller_context forms [A, B] = Theta G(context), and solves the Riccati equation for the gain; it
 * refuses a context outside its bounds or outside the data.
{% endif %}
{% if hedge %}
 * The gain hedges against {{ hedge }} times the covariance of [A, B], as machines left out require.
{% endif %}
 * controller_step is
 *
 *   u = limited(u0 + K (x - x0){{ " + Kq q" if integrated_names }}),   (x0, u0) at rest at the target{{ ",   q' = q + x - target" if integrated_names }}
 *
{% if past %}
 * where the state x is made of y and of what was measured and played before: {{ state_names | join(", ") }}.
{% else %}
 * where the state x is {{ "y" if not measured_names else state_names | join(", ") }}.
{% endif %}
{% if measured_names %}
 * Rest moves with {{ measured_names | join(", ") }}, which {{ "is" if measured_names | length == 1 else "are" }} expected to stay as measured.
{% endif %}
{% if integrated_names %}
 * q is held as long as it would drive an input further beyond its limit. It is set, at the start and
 * when {{ "the target" if not measured_names else "rest" }} changes, to what makes the future cheapest: q = lead (x - x0).
{% endif %}
 * Data {{ data_bytes }} bytes, the struct {{ state_bytes }}, stack about {{ stack_bytes }}. Multiplications and divisions:
 * at most {{ "{:,}".format(context_operations) ~ " for a context, " if not fixed }}{{ "{:,}".format(target_operations) ~ " for a target, " if at_rest }}{{ step_operations }} for a step.
 */
{% if header %}
#include "{{ header }}"
{% else %}
{% include "controller.h" %}
{% endif %}

#include <math.h>

typedef controller_real real;

enum {
{% if not fixed %}
  NC = CONTROLLER_CONTEXTS,
  NF = {{ features | length }}, /* features of the context */
  NY = {{ columns }}, /* columns of [A, B]: states, constants, inputs */
  DOUBLINGS = {{ doublings }},
  REFINEMENTS = {{ refinements }},
{% endif %}
{% if hedged %}
  NH = {{ hedged | length }}, /* rows of [A, B] that are not known, */
  NZ = CONTROLLER_STATES + CONTROLLER_INPUTS,
  NG = {{ doubts }}, /* groups of them that are as unknown as each other, */
  ND = {{ doubt_rows }}, /* rows of a half of their covariance */
  HEDGINGS = {{ hedgings }},
{% endif %}
{% if measured_names %}
  NW = CONTROLLER_DISTURBANCES,
{% endif %}
{% if past %}
  NP = {{ past | length }}, /* states that are past */
{% endif %}
{% if at_rest %}
  NK = 2 * CONTROLLER_STATES + CONTROLLER_INPUTS + CONTROLLER_TARGETS, /* unknowns of the state at rest, and their multipliers */
{% endif %}
  NM = CONTROLLER_MEASUREMENTS,
  NX = CONTROLLER_STATES,
  NU = CONTROLLER_INPUTS,
  NR = CONTROLLER_TARGETS,
  NQ = CONTROLLER_INTEGRATORS,
  NA = NX + NQ /* states and integrators */
};

{% if not fixed %}
#define TOLERANCE {{ tolerance }} /* of the Riccati equation, relative */
#define FAR {{ far }} /* the largest score that is not outside the data */
{% endif %}
{% if hedged %}
#define SETTLED {{ settled }} /* the change of P, relative */
{% endif %}

{% if fixed %}
/* the machine and its gain */
static const real MACHINE_A[NX * NX] = {
{{ numbers(A) }}};
static const real MACHINE_B[NX * NU] = {
{{ numbers(B) }}};
{% if measured_names %}
static const real MACHINE_W[NX * NW] = {
{{ numbers(W) }}};
{% endif %}
{% if has_constant %}
static const real OFFSET[NX] = {
{{ numbers(offset) }}};
{% endif %}
static const real GAIN[NU * NA] = {
{{ numbers(gain) }}};
{% if integrated_names %}
static const real LEAD[NQ * NX] = {
{{ numbers(lead) }}};
{% endif %}
{% else %}
/* [A, B] is the sum over features of feature times matrix */
static const real MATRICES[NF * NX * NY] = {
{{ numbers(matrices) }}};
static const real LOWEST_CONTEXT[NC] = {
{{ numbers([lowest_context]) }}}, HIGHEST_CONTEXT[NC] = {
{{ numbers([highest_context]) }}};
{% endif %}
static const real LOWEST[NU] = {
{{ numbers([lowest]) }}}, HIGHEST[NU] = {
{{ numbers([highest]) }}};
{% if not fixed or at_rest %}
/* the cost of a step: [x; q]' Q [x; q] + u' R u{{ " + 2 [x; q]' N u" if cross }} */
static const real Q[NA * NA] = {
{{ numbers(Q) }}};
static const real R[NU * NU] = {
{{ numbers(R) }}};
{% endif %}
{% if not fixed %}
{% if cross %}
static const real N[NA * NU] = {
{{ numbers(N) }}};
{% else %}
static const real *const N = 0; /* no cross term */
{% endif %}
{% endif %}
{% if discounted and not fixed %}
#define DISCOUNT {{ discount }}
{% endif %}
static const int PLACE[NM] = { {{ places | join(", ") }} }; /* of y in the states{{ ", then in the disturbances" if measured_names }} */
{% if past %}
static const int PAST[NP] = { {{ past | join(", ") }} };      /* the states that are past, */
static const int BEFORE[NP] = { {{ before | join(", ") }} };    /* where they were in [x; u] a step ago */
{% if fades %}
static const real STAYS[NP] = { {{ stays | join(", ") }} };    /* how much of them stays in a step: the rest is what was there */
{% endif %}
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
{% if hedged %}
static const int HEDGED[NH] = { {{ hedged | join(", ") }} }; /* the states whose rows are not known, */
static const int GROUP[NH] = { {{ groups | join(", ") }} };  /* and their groups */
static const real SCALE[NH] = {
{{ numbers([scales]) }}};
static const real DOUBT[NG * NF * ND * NZ] = {
{{ numbers(doubt) }}};
{% if spread %}
static const real SPREAD[NH * NZ * NZ] = {
{{ numbers(spread) }}};
{% endif %}
{% endif %}
{% if fixed %}
{% elif root is defined %}
/* the score of a context's features f is |ROOT^-T f|^2 */
static const real ROOT[NF * NF] = {
{{ numbers(root) }}};
{% else %}
/* the score of steps y is E|HALVES y|^2, HALVES the sum over features of feature times matrix */
enum { NB = {{ halves_rows }} };
static const real HALVES[NF * NB * NY] = {
{{ numbers(halves) }}};
static const real NOISE[NX] = {
{{ numbers([noise]) }}}; /* variances of a step */
static const int MOVING[NX] = { {{ moving | join(", ") }} }; /* the columns of the states */
{% endif %}

static void copy(const real *from, real *to, int count) {
  for (int i = 0; i < count; i++) to[i] = from[i];
}

static int all_finite(const real *a, int count) {
  for (int i = 0; i < count; i++)
    if (!isfinite(a[i])) return 0;
  return 1;
}
{% if not fixed %}

{% include "matrices.c" %}

{% include "gain.c" %}
{% endif %}
{% if at_rest %}

{% include "at_rest.c" %}
{% endif %}
{% if not fixed %}

{% include "score.c" %}
{% endif %}

static real limited(real u, int i) {
  return u < LOWEST[i] ? LOWEST[i] : u > HIGHEST[i] ? HIGHEST[i] : u;
}
{% if target_names or measured_names %}

/* Rest is at x0, u0 now, for a target or a disturbance: the integrators go on from there. */
static void rest_at(controller *c, const real *x0, const real *u0) {
{% if integrated_names %}
  for (int i = 0; i < NQ; i++)
    for (int j = 0; j < NX; j++) c->integral[i] += c->lead[i * NX + j] * (c->x0[j] - x0[j]);
{% endif %}
  copy(x0, c->x0, NX);
  copy(u0, c->u0, NU);
}
{% endif %}
{% if measured_names %}

/* Rest with the disturbances w. */
static void displaced(const controller *c, const real *w, real *x0, real *u0) {
  copy(c->x_base, x0, NX);
  copy(c->u_base, u0, NU);
  for (int k = 0; k < NW; k++) {
    for (int i = 0; i < NX; i++) x0[i] += c->x_slope[i * NW + k] * w[k];
    for (int i = 0; i < NU; i++) u0[i] += c->u_slope[i * NW + k] * w[k];
  }
}
{% endif %}
{% if at_rest %}

/* Where the machine of c rests at its target; 0 if nowhere. */
static int find_rest(controller *c) {
{% set offset_of = "c->offset" if has_constant else "ZERO" %}
{% set target_of = "c->target" if target_names else "0" %}
{% if measured_names %}
  if (!slopes(c) || !at_rest(c->A, c->B, {{ offset_of }}, {{ target_of }}, c->x_base, c->u_base)) return 0;
  displaced(c, c->w, c->x0, c->u0);
  return 1;
{% else %}
  return at_rest(c->A, c->B, {{ offset_of }}, {{ target_of }}, c->x0, c->u0);
{% endif %}
}
{% endif %}

void controller_init(controller *c) {
  const controller none = {0};
  *c = none;
{% if target_names %}
  copy(TARGET, c->target, NR);
{% endif %}
  for (int i = 0; i < NU; i++) c->input[i] = limited(0, i);
{% if fixed %}
  copy(MACHINE_A, c->A, NX * NX);
  copy(MACHINE_B, c->B, NX * NU);
{% if measured_names %}
  copy(MACHINE_W, c->W, NX * NW);
{% endif %}
{% if has_constant %}
  copy(OFFSET, c->offset, NX);
{% endif %}
  copy(GAIN, c->gain, NU * NA);
{% if integrated_names %}
  copy(LEAD, c->lead, NQ * NX);
{% endif %}
  c->ready = {{ "find_rest(c)" if at_rest else "1" }};
{% endif %}
}

void controller_reset(controller *c) {
{% if integrated_names %}
  for (int i = 0; i < NQ; i++) c->integral[i] = 0;
  c->begun = 0;
{% endif %}
{% if past %}
  c->remembers = 0;
{% endif %}
  c->saturated = 0;
}
{% if not fixed %}

controller_status controller_context(controller *c, const real context[NC]) {
  real features[NF], A[NA * NA], B[NA * NU]{{ ", C[NH * NZ * NZ]" if hedged }};
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
{% if measured_names %}
    for (int j = 0; j < NW; j++) made.W[i * NW + j] = 0;
{% endif %}
    for (int f = 0; f < NF; f++) {
      const real *row = MATRICES + (f * NX + i) * NY;
{% for place in moving %}
      A[i * NA + {{ loop.index0 }}] += features[f] * row[{{ place }}];
{% endfor %}
{% for place in constants %}
      made.offset[i] += features[f] * row[{{ place }}];
{% endfor %}
{% for place in measured %}
      made.W[i * NW + {{ loop.index0 }}] += features[f] * row[{{ place }}];
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
{% if hedged %}
  covariances(features, C);
{% endif %}
  if (!stationary_gain(A, B, {{ "C, " if hedged }}made.gain{{ ", made.lead" if integrated_names }})) return CONTROLLER_NO_GAIN;
{% if at_rest %}
  if (!find_rest(&made)) return CONTROLLER_NOT_HELD;
{% endif %}
{% if root is not defined %}
  if (!(score(features, A, B, &made) <= (real)FAR)) return CONTROLLER_OUTSIDE_DATA;
{% endif %}
  made.ready = 1;
  *c = made;
  return CONTROLLER_OK;
}
{% endif %}
{% if target_names %}

controller_status controller_target(controller *c, const real target[NR]) {
  real x0[NX], u0[NU];
  if (!all_finite(target, NR)) return CONTROLLER_NOT_FINITE;
  if (c->ready) {
    if (!at_rest(c->A, c->B, {{ "c->offset" if has_constant else "ZERO" }}, target, x0, u0)) return CONTROLLER_NOT_HELD;
{% if measured_names %}
    copy(x0, c->x_base, NX);
    copy(u0, c->u_base, NU);
    displaced(c, c->w, x0, u0);
{% endif %}
    rest_at(c, x0, u0);
  }
  copy(target, c->target, NR);
  return CONTROLLER_OK;
}
{% endif %}

controller_status controller_step(controller *c, const real y[NM], real u[NU]) {
  real x[NX{{ " + NW" if measured_names }}], asked[NU]{{ ", away[NQ]" if integrated_names }}{{ ", x0[NX], u0[NU]" if measured_names }};
{% if integrated_names %}
  int winds_up = 0;
{% endif %}
  if (!c->ready || !all_finite(y, NM)) { /* the last input, at first 0 */
    copy(c->input, u, NU);
    return c->ready ? CONTROLLER_NOT_FINITE : CONTROLLER_NOT_READY;
  }
  for (int i = 0; i < NM; i++) x[PLACE[i]] = y[i];
{% if past %}
  for (int i = 0; i < NP; i++) /* at first as if it had been at rest, without inputs; newer ones come first */
    x[PAST[i]] = c->remembers ? c->last[BEFORE[i]]{{ " + STAYS[i] * (c->last[PAST[i]] - c->last[BEFORE[i]])" if fades }} : BEFORE[i] < NX ? x[BEFORE[i]] : 0;
{% endif %}
{% if measured_names %}
  copy(x + NX, c->w, NW);
  displaced(c, c->w, x0, u0);
  rest_at(c, x0, u0);
{% endif %}
{% if integrated_names %}
  for (int i = 0; i < NQ && !c->begun; i++) {
    c->integral[i] = 0;
    for (int j = 0; j < NX; j++) c->integral[i] += c->lead[i * NX + j] * (x[j] - c->x0[j]);
  }
  c->begun = 1;
{% endif %}
  for (int i = 0; i < NU; i++) {
    asked[i] = c->u0[i];
    for (int j = 0; j < NX; j++) asked[i] += c->gain[i * NA + j] * (x[j] - c->x0[j]);
{% if integrated_names %}
    for (int j = 0; j < NQ; j++) asked[i] += c->gain[i * NA + NX + j] * c->integral[j];
{% endif %}
  }
  if (!all_finite(asked, NU)) {
    copy(c->input, u, NU);
    return CONTROLLER_NOT_FINITE;
  }
{% if integrated_names %}
  for (int j = 0; j < NQ; j++) away[j] = x[INTEGRATED[j]] - c->target[ITS_TARGET[j]];
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
{% if past %}
  copy(x, c->last, NX);
  copy(u, c->last + NX, NU);
  c->remembers = 1;
{% endif %}
  return CONTROLLER_OK;
}
