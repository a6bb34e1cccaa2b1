/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* compose_optim.c: optimizer steps composed of operators (optim.h). What depends on numbers alone is computed here, in
 * double; it reaches the kernel as scalar arguments. */
#define FUSOR_NO_GENERIC
#include "base/small.h"
#include "fusor/optim.h"
#include "op_call.h"
#include <math.h>
#include <string.h>

static fusor_tensor scaled(fusor_tensor x, double by) { return fusor_mul(x, fusor_f(by)); }

/* The options that the caller's version of the struct has; the rest as 0. A size of 0 is this version's. */
static fusor_optim_options read_options(const fusor_optim_options *o) {
    fusor_optim_options own = {0};
    if (o) memcpy(&own, o, o->size && o->size < sizeof own ? o->size : sizeof own);
    return own;
}

/* Are they known to have different shapes? (A bad handle is refused by the operators.) */
static bool differ(fusor_tensor x, fusor_tensor y) {
    fusor_buffer a, b;
    if (!x.owner || !y.owner || fusor_status_of(x) != FUSOR_OK || fusor_status_of(y) != FUSOR_OK) return false;
    if (fusor_shape_of(x, &a) != FUSOR_OK || fusor_shape_of(y, &b) != FUSOR_OK) return false;
    bool is_other = a.rank != b.rank;
    for (int d = 0; d < a.rank && !is_other; d++) /* negative: a size that has a name */
        is_other = a.shape[d] != b.shape[d] && a.shape[d] >= 0 && b.shape[d] >= 0;
    return is_other;
}

/* False, with a bad handle in s, where the options cannot be used, or what the step takes is not of one shape.
 * n_states: of m and v; needs_step: the step number counts. */
static bool take(fusor_optim *s, fusor_tensor g, int n_states, const fusor_optim_options *given, bool needs_step,
                 fusor_optim_options *out) {
    static const char no_shape[] = "fusor_optim: the gradient and the state must have the parameter's shape";
    static const char no_options[] = "fusor_optim: the options are NULL; start from FUSOR_ADAM_INIT or one of its like";
    static const char no_step[] = "fusor_optim: options.step is below 1; it counts from 1";
    *out = read_options(given);
    if (differ(s->p, g) || (n_states > 0 && differ(s->p, s->m)) || (n_states > 1 && differ(s->p, s->v))) {
        s->p = op_refuse(s->p, FUSOR_ERROR_SHAPE, no_shape);
        return false;
    }
    if (given && (!needs_step || out->step >= 1)) return true;
    s->p = op_refuse(s->p, FUSOR_ERROR_ARGUMENT, given ? no_step : no_options);
    return false;
}

static fusor_tensor decayed(fusor_tensor g, fusor_tensor p, double decay) {
    return decay == 0 ? g : fusor_add(g, scaled(p, decay));
}
static fusor_tensor descended(fusor_tensor p, fusor_tensor d, double rate) { return fusor_sub(p, scaled(d, rate)); }
static fusor_tensor average(fusor_tensor m, fusor_tensor g, double beta) {
    return fusor_add(scaled(m, beta), scaled(g, 1 - beta));
}
static double correction(double beta, int64_t step) { return 1 - pow(beta, (double)step); }

/* sqrt(v / (1 - beta2^step)) + epsilon */
static fusor_tensor denominator(fusor_tensor v, const fusor_optim_options *o) {
    return fusor_add(scaled(fusor_sqrt(v), 1 / sqrt(correction(o->beta2, o->step))), fusor_f(o->epsilon));
}

static fusor_optim moments(fusor_optim s, fusor_tensor g, const fusor_optim_options *o) {
    s.m = average(s.m, g, o->beta1);
    s.v = average(s.v, fusor_square(g), o->beta2);
    return s;
}

/* ---- the steps ---- */
fusor_optim fusor_optim_sgd(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 0, options, false, &o)) return s;
    s.p = descended(s.p, decayed(g, s.p, o.weight_decay), o.lr);
    return s;
}

fusor_optim fusor_optim_momentum(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 1, options, false, &o)) return s;
    s.m = fusor_add(scaled(s.m, o.momentum), scaled(decayed(g, s.p, o.weight_decay), 1 - o.dampening));
    s.p = descended(s.p, s.m, o.lr);
    return s;
}

fusor_optim fusor_optim_nesterov(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 1, options, false, &o)) return s;
    g = decayed(g, s.p, o.weight_decay);
    s.m = fusor_add(scaled(s.m, o.momentum), g);
    s.p = descended(s.p, fusor_add(g, scaled(s.m, o.momentum)), o.lr);
    return s;
}

fusor_optim fusor_optim_adam(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 2, options, true, &o)) return s;
    s = moments(s, decayed(g, s.p, o.weight_decay), &o);
    s.p = descended(s.p, fusor_div(s.m, denominator(s.v, &o)), o.lr / correction(o.beta1, o.step));
    return s;
}

fusor_optim fusor_optim_adamw(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 2, options, true, &o)) return s;
    s.p = scaled(s.p, 1 - o.lr * o.weight_decay);
    o.weight_decay = 0;
    o.size = sizeof o;
    return fusor_optim_adam(s, g, &o);
}

fusor_optim fusor_optim_adamax(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 2, options, true, &o)) return s;
    g = decayed(g, s.p, o.weight_decay);
    s.m = average(s.m, g, o.beta1);
    s.v = fusor_maximum(scaled(s.v, o.beta2), fusor_add(fusor_abs(g), fusor_f(o.epsilon)));
    s.p = descended(s.p, fusor_div(s.m, s.v), o.lr / correction(o.beta1, o.step));
    return s;
}

static double nadam_mu(const fusor_optim_options *o, int64_t step) {
    return o->beta1 * (1 - 0.5 * pow(0.96, (double)step * o->momentum_decay));
}

double fusor_optim_nadam_mu(const fusor_optim_options *o) {
    fusor_optim_options own = read_options(o);
    return o ? nadam_mu(&own, own.step) : NAN;
}

fusor_optim fusor_optim_nadam(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 2, options, true, &o)) return s;
    g = decayed(g, s.p, o.weight_decay);
    s = moments(s, g, &o);
    double mu = nadam_mu(&o, o.step), next = nadam_mu(&o, o.step + 1);
    fusor_tensor ahead = fusor_add(scaled(g, o.lr * (1 - mu) / (1 - o.mu_product)),
                                   scaled(s.m, o.lr * next / (1 - o.mu_product * next)));
    s.p = fusor_sub(s.p, fusor_div(ahead, denominator(s.v, &o)));
    return s;
}

fusor_optim fusor_optim_radam(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 2, options, true, &o)) return s;
    s = moments(s, decayed(g, s.p, o.weight_decay), &o);
    double c1 = correction(o.beta1, o.step), c2 = correction(o.beta2, o.step), limit = 2 / (1 - o.beta2) - 1;
    double rho = limit - 2 * (double)o.step * (1 - c2) / c2;
    if (rho > 5) {
        double rectified = sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho) * c2);
        s.p = fusor_sub(s.p,
                        fusor_div(scaled(s.m, o.lr / c1 * rectified), fusor_add(fusor_sqrt(s.v), fusor_f(o.epsilon))));
    } else {
        s.p = descended(s.p, s.m, o.lr / c1);
    }
    return s;
}

fusor_optim fusor_optim_adagrad(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 1, options, true, &o)) return s;
    g = decayed(g, s.p, o.weight_decay);
    s.m = fusor_add(s.m, fusor_square(g));
    s.p = descended(s.p, fusor_div(g, fusor_add(fusor_sqrt(s.m), fusor_f(o.epsilon))),
                    o.lr / (1 + (double)(o.step - 1) * o.lr_decay));
    return s;
}

fusor_optim fusor_optim_rmsprop(fusor_optim s, fusor_tensor g, const fusor_optim_options *options) {
    fusor_optim_options o;
    if (!take(&s, g, 1, options, false, &o)) return s;
    g = decayed(g, s.p, o.weight_decay);
    s.m = average(s.m, fusor_square(g), o.alpha);
    s.p = descended(s.p, fusor_div(g, fusor_add(fusor_sqrt(s.m), fusor_f(o.epsilon))), o.lr);
    return s;
}

static bool is_same(fusor_tensor a, fusor_tensor b) {
    return a.owner == b.owner && a.slot == b.slot && a.generation == b.generation;
}

fusor_status fusor_optim_assign(fusor_optim at, fusor_optim to) {
    fusor_status m = is_same(at.m, to.m) ? FUSOR_OK : fusor_assign(at.m, to.m);
    fusor_status v = is_same(at.v, to.v) ? FUSOR_OK : fusor_assign(at.v, to.v);
    fusor_status p = is_same(at.p, to.p) ? FUSOR_OK : fusor_assign(at.p, to.p);
    return m ? m : v ? v : p;
}
