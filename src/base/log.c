/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* log.c: verbose events, warnings and dumps. Each line leaves with one write(2) to a file opened for appending, so
 * lines of several threads and processes do not mix. Nothing here allocates: warnings come from failing paths too. */
#include "base/small.h"
#include "base/log.h"
#include "base/env.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The first line names the version of the format and its common columns. */
#define FORMAT_LINE "# fusor,1: marker,version,kind,fields\n"
enum { LINE_BYTES = 4096 };

bool fu_log_on(const char *kind) { return fu_env_has(FU_FUSOR_VERBOSE, kind); }

bool fu_dump_on(const char *stage) { return fu_env_has(FU_FUSOR_DEBUG, stage); }

int64_t fu_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void write_all(int fd, const char *text, size_t n) {
    (void)fu_write_parts(fd, &(fu_part){text, n}, 1); /* nobody to tell */
}

/* FUSOR_LOG_FILE or stderr. Opened for each use: tests and long-running services move the file. */
static int open_log(void) {
    const char *path = fu_env_string(FU_FUSOR_LOG_FILE);
    if (*path) {
        int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0) return fd;
        static atomic_flag is_told = ATOMIC_FLAG_INIT;
        const int why = errno;
        if (!atomic_flag_test_and_set(&is_told))
            dprintf(STDERR_FILENO, "fusor: FUSOR_LOG_FILE=%s: %s; events go here\n", path, strerror(why));
    }
    return STDERR_FILENO;
}

static void close_log(int fd) {
    if (fd != STDERR_FILENO) close(fd);
}

static void emit(const char *kind, const char *fmt, va_list ap) {
    static atomic_flag has_format_line = ATOMIC_FLAG_INIT;
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof line, "fusor,1,%s,", kind);
    if (n < 0 || n >= LINE_BYTES - 2) return;
    int m = vsnprintf(line + n, (size_t)(LINE_BYTES - n), fmt, ap);
    size_t length = m < 0 ? (size_t)n : (size_t)n + (size_t)m;
    if (length > LINE_BYTES - 2) length = LINE_BYTES - 2;
    line[length++] = '\n';
    int fd = open_log();
    if (!atomic_flag_test_and_set(&has_format_line)) write_all(fd, FORMAT_LINE, sizeof FORMAT_LINE - 1);
    write_all(fd, line, length);
    close_log(fd);
}

void fu_log_event(const fu_log *log, const char *kind, const char *fmt, ...) {
    (void)log;
    if (!fu_log_on(kind)) return;
    va_list ap;
    va_start(ap, fmt);
    emit(kind, fmt, ap);
    va_end(ap);
}

void fu_log_warn(const fu_log *log, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (log && log->sink) {
        char line[LINE_BYTES];
        vsnprintf(line, sizeof line, fmt, ap);
        log->sink(log->user, 1, line);
    } else if (fu_log_on("error")) {
        emit("error", fmt, ap);
    }
    va_end(ap);
}

void fu_dump(const char *stage, const char *name, const char *text) {
    const char *dir = fu_env_string(FU_FUSOR_DUMP_DIR);
    size_t n = strlen(text);
    if (*dir) {
        char file[256], path[4096];
        /* Names come from user text: no way out of the directory. */
        int m = snprintf(file, sizeof file, "%s.%s", name, stage);
        if (m < 0) return;
        for (char *p = file; *p; p++)
            if (*p == '/' || (unsigned char)*p < 0x20) *p = '_';
        if (file[0] == '.') file[0] = '_';
        m = snprintf(path, sizeof path, "%s/%s", dir, file);
        if (m > 0 && (size_t)m < sizeof path) {
            int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
            if (fd >= 0) {
                write_all(fd, text, n);
                close(fd);
                return;
            }
        }
    }
    int fd = open_log();
    char head[512];
    int m = snprintf(head, sizeof head, "# ---- %s: %s\n", stage, name);
    if (m > 0) write_all(fd, head, (size_t)m < sizeof head ? (size_t)m : sizeof head - 1);
    write_all(fd, text, n);
    if (n && text[n - 1] != '\n') write_all(fd, "\n", 1);
    close_log(fd);
}
