#ifndef CONTROLLER_H
#define CONTROLLER_H

{% if not fixed %}
#define CONTROLLER_CONTEXTS {{ context_names | length }} /* {{ context_names | join(", ") }} */
{% endif %}
#define CONTROLLER_MEASUREMENTS {{ seen_names | length }} /* {{ seen_names | join(", ") }} */
#define CONTROLLER_STATES {{ state_names | length }} /* {{ state_names | join(", ") }} */
#define CONTROLLER_INPUTS {{ input_names | length }} /* {{ input_names | join(", ") }} */
{% if measured_names %}
#define CONTROLLER_DISTURBANCES {{ measured_names | length }} /* {{ measured_names | join(", ") }} */
{% endif %}
#define CONTROLLER_TARGETS {{ target_names | length }}{{ " /* " ~ target_names | join(", ") ~ " */" if target_names }}
#define CONTROLLER_INTEGRATORS {{ integrated_names | length }}{{ " /* of " ~ integrated_names | join(", ") ~ " */" if integrated_names }}

typedef {{ "float" if single else "double" }} controller_real;

typedef enum {
  CONTROLLER_OK,
  CONTROLLER_NOT_READY,     /* {{ "it was not initialised" if fixed else "no context has been accepted yet" }} */
  CONTROLLER_NOT_FINITE,    /* an argument, a feature or an input is not finite */
  CONTROLLER_OUT_OF_BOUNDS, /* the context is outside its declared bounds */
  CONTROLLER_OUTSIDE_DATA,  /* the context is too far from those that were logged */
  CONTROLLER_NO_GAIN,       /* the Riccati equation has no stabilising solution here */
  CONTROLLER_NOT_HELD       /* no input{{ " within its limits" if not measured_names }} holds the target */
} controller_status;

typedef struct {
  controller_real A[CONTROLLER_STATES * CONTROLLER_STATES]; /* the machine, x' = A x + B u{{ " + W w" if measured_names }}{{ " + offset" if has_constant }} */
  controller_real B[CONTROLLER_STATES * CONTROLLER_INPUTS];
{% if measured_names %}
  controller_real W[CONTROLLER_STATES * CONTROLLER_DISTURBANCES];
{% endif %}
{% if has_constant %}
  controller_real offset[CONTROLLER_STATES];
{% endif %}
  controller_real gain[CONTROLLER_INPUTS * (CONTROLLER_STATES + CONTROLLER_INTEGRATORS)]; /* [K, Kq] */
  controller_real x0[CONTROLLER_STATES]; /* at rest at the target */
  controller_real u0[CONTROLLER_INPUTS];
{% if measured_names %}
  controller_real w[CONTROLLER_DISTURBANCES]; /* the last that were measured */
  controller_real x_base[CONTROLLER_STATES];  /* rest without disturbances, and how it moves with them */
  controller_real u_base[CONTROLLER_INPUTS];
  controller_real x_slope[CONTROLLER_STATES * CONTROLLER_DISTURBANCES];
  controller_real u_slope[CONTROLLER_INPUTS * CONTROLLER_DISTURBANCES];
{% endif %}
  controller_real input[CONTROLLER_INPUTS]; /* the last that was played */
{% if past %}
  controller_real last[CONTROLLER_STATES + CONTROLLER_INPUTS]; /* states and inputs of the previous step */
  int remembers; /* whether there was one */
{% endif %}
{% if target_names %}
  controller_real target[CONTROLLER_TARGETS];
{% endif %}
{% if integrated_names %}
  controller_real integral[CONTROLLER_INTEGRATORS];
  controller_real lead[CONTROLLER_INTEGRATORS * CONTROLLER_STATES];
  int begun; /* whether the integrators have */
{% endif %}
  int saturated; /* whether the last step met a limit */
  int ready;
} controller;

{% if fixed %}
/* Call controller_init once. */
void controller_init(controller *c);
{% else %}
/* Call controller_init once, then controller_context, also when the context changes: integrators{{ ", history" if past }} and
 * target are kept, and a context that is refused leaves everything as it was. */
void controller_init(controller *c);
controller_status controller_context(controller *c, const controller_real context[CONTROLLER_CONTEXTS]);
{% endif %}
{% if target_names %}
controller_status controller_target(controller *c, const controller_real target[CONTROLLER_TARGETS]);
{% endif %}
/* The input for what is measured, y{{ "; what is past is remembered" if past }}. If it cannot be computed, u is the last one, before the
 * first 0 or the limit nearest to it, and nothing changes. */
controller_status controller_step(controller *c, const controller_real y[CONTROLLER_MEASUREMENTS], controller_real u[CONTROLLER_INPUTS]);
void controller_reset(controller *c); /* {{ "the integrators begin anew" if not past else "forget: the next y is the first" }} */

#endif
