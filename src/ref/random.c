/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random numbers, a group of Philox's four words at a time (ir/philox.h). Halves are the f32 values rounded. */
#include "ref/kinds.h"
#include "ir/philox.h"
#include "ir/scalar.h"

fusor_status ref_random(const ref_call *c) {
    ref_tensor *out = c->out;
    const int is_f64 = out->dtype == FUSOR_F64, is_normal = c->n->op == IR_OP_RANDOM_NORMAL, each = philox_each(is_f64);
    const int64_t n = ref_count(out);
    const uint64_t seed = (uint64_t)ref_int(c->in->dtype, ref_get(c->in, 0));
    double v[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % each == 0) philox_group(seed, (uint64_t)(i / each), is_f64, is_normal, v);
        ref_put_real(out, i, is_f64 ? v[i % each] : (double)(float)v[i % each]);
    }
    return FUSOR_OK;
}
