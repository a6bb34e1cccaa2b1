/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_OPTIM_H
#define FUSOR_OPTIM_H
/* fusor/optim.h: optimizer steps as expressions, composed of the operators of op.h: nothing here computes anything that
 * fusor_mul and fusor_sqrt could not. Each takes a parameter tensor, its gradient and the optimizer's state, all of one
 * shape and float dtype, and returns the new values; assigned over the old ones inside a scope, the whole step is one
 * kernel that reads every tensor once:
 *
 *   FUSOR_SCOPE(ctx, &status) {
 *       fusor_optim_options o = FUSOR_ADAM_INIT;
 *       o.step = ++step;
 *       fusor_optim_assign((fusor_optim){P, M, V}, fusor_optim_adamw((fusor_optim){P, M, V}, G, &o));
 *   }
 *
 * Formulas and defaults are PyTorch's (torch.optim); examples/optim.fusor has them as programs, for compiled
 * executables and for many tensors in one call (fusor_executable_call_each). Numbers are weak scalars: another learning
 * rate or step does not compile again; radam has two programs, and a weight_decay of 0 is left out of all but adamw's.
 * **Errors**: a bad handle, as with every operator; options NULL or a step below 1 where it counts: ARGUMENT. */
#include <fusor/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A parameter and its state; what an algorithm does not have stays as it is. m: momentum buffer, first moment, or the
 *  sum or average of squares of Adagrad and RMSprop; v: second moment, or the infinity norm of Adamax. All start as
 *  zeros. */
typedef struct fusor_optim {
    fusor_tensor p, m, v;
} fusor_optim;

typedef struct fusor_optim_options {
    size_t  size;               /* set by the macros below */
    int64_t step;               /* counts from 1; the bias corrections of the Adam family and Adagrad's lr_decay read it */
    double  lr, weight_decay;   /* L2, added to the gradient; decoupled in adamw */
    double  momentum, dampening;
    double  beta1, beta2, epsilon;
    double  alpha;              /* rmsprop: smoothing */
    double  lr_decay;           /* adagrad */
    double  momentum_decay;     /* nadam: mu(t) = beta1 (1 - 0.5 * 0.96^(t * momentum_decay)) */
    double  mu_product;         /* nadam: the product of mu(1) .. mu(step), see fusor_optim_nadam_mu */
} fusor_optim_options;
#define FUSOR_SGD_INIT     { sizeof(fusor_optim_options), 1, 1e-3, 0, 0.9, 0, 0, 0, 0, 0, 0, 0, 1 }
#define FUSOR_ADAM_INIT    { sizeof(fusor_optim_options), 1, 1e-3, 0, 0, 0, 0.9, 0.999, 1e-8, 0, 0, 0, 1 }
#define FUSOR_ADAMW_INIT   { sizeof(fusor_optim_options), 1, 1e-3, 1e-2, 0, 0, 0.9, 0.999, 1e-8, 0, 0, 0, 1 }
#define FUSOR_ADAMAX_INIT  { sizeof(fusor_optim_options), 1, 2e-3, 0, 0, 0, 0.9, 0.999, 1e-8, 0, 0, 0, 1 }
#define FUSOR_NADAM_INIT   { sizeof(fusor_optim_options), 1, 2e-3, 0, 0, 0, 0.9, 0.999, 1e-8, 0, 0, 4e-3, 1 }
#define FUSOR_RADAM_INIT   FUSOR_ADAM_INIT
#define FUSOR_ADAGRAD_INIT { sizeof(fusor_optim_options), 1, 1e-2, 0, 0, 0, 0, 0, 1e-10, 0, 0, 0, 1 }
#define FUSOR_RMSPROP_INIT { sizeof(fusor_optim_options), 1, 1e-2, 0, 0, 0, 0, 0, 1e-8, 0.99, 0, 0, 1 }

/** p - lr g */
FUSOR_API fusor_optim fusor_optim_sgd(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
/** m = momentum m + (1 - dampening) g; p - lr m */
FUSOR_API fusor_optim fusor_optim_momentum(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
/** m = momentum m + g; p - lr (g + momentum m) */
FUSOR_API fusor_optim fusor_optim_nesterov(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
/** Kingma and Ba 2015 */
FUSOR_API fusor_optim fusor_optim_adam(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
/** Loshchilov and Hutter 2019 */
FUSOR_API fusor_optim fusor_optim_adamw(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
/** Kingma and Ba 2015, section 7.1 */
FUSOR_API fusor_optim fusor_optim_adamax(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
/** Dozat 2016; o->mu_product must be kept up to date with fusor_optim_nadam_mu */
FUSOR_API fusor_optim fusor_optim_nadam(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
/** mu(step): multiply o->mu_product by it after o->step has been set and before fusor_optim_nadam */
FUSOR_API double fusor_optim_nadam_mu(const fusor_optim_options *o);
/** Liu et al. 2020. Two programs: one for the steps before rectification begins (the first five with beta2 = 0.999),
 *  one from there on */
FUSOR_API fusor_optim fusor_optim_radam(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
/** Duchi, Hazan and Singer 2011; m is the sum of squares */
FUSOR_API fusor_optim fusor_optim_adagrad(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
/** Tieleman and Hinton 2012; m is the average of squares */
FUSOR_API fusor_optim fusor_optim_rmsprop(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);

/** Assigns what changed: at.p = to.p, and m and v where the step made new ones. The first error is returned and is the
 * scope's. */
FUSOR_API fusor_status fusor_optim_assign(fusor_optim at, fusor_optim to);

#ifdef __cplusplus
}
#endif
#endif
