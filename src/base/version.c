/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* version.c: the version of the library that runs, and the names of status codes. */
#include "fusor/type.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

int fusor_version(void) { return FUSOR_VERSION_MAJOR * 10000 + FUSOR_VERSION_MINOR * 100 + FUSOR_VERSION_PATCH; }

const char *fusor_version_string(void) {
    return TEXT(FUSOR_VERSION_MAJOR) "." TEXT(FUSOR_VERSION_MINOR) "." TEXT(FUSOR_VERSION_PATCH);
}

const char *fusor_status_name(fusor_status status) {
    /* ORDER fusor_status */
    static const char *const name[] = {
        "FUSOR_OK",
        "FUSOR_ERROR_ARGUMENT",
        "FUSOR_ERROR_SYNTAX",
        "FUSOR_ERROR_TYPE",
        "FUSOR_ERROR_SHAPE",
        "FUSOR_ERROR_INDEX",
        "FUSOR_ERROR_OVERLAP",
        "FUSOR_ERROR_STALE",
        "FUSOR_ERROR_MISS",
        "FUSOR_ERROR_MEMORY",
        "FUSOR_ERROR_IO",
        "FUSOR_ERROR_DEVICE",
        "FUSOR_ERROR_UNSUPPORTED",
        "FUSOR_ERROR_INTERNAL",
    };
    _Static_assert(sizeof name / sizeof *name == FUSOR_ERROR_INTERNAL + 1, "one name for each status");
    unsigned i = (unsigned)status;
    return i < sizeof name / sizeof *name ? name[i] : "?";
}
