/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* json_check.c SCHEMA [PATH ...]: stdin is exactly one JSON document of this schema ("-": any, or none) that has a
 * value at each path ("check.0.ok"). */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_t *find(const json_t *at, char *path) {
    for (char *word = strtok(path, "."); word && at; word = strtok(NULL, "."))
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(word)) : json_object_get(at, word);
    return at;
}

int main(int argc, char **argv) {
    json_error_t why;
    json_t *d = json_loadf(stdin, 0, &why);
    if (!d) return printf("line %d: %s\n", why.line, why.text), 1;
    const char *schema = json_string_value(json_object_get(d, "schema"));
    if (argc > 1 && strcmp(argv[1], "-") != 0 && (!schema || strcmp(schema, argv[1]) != 0))
        return printf("schema %s, expected %s\n", schema ? schema : "none", argv[1]), 1;
    for (int i = 2; i < argc; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s", argv[i]);
        if (!find(d, path)) return printf("nothing at %s\n", argv[i]), 1;
    }
    json_decref(d);
    return 0;
}
