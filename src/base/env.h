/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FU_ENV_H
#define FU_ENV_H
/* Environment variables, one row each in env.def. Values are read at each call (tests change them); the context
 * reads what it needs once when it is made. Set-user-id programs see the defaults (secure_getenv). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fu_env {
#define ENV(name, type, def, words, text) FU_##name,
#include "base/env.def"
#undef ENV
    FU_ENV_COUNT
} fu_env;
typedef struct fu_env_info {
    const char *name, *type, *default_value, *words, *text;
} fu_env_info;
extern const fu_env_info fu_env_table[FU_ENV_COUNT];

const char *
fu_env_string(fu_env v); /* the variable's value, or its default; never NULL. Borrowed from the environment */
int64_t fu_env_int(fu_env v);
bool fu_env_bool(fu_env v);
bool fu_env_is_set(fu_env v);
/* Is `word` an element of the comma-separated value? "all" holds every word. */
bool fu_env_has(fu_env v, const char *word);
/* What was expected where the value is of another type; NULL where it is right. In `text` (of `bytes`). */
const char *fu_env_expected(fu_env v, char *text, size_t bytes);
#endif
