/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* env.c: the table of environment variables and its readers. */
#include "base/env.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const fu_env_info fu_env_table[FU_ENV_COUNT] = {
#define ENV(name, type, def, text) {#name, #type, def, text},
#include "base/env.def"
#undef ENV
};

static const char *get(fu_env v) { return secure_getenv(fu_env_table[v].name); }

bool fu_env_is_set(fu_env v) {
    const char *s = get(v);
    return s && *s;
}

const char *fu_env_string(fu_env v) {
    const char *s = get(v);
    return s && *s ? s : fu_env_table[v].default_value;
}

/* A value that is no number counts as the default: the library prints nothing unasked, `fusor info` shows both. */
int64_t fu_env_int(fu_env v) {
    const char *try[2] = {fu_env_string(v), fu_env_table[v].default_value};
    for (int i = 0; i < 2; i++) {
        char *end;
        errno = 0;
        long long n = strtoll(try[i], &end, 10);
        if (!errno && end != try[i] && !*end) return n;
    }
    return 0;
}

static int as_bool(const char *s) {
    static const char *const yes[] = {"1", "on", "yes", "true"}, *const no[] = {"0", "off", "no", "false"};
    for (int i = 0; i < 4; i++) {
        if (!strcasecmp(s, yes[i])) return 1;
        if (!strcasecmp(s, no[i])) return 0;
    }
    return -1;
}

bool fu_env_bool(fu_env v) {
    int b = as_bool(fu_env_string(v));
    if (b < 0) b = as_bool(fu_env_table[v].default_value);
    return b > 0;
}

bool fu_env_has(fu_env v, const char *word) {
    size_t n = strlen(word);
    for (const char *p = fu_env_string(v); *p;) {
        size_t m = strcspn(p, ",");
        if ((m == n && !memcmp(p, word, n)) || (m == 3 && !memcmp(p, "all", 3))) return true;
        p += m;
        if (*p) p++;
    }
    return false;
}
