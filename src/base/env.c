/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* env.c: the table of environment variables and its readers. */
#include "base/small.h"
#include "base/env.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const fu_env_info fu_env_table[FU_ENV_COUNT] = {
#define ENV(name, type, def, words, text) {#name, #type, def, words, text},
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

/* Within the bounds of the row, if it has any. */
static bool as_int(fu_env v, const char *s, int64_t *out) {
    long long least, most;
    char *end;
    errno = 0;
    long long n = strtoll(s, &end, 10);
    if (errno || end == s || *end) return false;
    if (sscanf(fu_env_table[v].words, "%lld %lld", &least, &most) == 2 && (n < least || n > most)) return false;
    *out = n;
    return true;
}

int64_t fu_env_int(fu_env v) {
    int64_t n = 0;
    if (!as_int(v, fu_env_string(v), &n)) (void)as_int(v, fu_env_table[v].default_value, &n);
    return n;
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

/* Is p, of n characters, one of the words? */
static bool is_word(const char *words, const char *p, size_t n) {
    for (size_t m; *words; words += m + (words[m] == ' ')) {
        m = strcspn(words, " ");
        if (n == m && !memcmp(words, p, m)) return true;
    }
    return false;
}

const char *fu_env_expected(fu_env v, char *text, size_t bytes) {
    const fu_env_info *row = &fu_env_table[v];
    const char *s = fu_env_string(v);
    const bool is_list = row->type[0] == 'L';
    int64_t n;
    if (!fu_env_is_set(v) || row->type[0] == 'S') return NULL;
    if (row->type[0] == 'I') {
        const size_t least = strcspn(row->words, " ");
        if (as_int(v, s, &n)) return NULL;
        if (!row->words[0]) return "a number";
        snprintf(text, bytes, "a number from %.*s to %s", (int)least, row->words, row->words + least + 1);
        return text;
    }
    if (row->type[0] == 'B') return as_bool(s) >= 0 ? NULL : "0 or 1";
    for (size_t m; *s; s += m + (s[m] == ',')) {
        m = is_list ? strcspn(s, ",") : strlen(s);
        if (m == 0 || is_word(row->words, s, m)) continue;
        snprintf(text, bytes, "%s of: %s", is_list ? "some" : "one", row->words);
        return text;
    }
    return NULL;
}
