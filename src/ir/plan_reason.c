/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_reason.c: why two values are in different kernels: names for programs, texts for people, in the order of
 * ir_reason. */
#include "base/small.h"
#include "ir/plan.h"

const char *const ir_reason_names[IR_REASON_COUNT] = {
    "two-contractions",
    "contract-then-reduce",
    "reduce-other-axes",
    "reduce-into-contract",
    "different-space",
    "layout",
    "transposed",
    "indices",
    "recompute",
    "shared",
    "working-set",
    "registers",
    "scan",
    "attention",
    "no-lowering",
    "limit",
    "cycle",
    "alias",
    "part",
    "barrier",
    "user",
};
const char *const ir_reason_texts[IR_REASON_COUNT] = {
    "a contraction reads the whole result of another contraction, so that result must be complete first",
    "a reduction of a contraction's result needs more than whole rows of it, or what is made after it",
    "the consumer needs the reduction's result over other axes, or all of it, before its first element",
    "a contraction reads the reduction's result many times, so it is computed once",
    "the two iterate over spaces that do not map onto each other element by element",
    "a reshape or a layout change between them is no index map of one kernel",
    "it is transposed: the elements of a vector would be stored far from each other, so it is stored in order first",
    "indices that are computed are checked as a whole before they are used",
    "fusing would compute a costly or widely read value more than once",
    "several kernels need it, and it is fewer bytes than what it is made of",
    "what the reduction spans would have to be kept until it is complete, and that is no small row",
    "one kernel would have more accumulators than registers hold",
    "a running sum or product streams along its axis: what is not element by element with it is another kernel",
    "attention reads whole keys and values many times, and gives whole rows at once: what is not element by element "
    "with its result is another kernel",
    "there is no kernel for this operator and type: the reference evaluator computes it",
    "one kernel would exceed the limit on instructions or buffers",
    "a path between them leads through another kernel",
    "the old contents of an aliased parameter are read after this point, so the result is copied last",
    "it is made where a concatenation of it and values that kernels store lies, so that nothing is copied there",
    "a barrier asks that this value is stored before anything reads it",
    "fusion was switched off",
};
