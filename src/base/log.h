/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FU_LOG_H
#define FU_LOG_H
/* Events (FUSOR_VERBOSE: CSV lines, version and column line first), dumps (FUSOR_DEBUG) and the caller's log function.
 * Nothing is printed that was not asked for. */
#include "base/arena.h"
#include <stdbool.h>

typedef struct fu_log {
    void (*sink)(void *user, int level, const char *line); /* the context's log callback; may be NULL */
    void *user;
} fu_log;
/* One event: "fusor,1,<kind>,<fields...>\n" when FUSOR_VERBOSE holds kind (error|compile|cache|run|dispatch). fields
 * are CSV already. */
bool fu_log_on(const char *kind);
void fu_log_event(const fu_log *log, const char *kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A warning: to the sink at level 1 where there is one, to FUSOR_VERBOSE=error otherwise. Never to stderr unasked. */
void fu_log_warn(const fu_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A dump of a stage (FUSOR_DEBUG holds stage, or "pass=NAME"): to FUSOR_DUMP_DIR/<name>.<stage>, else stderr or
 * FUSOR_LOG_FILE. */
bool fu_dump_on(const char *stage);
void fu_dump(const char *stage, const char *name, const char *text);
int64_t fu_now_ns(void); /* CLOCK_MONOTONIC */
#endif
