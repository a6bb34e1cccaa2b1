/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TESTS_SHARE_H
#define TESTS_SHARE_H
/* Of programs and cases that are much alike (other types, shapes, places of a change), ./check runs all, and
 * ./check --ci one in FUSOR_TEST_SHARE, always the same ones. Small sets, whose members differ in kind, are whole. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t test_share(void) {
    const char *text = getenv("FUSOR_TEST_SHARE");
    const long n = text ? strtol(text, NULL, 10) : 1;
    return n > 1 ? (uint64_t)n : 1;
}
/* number: a hash of the case, or its place among cases that do not repeat. */
static inline bool is_in_share(uint64_t number) { return number % test_share() == 0; }
/* number: its place among cases of which every few are of one kind or level. */
static inline bool is_in_mixed_share(uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9; /* splitmix64 */
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return is_in_share(number ^ number >> 31);
}
#endif
