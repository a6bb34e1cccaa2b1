/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_test.c: devices, queues, memory, copies and kernels, on the fake driver: work runs as late as it may, or in the other
 * order, so that what is not ordered by events shows.
 *
 * In one file because all parts use the same few kernels, queues and counters of the driver, and because the last
 * tests fail every function of the driver and every allocation of one scenario that goes through all of them. */
#include "../cuda/on_fake.h"
#include "rt/cubin.h"
#include "rt/device.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static _Thread_local fu_error error;
static rt_device *device;
#define OK(CALL)                                                                                                       \
    do {                                                                                                               \
        fu_error_clear(&error);                                                                                        \
        cr_assert_eq((CALL), FUSOR_OK, "%s: %s", #CALL, error.text);                                                   \
    } while (0)
#define FAILS(CALL, STATUS, WORDS)                                                                                     \
    do {                                                                                                               \
        fu_error_clear(&error);                                                                                        \
        cr_assert_eq((CALL), STATUS, "%s: %s", #CALL, error.text);                                                     \
        cr_assert(strstr(error.text, WORDS), "%s: %s", #CALL, error.text);                                             \
    } while (0)

static rt_queue *open_queue(void) {
    rt_queue *q;
    OK(rt_device_open(&error, 0, &device));
    OK(rt_queue_new(device, &error, &q));
    return q;
}

/* y[i] = x[i] + v for i < n, of u32 */
typedef struct add_words {
    uint64_t x, y, n, v;
} add_words;
static const char add_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry add(.param .align 8 .b8 p[32])\n.maxntid 256\n{\n"
    ".reg .pred %p<2>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<6>;\n"
    "ld.param.u64 %rd1, [p];\nld.param.u64 %rd2, [p+8];\nld.param.u32 %r1, [p+16];\nld.param.u32 %r6, [p+24];\n"
    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\nmad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "setp.ge.u32 %p1, %r5, %r1;\n@%p1 ret;\nmul.wide.u32 %rd3, %r5, 4;\nadd.s64 %rd4, %rd1, %rd3;\n"
    "add.s64 %rd5, %rd2, %rd3;\nld.global.u32 %r2, [%rd4];\nadd.s32 %r3, %r2, %r6;\nst.global.u32 [%rd5], "
    "%r3;\nret;\n}\n";

static rt_kernel *new_kernel(const char *ptx, int number) {
    rt_kernel *k = fu_calloc(1, sizeof *k);
    k->ptx = ptx;
    k->ptx_bytes = strlen(ptx);
    strcpy(k->symbol, "add");
    k->key[0] = (uint8_t)number;
    k->description = (char *)(uintptr_t) "d\n";
    k->description_bytes = 2;
    atomic_init(&k->refs, 1);
    return k;
}

static rt_device_kernel *get_add(void) {
    rt_kernel *k = new_kernel(add_ptx, 1);
    rt_device_kernel *out;
    OK(rt_device_kernel_get(device, &error, k, &out));
    rt_kernel_release(k); /* the device's holds it */
    return out;
}

static fusor_status add(rt_queue *q, const rt_device_kernel *k, rt_address x, rt_address y, size_t n, uint32_t v) {
    add_words w = {x, y, n, v};
    rt_launch l = {.kernel = k,
                   .grid = {(uint32_t)((n + 255) / 256), 1, 1},
                   .block = {256, 1, 1},
                   .param = &w,
                   .param_bytes = sizeof w};
    fusor_status s = rt_queue_launch(q, &error, &l);
    memset(&w, 0xff, sizeof w); /* it was copied */
    return s;
}

/* ---- devices ---- */
Test(device, information) {
    on_fake("FAKECUDA_DEVICES", "2", "FAKECUDA_MEMORY", "1G", NULL);
    int n;
    rt_device *again, *other;
    rt_device_info i;
    OK(rt_device_count(&error, &n));
    cr_assert_eq(n, 2);
    OK(rt_device_open(&error, 0, &device));
    OK(rt_device_open(&error, 0, &again));
    OK(rt_device_open(&error, 1, &other));
    cr_assert(device == again && device != other);
    OK(rt_device_describe(&error, 1, &i));
    cr_assert_eq(i.ordinal, 1);
    const rt_device_info *d = rt_device_get_info(device);
    cr_assert(d->cc == 90 && d->target.level == IR_LEVEL_SM90A && d->driver_version == 13000 && d->name[0]);
    cr_assert(d->memory_bytes == (int64_t)1 << 30 && d->multiprocessors > 0 && d->shared_bytes > 48 << 10);
    cr_assert(strncmp(d->uuid, "GPU-", 4) == 0 && strlen(d->uuid) == 40, "%s", d->uuid);
    FAILS(rt_device_open(&error, 2, &other), FUSOR_ERROR_DEVICE, "no device cuda:2; the driver has 2");
    FAILS(rt_device_open(&error, -1, &other), FUSOR_ERROR_DEVICE, "cuda:-1");
}

#define TARGET(NAME, CC, VERSION, LEVEL)                                                                               \
    Test(device, NAME) {                                                                                               \
        on_fake("FAKECUDA_CC", CC, "FAKECUDA_VERSION", VERSION, NULL);                                                 \
        OK(rt_device_open(&error, 0, &device));                                                                        \
        cr_assert_eq(rt_device_get_info(device)->target.level, LEVEL);                                                 \
    }
TARGET(target_of_7, "70", "12000", IR_LEVEL_SM70)
TARGET(target_of_8, "86", "12000", IR_LEVEL_SM80)
TARGET(target_of_9_with_an_old_driver, "90", "11080", IR_LEVEL_SM80)
TARGET(target_of_12, "120", "13000", IR_LEVEL_SM80)

Test(device, none) {
    on_fake("FAKECUDA_DEVICES", "0", NULL);
    int n = 7;
    FAILS(rt_device_count(&error, &n), FUSOR_ERROR_DEVICE, "no ");
    cr_assert_eq(n, 0);
}

/* ---- copies and kernels ---- */
static uint32_t *numbers(size_t n, uint32_t first) {
    uint32_t *p = malloc(n * 4 + 4);
    for (size_t i = 0; i < n; i++) p[i] = first + (uint32_t)i;
    return p;
}

/* Up, a kernel, down; what was copied from changes at once. */
static void round_trip(rt_queue *q, const rt_device_kernel *k, size_t n, bool later) {
    rt_address x, y;
    uint32_t *data = numbers(n, 3), *back = numbers(n, 0);
    OK(rt_queue_get(q, &error, 4 * n, &x));
    OK(rt_queue_get(q, &error, 4 * n, &y));
    cr_assert(x % 256 == 0 && y % 256 == 0 && x != y);
    OK(rt_queue_upload(q, &error, x, data, 4 * n));
    memset(data, 0x55, 4 * n);
    OK(add(q, k, x, y, n, 5));
    if (later) {
        OK(rt_queue_download_later(q, &error, back, y, 4 * n));
        rt_queue_put(q, x);
        rt_queue_put(q, y);
        OK(rt_queue_wait(q, &error));
    } else {
        OK(rt_queue_download(q, &error, back, y, 4 * n));
        rt_queue_put(q, x);
        rt_queue_put(q, y);
    }
    for (size_t i = 0; i < n; i++) cr_assert_eq(back[i], 8 + (uint32_t)i, "%zu of %zu: %u", i, n, back[i]);
    free(data);
    free(back);
}

static void round_trips(const char *order) {
    on_fake("FAKECUDA_ORDER", order, NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    static const size_t sizes[] = {1, 7, 1000, 16384, 16385, 100000, 600000, 2500000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        round_trip(q, k, sizes[i], false);
        if (sizes[i] < 1000000) round_trip(q, k, sizes[i], true);
    }
    rt_device_kernel_release(k);
    rt_queue_free(q);
    rt_device_trim(device);
    static const char *const kinds[] = {"memory", "host", "stream", "event", "pending"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) cr_assert_eq(fake_live(kinds[i]), 0, "%s", kinds[i]);
}
Test(device, round_trips_lazy) { round_trips("lazy"); }
Test(device, round_trips_reverse) { round_trips("reverse"); }
Test(device, round_trips_eager) { round_trips("eager"); }

/* Pinned memory of a queue serves the next one. */
Test(device, queues_come_and_go) {
    on_fake(NULL);
    uint32_t *data = numbers(50000, 1);
    for (int i = 0; i < 3; i++) {
        rt_queue *q = open_queue();
        rt_address x;
        OK(rt_queue_get(q, &error, 200000, &x));
        OK(rt_queue_upload(q, &error, x, data, 200000));
        OK(rt_queue_upload(q, &error, x, data, 20));
        OK(rt_queue_download(q, &error, data, x, 200000));
        rt_queue_put(q, x);
        rt_queue_free(q);
    }
    cr_assert_eq(fake_count("cuMemHostAlloc"), 3); /* one a lane */
    cr_assert_eq(fake_count("cuMemAlloc_v2"), 1);
    rt_device_trim(device);
    cr_assert_eq(fake_live("host"), 0);
    free(data);
}

Test(device, nothing_to_do) {
    on_fake(NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    rt_address at;
    OK(rt_queue_get(q, &error, 0, &at));
    cr_assert(at);
    OK(rt_queue_upload(q, &error, at, NULL, 0));
    OK(rt_queue_download(q, &error, NULL, at, 0));
    OK(rt_queue_copy(q, &error, at, at, 0));
    OK(rt_queue_fill(q, &error, at, 1, 0));
    OK(add(q, k, at, at, 0, 0)); /* a grid of no blocks */
    OK(rt_queue_wait(q, &error));
    rt_queue_put(q, 0);
    rt_queue_put(q, 4096); /* nobody's */
    rt_queue_put(q, at);
    rt_queue_put(q, at); /* twice */
    rt_queue_free(NULL);
    rt_device_kernel_release(NULL);
    cr_assert_eq(rt_queue_device(q), device);
    rt_queue_free(q);
}

/* Random operations on a queue and, as they are put on it, on memory of the host: the same contents in the end, in every order that
 * the driver may choose. Buffers of both sides of the limit between the lanes. */
enum { BUFFERS = 6, SMALL = 900, LARGE = 20000 };
static uint64_t random_state;
static uint32_t rnd(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}
typedef struct mirror {
    rt_address at;
    size_t n;
    uint32_t *host, *back; /* back: of a download that is on its way, or NULL */
    uint32_t *expected;
} mirror;

static void check_back(mirror *m) {
    if (!m->back) return;
    cr_assert_eq(memcmp(m->back, m->expected, 4 * m->n), 0);
    free(m->back);
    free(m->expected);
    m->back = m->expected = NULL;
}

static void renew(rt_queue *q, mirror *m, bool is_first) {
    if (!is_first) rt_queue_put(q, m->at);
    m->n = rnd(2) ? SMALL : LARGE + rnd(2) * 300000;
    OK(rt_queue_get(q, &error, 4 * m->n, &m->at));
    OK(rt_queue_fill(q, &error, m->at, 7, 4 * m->n));
    m->host = realloc(m->host, 4 * m->n);
    memset(m->host, 7, 4 * m->n);
}

static void random_operation(rt_queue *q, const rt_device_kernel *k, mirror *m) {
    mirror *a = &m[rnd(BUFFERS)], *b = &m[rnd(BUFFERS)];
    size_t n = a->n < b->n ? a->n : b->n;
    uint32_t *data;
    switch (rnd(9)) {
    case 0:
    case 1:
        data = numbers(a->n, rnd(1000));
        OK(rt_queue_upload(q, &error, a->at, data, 4 * a->n));
        memcpy(a->host, data, 4 * a->n);
        memset(data, 0x77, 4 * a->n);
        free(data);
        break;
    case 2:
    case 3:
        if (n > LARGE) n = LARGE; /* what the interpreter does quickly */
        OK(add(q, k, a->at, b->at, n, 11));
        for (size_t i = 0; i < n; i++) b->host[i] = a->host[i] + 11;
        break;
    case 4:
        if (a == b) break;
        OK(rt_queue_copy(q, &error, b->at, a->at, 4 * n));
        memcpy(b->host, a->host, 4 * n);
        break;
    case 5:
        if (a->back) break;
        a->back = malloc(4 * a->n);
        a->expected = memcpy(malloc(4 * a->n), a->host, 4 * a->n);
        OK(rt_queue_download_later(q, &error, a->back, a->at, 4 * a->n));
        break;
    case 6:
        data = malloc(4 * a->n);
        OK(rt_queue_download(q, &error, data, a->at, 4 * a->n));
        cr_assert_eq(memcmp(data, a->host, 4 * a->n), 0);
        free(data);
        break;
    case 7:
        if (!a->back) renew(q, a, false);
        break;
    default:
        OK(rt_queue_wait(q, &error));
        for (int i = 0; i < BUFFERS; i++) check_back(&m[i]);
    }
}

static void random_programs(const char *order) {
    on_fake("FAKECUDA_ORDER", order, NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    for (uint64_t seed = 1; seed <= 12; seed++) {
        mirror m[BUFFERS] = {0};
        random_state = seed;
        for (int i = 0; i < BUFFERS; i++) renew(q, &m[i], true);
        for (int i = 0; i < 80; i++) random_operation(q, k, m);
        OK(rt_queue_wait(q, &error));
        for (int i = 0; i < BUFFERS; i++) {
            check_back(&m[i]);
            uint32_t *data = malloc(4 * m[i].n);
            OK(rt_queue_download(q, &error, data, m[i].at, 4 * m[i].n));
            cr_assert_eq(memcmp(data, m[i].host, 4 * m[i].n), 0, "seed %llu, buffer %d", (unsigned long long)seed, i);
            rt_queue_put(q, m[i].at);
            free(data);
            free(m[i].host);
        }
    }
    rt_queue_free(q);
}
Test(device, random_programs_lazy, .timeout = 120) { random_programs("lazy"); }
Test(device, random_programs_reverse, .timeout = 120) { random_programs("reverse"); }

/* What is on its way from memory that is written again, by a copy or by a kernel, whether it was given back between or not. */
static void written_again(const char *order) {
    on_fake("FAKECUDA_ORDER", order, NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    enum { N = 300000, FEW = 100 };
    uint32_t *first = numbers(N, 1), *second = numbers(N, 500), *back = numbers(N, 0), *more = numbers(N, 0);
    for (int how = 0; how < 5; how++) {
        rt_address x, y;
        OK(rt_queue_get(q, &error, 4 * N, &x));
        OK(rt_queue_get(q, &error, 4 * N, &y));
        OK(rt_queue_upload(q, &error, x, first, 4 * N));
        OK(rt_queue_fill(q, &error, y, 0, 4 * N));
        OK(rt_queue_wait(q, &error));
        if (how < 4) OK(rt_queue_download_later(q, &error, back, x, 4 * N));
        if (how == 0) OK(rt_queue_upload(q, &error, x, second, 4 * N));
        if (how == 1) OK(add(q, k, x, x, 20000, 9));
        if (how == 2 || how == 3) {
            rt_address again;
            rt_queue_put(q, x);
            OK(rt_queue_get(q, &error, 4 * N, &again));
            cr_assert_eq(x, again);
            if (how == 2) OK(rt_queue_upload(q, &error, x, second, 4 * N));
            else OK(add(q, k, x, x, 20000, 9));
        }
        if (how == 4) { /* a kernel reads what was given back before the copy */
            OK(add(q, k, x, y, 20000, 9));
            rt_queue_put(q, x);
            OK(rt_queue_get(q, &error, 4 * N, &x));
            OK(rt_queue_upload(q, &error, x, second, 4 * N));
            OK(rt_queue_download(q, &error, back, y, 80000));
            for (uint32_t i = 0; i < 20000; i++) cr_assert_eq(back[i], i + 10);
        } else {
            OK(rt_queue_wait(q, &error));
            cr_assert_eq(memcmp(back, first, 4 * N), 0, "%d", how);
        }
        /* The later of two downloads to the same memory stays. */
        OK(rt_queue_download_later(q, &error, more, y, 4 * N));
        OK(rt_queue_upload(q, &error, y, second, 4 * FEW));
        OK(rt_queue_download(q, &error, more, y, 4 * FEW));
        OK(rt_queue_wait(q, &error));
        cr_assert_eq(memcmp(more, second, 4 * FEW), 0, "%d", how);
        rt_queue_put(q, x);
        rt_queue_put(q, y);
    }
    free(first);
    free(second);
    free(back);
    free(more);
    rt_queue_free(q);
}
Test(device, written_again_lazy) { written_again("lazy"); }
Test(device, written_again_reverse) { written_again("reverse"); }

/* ---- what a call costs ---- */
static const char *const all_functions[] = {
#define CUDA(NEED, SYMBOL, PARAMETERS) #SYMBOL,
#include "rt/cuda_api.def"
#undef CUDA
};
static long all_calls(void) {
    long n = 0;
    for (size_t i = 0; i < sizeof all_functions / sizeof *all_functions; i++) n += fake_count(all_functions[i]);
    return n;
}

Test(device, calls_of_the_driver) {
    on_fake(NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    rt_address x, y;
    uint32_t data[64] = {0};
    for (int i = 0; i < 3; i++) { /* the first makes streams and memory */
        OK(rt_queue_get(q, &error, sizeof data, &x));
        OK(rt_queue_get(q, &error, sizeof data, &y));
        OK(rt_queue_upload(q, &error, x, data, sizeof data));
        long before = all_calls();
        OK(add(q, k, x, y, 64, 1));
        cr_assert_eq(all_calls() - before, 3); /* the context current, the launch, the context as it was */
        before = all_calls();
        OK(add(q, k, x, y, 64, 1));
        OK(add(q, k, y, x, 64, 1));
        cr_assert_eq(all_calls() - before, 6);
        OK(rt_queue_download(q, &error, data, y, sizeof data));
        rt_queue_put(q, x);
        rt_queue_put(q, y);
    }
    long before = all_calls();
    OK(rt_queue_get(q, &error, 100, &x)); /* from the pool, and back */
    rt_queue_put(q, x);
    cr_assert_eq(all_calls() - before, 0);
    OK(rt_queue_get(q, &error, sizeof data, &x));
    before = all_calls();
    OK(rt_queue_upload(q, &error, x, data, sizeof data));
    cr_assert_eq(all_calls() - before, 3);
    before = all_calls();
    OK(rt_queue_download(q, &error, data, x, sizeof data));
    cr_assert_eq(all_calls() - before, 4); /* and the wait */
    before = all_calls();
    OK(rt_queue_wait(q, &error));
    cr_assert_eq(all_calls() - before, 2); /* nothing is on its way */
    rt_queue_free(q);
}

/* A large copy to the device waits for kernels where its memory may be theirs, and only there. */
Test(device, large_copies_overlap) {
    on_fake(NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    enum { N = 400000 };
    rt_address x[3], fresh;
    uint32_t *data = numbers(N, 0);
    for (int i = 0; i < 3; i++) {
        OK(rt_queue_get(q, &error, 4 * N, &x[i]));
        OK(rt_queue_upload(q, &error, x[i], data, 4 * N));
    }
    OK(add(q, k, x[0], x[0], 10, 1));
    OK(rt_queue_get(q, &error, 4 * N, &fresh));
    long waits = fake_count("cuStreamWaitEvent");
    OK(rt_queue_upload(q, &error, fresh, data, 4 * N));
    cr_assert_eq(fake_count("cuStreamWaitEvent"), waits); /* got after the launch */
    OK(rt_queue_upload(q, &error, x[1], data, 4 * N));
    cr_assert_eq(fake_count("cuStreamWaitEvent"), waits + 1); /* was there before it */
    /* Given back before a launch and got again after it: waits for what came before, not for the launch. */
    OK(rt_queue_wait(q, &error));
    OK(add(q, k, x[0], x[0], 10, 1));
    rt_queue_put(q, x[0]);
    OK(add(q, k, x[1], x[1], 10, 1));
    rt_queue_put(q, x[1]);
    OK(rt_queue_get(q, &error, 4 * N, &x[0])); /* the longest unused */
    long records = fake_count("cuEventRecord");
    waits = fake_count("cuStreamWaitEvent");
    OK(rt_queue_upload(q, &error, x[0], data, 70000));
    cr_assert_eq(fake_count("cuStreamWaitEvent"), waits + 1);
    cr_assert_eq(fake_count("cuEventRecord"), records); /* at the event of when it was given back */
    free(data);
    rt_queue_free(q);
}

/* ---- memory ---- */
Test(device, memory_comes_again) {
    on_fake("FAKECUDA_MEMORY", "256M", NULL);
    rt_queue *q = open_queue(), *other;
    rt_device_kernel *k = get_add();
    OK(rt_queue_new(device, &error, &other));
    rt_address a, b, c;
    int64_t free_before, free_after;
    OK(rt_queue_get(q, &error, 5000, &a));
    OK(rt_queue_fill(q, &error, a, 0, 5000));
    OK(add(q, k, a, a, 10, 1));
    rt_queue_put(q, a);
    OK(rt_queue_get(other, &error, 5000, &b)); /* the kernel may run still */
    cr_assert_neq(a, b);
    OK(rt_queue_get(q, &error, 4900, &c)); /* but what q puts behind it */
    cr_assert_eq(a, c);
    rt_queue_put(q, c);
    OK(rt_queue_wait(q, &error));
    OK(rt_queue_get(other, &error, 5000, &c)); /* it is done */
    cr_assert_eq(a, c);
    rt_queue_put(q, c); /* of another queue: allowed */
    rt_queue_put(other, b);
    OK(rt_queue_wait(other, &error));
    OK(rt_device_free_bytes(device, &error, &free_before));
    rt_device_trim(device);
    OK(rt_device_free_bytes(device, &error, &free_after));
    cr_assert(free_after >= free_before);
    cr_assert_eq(fake_live("memory"), 0);
    rt_queue_free(other);
    OK(rt_queue_get(q, &error, 1000, &a));
    rt_queue_free(q); /* with memory that was not given back: it is the caller's still */
    cr_assert_eq(fake_live("memory"), 1);
}

Test(device, no_memory) {
    on_fake("FAKECUDA_MEMORY", "64M", NULL);
    rt_queue *q = open_queue(), *other;
    OK(rt_queue_new(device, &error, &other));
    rt_address a[8] = {0}, b;
    int n = 0;
    fu_error_clear(&error);
    while (n < 8 && rt_queue_get(q, &error, 20 << 20, &a[n]) == FUSOR_OK) n++;
    cr_assert_eq(n, 3);
    cr_assert_eq(error.status, FUSOR_ERROR_MEMORY);
    cr_assert(strstr(error.text, "no memory for 20971520 bytes"), "%s", error.text);
    cr_assert(strstr(error.text, "62914560 are in use here"), "%s", error.text);
    FAILS(rt_queue_get(q, &error, (size_t)1 << 60, &b), FUSOR_ERROR_MEMORY, "no memory for 1152921504606846976 bytes");
    FAILS(rt_queue_get(q, &error, SIZE_MAX, &b), FUSOR_ERROR_MEMORY, "no memory");
    /* What lies unused in other classes makes room ... */
    rt_queue_put(q, a[0]);
    rt_queue_put(q, a[1]);
    OK(rt_queue_get(q, &error, 40 << 20, &b));
    rt_queue_put(q, b);
    /* ... what another queue's work may use still too, after a wait for it. */
    OK(rt_queue_get(other, &error, 30 << 20, &a[0]));
    OK(rt_queue_fill(other, &error, a[0], 1, 1000));
    rt_queue_put(other, a[0]);
    OK(rt_queue_get(q, &error, 41 << 20, &b));
    rt_queue_free(other);
    rt_queue_free(q);
}

Test(device, an_allocation_that_fails_once) {
    on_fake("FAKECUDA_FAIL", "cuMemAlloc_v2:2=2,cuMemAlloc_v2:4=2", NULL);
    rt_queue *q = open_queue();
    rt_address a, b, c;
    OK(rt_queue_get(q, &error, 1000, &a));
    FAILS(rt_queue_get(q, &error, 100000, &b), FUSOR_ERROR_MEMORY, "no memory for 100000 bytes");
    OK(rt_queue_get(q, &error, 100000, &b));
    rt_queue_put(q, b);
    OK(rt_queue_get(q, &error, 1000000, &c)); /* the fourth fails, the fifth after giving b back */
    cr_assert_eq(fake_live("memory"), 2);
    rt_queue_free(q);
}

/* ---- errors ---- */
Test(device, a_context_that_died) {
    on_fake("FAKECUDA_FAIL", "cuLaunchKernel:2=719@", NULL);
    rt_queue *q = open_queue(), *other;
    rt_device_kernel *k = get_add();
    OK(rt_queue_new(device, &error, &other));
    rt_address x;
    uint32_t data[100] = {0};
    OK(rt_queue_get(q, &error, sizeof data, &x));
    OK(rt_queue_upload(q, &error, x, data, sizeof data));
    OK(add(q, k, x, x, 100, 1));
    OK(add(q, k, x, x, 100, 1)); /* it fails when it runs */
    FAILS(rt_queue_wait(q, &error), FUSOR_ERROR_DEVICE, "CUDA_ERROR_LAUNCH_FAILED");
    cr_assert(strstr(error.text, "context is lost"), "%s", error.text);
    /* From now on every call says so, on every queue. */
    rt_address at;
    rt_queue *more;
    int id;
    FAILS(rt_queue_wait(other, &error), FUSOR_ERROR_DEVICE, "an earlier kernel or copy failed");
    FAILS(add(other, k, x, x, 100, 1), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_get(other, &error, 10, &at), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_upload(q, &error, x, data, 4), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_download(q, &error, data, x, 4), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_mark(q, &error, &id), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_follow(q, &error, other), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_new(device, &error, &more), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    rt_kernel *again = new_kernel(add_ptx, 9);
    rt_device_kernel *loaded;
    FAILS(rt_device_kernel_get(device, &error, again, &loaded), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    rt_kernel_release(again);
    rt_queue_put(q, x);
    rt_device_trim(device);
    rt_device_kernel_release(k);
    rt_queue_free(other);
    rt_queue_free(q);
}

Test(device, an_error_of_one_call) {
    on_fake("FAKECUDA_FAIL", "cuLaunchKernel:1=1", NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    rt_address x;
    OK(rt_queue_get(q, &error, 400, &x));
    OK(rt_queue_fill(q, &error, x, 0, 400));
    FAILS(add(q, k, x, x, 100, 1), FUSOR_ERROR_DEVICE, "launching add: grid 1x1x1, block 256x1x1");
    OK(add(q, k, x, x, 100, 1));
    OK(rt_queue_wait(q, &error));
    rt_queue_free(q);
}

/* What kernels find wrong is an error of a wait. */
Test(device, memory_that_nobody_has) {
    on_fake(NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    OK(add(q, k, 4096, 4096, 100, 1));
    FAILS(rt_queue_wait(q, &error), FUSOR_ERROR_DEVICE, "ILLEGAL_ADDRESS");
    rt_queue_free(q);
}

#define LOAD_ERROR(NAME, PTX, SETTING, VALUE, WORDS)                                                                   \
    Test(device, NAME) {                                                                                               \
        on_fake(SETTING, VALUE, NULL);                                                                                 \
        OK(rt_device_open(&error, 0, &device));                                                                        \
        rt_kernel *k = new_kernel(PTX, 1);                                                                             \
        rt_device_kernel *out = NULL;                                                                                  \
        FAILS(rt_device_kernel_get(device, &error, k, &out), FUSOR_ERROR_DEVICE, WORDS);                               \
        FAILS(rt_device_kernel_get(device, &error, k, &out), FUSOR_ERROR_DEVICE, "loading kernel add");                \
        rt_kernel_release(k);                                                                                          \
    }
LOAD_ERROR(ptx_is_too_new, add_ptx, "FAKECUDA_PTX", "6.4", "version 7.0, newer than this driver (CUDA 13.0)")
LOAD_ERROR(no_compiler, add_ptx, "FAKECUDA_FAIL", "cuModuleLoadDataEx:*=221", "libnvidia-ptxjitcompiler")
LOAD_ERROR(compiling_is_off, add_ptx, "FAKECUDA_FAIL", "cuModuleLoadDataEx:*=223", "CUDA_DISABLE_PTX_JIT")
LOAD_ERROR(wrong_target, add_ptx, "FAKECUDA_CC", "70", "PTX 7.0 for sm_80; the device has compute capability 7.0")
LOAD_ERROR(wrong_text, ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry add() { frob.u32 %r1; }\n",
           "FAKECUDA_CC", "90", "the driver says: ")

Test(device, a_kernel_of_a_cpu) {
    on_fake(NULL);
    OK(rt_device_open(&error, 0, &device));
    rt_kernel *k = new_kernel(add_ptx, 1);
    rt_device_kernel *out;
    k->ptx = NULL;
    FAILS(rt_device_kernel_get(device, &error, k, &out), FUSOR_ERROR_ARGUMENT, "is for a CPU");
    rt_kernel_release(k);
}

Test(device, kernels_of_another_device) {
    on_fake("FAKECUDA_DEVICES", "2", NULL);
    rt_queue *q = open_queue(), *second;
    rt_device *other;
    rt_device_kernel *k = get_add();
    OK(rt_device_open(&error, 1, &other));
    OK(rt_queue_new(other, &error, &second));
    FAILS(add(second, k, 0, 0, 1, 1), FUSOR_ERROR_ARGUMENT, "was loaded on cuda:0; the queue is of cuda:1");
    FAILS(rt_queue_follow(second, &error, q), FUSOR_ERROR_ARGUMENT, "cannot follow");
    rt_queue_free(q);
    rt_queue_free(second);
}

/* ---- shared memory ---- */
Test(device, dynamic_shared_memory) {
    on_fake(NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    rt_address x;
    OK(rt_queue_get(q, &error, 400, &x));
    OK(rt_queue_fill(q, &error, x, 0, 400));
    add_words w = {x, x, 100, 1};
    rt_launch l = {.kernel = k, .grid = {1, 1, 1}, .block = {256, 1, 1}, .param = &w, .param_bytes = sizeof w};
    l.shared_bytes = 48 << 10;
    OK(rt_queue_launch(q, &error, &l));
    cr_assert_eq(fake_count("cuFuncSetAttribute"), 0);
    for (int i = 0; i < 3; i++) {
        l.shared_bytes = (uint32_t)(60 + 10 * i) << 10;
        OK(rt_queue_launch(q, &error, &l));
    }
    cr_assert_eq(fake_count("cuFuncSetAttribute"), 1); /* all there is, once */
    l.shared_bytes = 1 << 20;
    FAILS(rt_queue_launch(q, &error, &l), FUSOR_ERROR_DEVICE,
          "wants 1048576 bytes of dynamic shared memory; a block has ");
    OK(rt_queue_wait(q, &error));
    rt_queue_free(q);
}

/* ---- queues beside each other ---- */
static void follow(const char *order) {
    on_fake("FAKECUDA_ORDER", order, NULL);
    rt_queue *q = open_queue(), *other;
    rt_device_kernel *k = get_add();
    OK(rt_queue_new(device, &error, &other));
    enum { N = 30000 };
    rt_address x, y;
    uint32_t *data = numbers(N, 1), *back = numbers(N, 0);
    for (int i = 0; i < 3; i++) {
        OK(rt_queue_get(q, &error, 4 * N, &x));
        OK(rt_queue_upload(q, &error, x, data, 4 * N)); /* in the lane of copies */
        OK(rt_queue_follow(other, &error, q));
        OK(rt_queue_get(other, &error, 4 * N, &y));
        OK(add(other, k, x, y, N, 1));
        OK(rt_queue_follow(q, &error, other)); /* before x may be used again */
        OK(rt_queue_upload(q, &error, x, back, 4 * N));
        OK(rt_queue_download(other, &error, back, y, 4 * N));
        for (uint32_t j = 0; j < N; j++) cr_assert_eq(back[j], j + 2);
        memset(back, 0, 4 * N);
        rt_queue_put(q, x);
        rt_queue_put(other, y);
    }
    OK(rt_queue_follow(q, &error, q));
    free(data);
    free(back);
    rt_queue_free(other);
    rt_queue_free(q);
}
Test(device, follow_lazy) { follow("lazy"); }
Test(device, follow_reverse) { follow("reverse"); }

Test(device, time_between_marks) {
    on_fake(NULL);
    rt_queue *q = open_queue();
    rt_address x;
    int a, b, c;
    int64_t ns = -1;
    OK(rt_queue_get(q, &error, 1 << 20, &x));
    OK(rt_queue_mark(q, &error, &a));
    OK(rt_queue_fill(q, &error, x, 1, 1 << 20));
    OK(rt_queue_mark(q, &error, &b));
    OK(rt_queue_between(q, &error, a, b, &ns));
    cr_assert(ns >= 0);
    FAILS(rt_queue_between(q, &error, a, b, &ns), FUSOR_ERROR_ARGUMENT, "no mark of this queue"); /* they are free */
    OK(rt_queue_mark(q, &error, &c));
    cr_assert_eq(a, c); /* and used again */
    FAILS(rt_queue_between(q, &error, c, 99, &ns), FUSOR_ERROR_ARGUMENT, "99 is no mark");
    rt_queue_free(q);
    cr_assert_eq(fake_live("event"), 0);
}

typedef struct worker {
    pthread_t thread;
    rt_queue *queue;
    rt_kernel *kernel;
    uint32_t seed;
} worker;

static void *work(void *user) {
    worker *w = user;
    rt_device_kernel *k;
    OK(rt_device_kernel_get(device, &error, w->kernel, &k));
    for (uint32_t i = 0; i < 30; i++) {
        size_t n = i % 3 ? 500 : 20000;
        rt_address x;
        uint32_t *data = numbers(n, w->seed + i);
        OK(rt_queue_get(w->queue, &error, 4 * n, &x));
        OK(rt_queue_upload(w->queue, &error, x, data, 4 * n));
        OK(add(w->queue, k, x, x, n, 1));
        OK(rt_queue_download(w->queue, &error, data, x, 4 * n));
        for (size_t j = 0; j < n; j++) cr_assert_eq(data[j], w->seed + i + j + 1);
        rt_queue_put(w->queue, x);
        free(data);
    }
    rt_device_kernel_release(k);
    return NULL;
}

static void run_threads(bool share) {
    on_fake(NULL);
    worker w[4];
    rt_queue *first = open_queue();
    rt_kernel *k = new_kernel(add_ptx, 1);
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){.queue = first, .kernel = k, .seed = 1000u * (uint32_t)i};
        if (!share && i) OK(rt_queue_new(device, &error, &w[i].queue));
        cr_assert_eq(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(w[i].thread, NULL);
    cr_assert_eq(fake_count("cuModuleLoadDataEx"), 1); /* whoever came first */
    for (int i = 1; i < 4 && !share; i++) rt_queue_free(w[i].queue);
    rt_queue_free(first);
    rt_kernel_release(k);
}
Test(device, threads_with_queues_of_their_own, .timeout = 60) { run_threads(false); }
Test(device, threads_on_one_queue, .timeout = 60) { run_threads(true); }

/* ---- processes ---- */
static int in_child(int (*run)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(run());
    int status = 0;
    cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    cr_assert(WIFEXITED(status), "a child ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static rt_queue *the_queue;
static rt_device_kernel *the_kernel;
static int use_after_fork(void) {
    rt_address x;
    rt_queue *q;
    int n;
    int64_t bytes;
    fu_error_clear(&error);
    int ok = rt_queue_get(the_queue, &error, 10, &x) == FUSOR_ERROR_DEVICE &&
             strstr(error.text, "does not survive a fork") && rt_queue_wait(the_queue, &error) == FUSOR_ERROR_DEVICE &&
             rt_queue_new(device, &error, &q) == FUSOR_ERROR_DEVICE &&
             add(the_queue, the_kernel, 0, 0, 1, 1) == FUSOR_ERROR_DEVICE &&
             rt_device_count(&error, &n) == FUSOR_ERROR_DEVICE &&
             rt_device_free_bytes(device, &error, &bytes) == FUSOR_ERROR_DEVICE;
    rt_queue_put(the_queue, 512);
    rt_device_trim(device);
    rt_device_kernel_release(the_kernel);
    rt_queue_free(the_queue);
    return ok ? 0 : 1;
}

Test(device, a_fork) {
    on_fake(NULL);
    the_queue = open_queue();
    the_kernel = get_add();
    cr_assert_eq(in_child(use_after_fork), 0);
    round_trip(the_queue, the_kernel, 1000, false); /* the parent goes on */
    rt_queue_free(the_queue);
}

/* ---- cubins ---- */
static char dir[64];
static void make_dir(void) {
    strcpy(dir, "/tmp/fusor-device-XXXXXX");
    cr_assert(mkdtemp(dir));
}
static void remove_dir(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}
TestSuite(cubin, .init = make_dir, .fini = remove_dir);

/* In a process of its own, so that the kernel is loaded again. 0: loaded from the text, 1: from a cubin; 2: not. */
static int load_add(void) {
    rt_dir d;
    char why[256];
    if (rt_dir_open(dir, false, &d, why, sizeof why)) return 3;
    rt_kernel *k = new_kernel(add_ptx, 1);
    rt_device_kernel *out;
    k->cubins = rt_cubins_new(&d, true, true);
    rt_dir_close(&d);
    fu_error_clear(&error);
    rt_queue *q;
    if (rt_device_open(&error, 0, &device) != FUSOR_OK || rt_queue_new(device, &error, &q) != FUSOR_OK) return 3;
    if (rt_device_kernel_get(device, &error, k, &out) != FUSOR_OK) return 2;
    rt_address x;
    uint32_t data[10] = {1, 2, 3};
    bool ok = rt_queue_get(q, &error, sizeof data, &x) == FUSOR_OK &&
              rt_queue_upload(q, &error, x, data, sizeof data) == FUSOR_OK && add(q, out, x, x, 10, 4) == FUSOR_OK &&
              rt_queue_download(q, &error, data, x, sizeof data) == FUSOR_OK && data[2] == 7;
    rt_kernel_release(k);
    return !ok ? 3 : out->is_from_cubin;
}

static int cubin_files(char path[512]) {
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *i; (i = readdir(d)) != NULL;)
        if (rt_cubin_is_name(i->d_name)) n++, snprintf(path, 512, "%s/%s", dir, i->d_name);
    closedir(d);
    return n;
}

Test(cubin, is_made_once) {
    char path[512];
    on_fake(NULL);
    cr_assert_eq(in_child(load_add), 0);
    cr_assert_eq(cubin_files(path), 1);
    cr_assert_eq(in_child(load_add), 1);
    setenv("FAKECUDA_VERSION", "12080", 1); /* another driver has its own */
    cr_assert_eq(in_child(load_add), 0);
    cr_assert_eq(cubin_files(path), 2);
    setenv("FAKECUDA_CC", "80", 1);
    cr_assert_eq(in_child(load_add), 0);
    cr_assert_eq(in_child(load_add), 1);
    cr_assert_eq(cubin_files(path), 3);
}

Test(cubin, without_a_linker) {
    char path[512];
    on_fake("FAKECUDA_LACKS", "cuLinkCreate_v2", NULL);
    cr_assert_eq(in_child(load_add), 0);
    cr_assert_eq(in_child(load_add), 0);
    cr_assert_eq(cubin_files(path), 0);
}

Test(cubin, a_linker_that_fails) {
    char path[512];
    on_fake("FAKECUDA_FAIL", "cuLinkComplete:*=999", NULL);
    cr_assert_eq(in_child(load_add), 0); /* the text serves */
    cr_assert_eq(cubin_files(path), 0);
    setenv("FAKECUDA_FAIL", "cuLinkAddData_v2:*=218", 1);
    cr_assert_eq(in_child(load_add), 0);
    cr_assert_eq(cubin_files(path), 0);
}

/* Cut, changed, of another kind, empty, not a file: loaded from the text, and there is a good one again. */
Test(cubin, damaged_files) {
    char path[512];
    on_fake(NULL);
    cr_assert_eq(in_child(load_add), 0);
    cr_assert_eq(cubin_files(path), 1);
    for (int i = 0; i < 12; i++) {
        struct stat st;
        cr_assert_eq(stat(path, &st), 0);
        if (i < 6) cr_assert_eq(truncate(path, st.st_size * i / 6), 0);
        else {
            FILE *f = fopen(path, "r+");
            cr_assert(f && fseek(f, (long)(st.st_size * (i - 6) / 6), SEEK_SET) == 0);
            int c = fgetc(f);
            cr_assert(fseek(f, -1, SEEK_CUR) == 0 && fputc(c ^ 0x40, f) != EOF && fclose(f) == 0);
        }
        cr_assert_eq(in_child(load_add), 0, "%d", i);
        cr_assert_eq(in_child(load_add), 1, "%d", i);
    }
    setenv("FAKECUDA_FAIL", "cuModuleLoadDataEx:1=200", 1); /* intact, but not for this driver */
    cr_assert_eq(in_child(load_add), 0);
    cr_assert_eq(cubin_files(path), 0);
    cr_assert_eq(unsetenv("FAKECUDA_FAIL"), 0);
    cr_assert_eq(in_child(load_add), 0);
    cr_assert_eq(in_child(load_add), 1);
}

/* ---- faults ---- */
/* Every function of the driver fails, the first, second and fourth time, in turn with an error of the call, of memory, and one that
 * kills the context: errors come back, and what works has the right result. */
static long fail_at; /* allocation of the host that fails; 0: none */
static int scenario(void) {
    rt_queue *q = NULL, *other = NULL;
    rt_device_kernel *k = NULL;
    rt_kernel *text = new_kernel(add_ptx, 1);
    rt_address x = 0, y = 0;
    enum { N = 20000 };
    uint32_t *data = numbers(N, 1), *back = numbers(N, 0), few[4] = {0};
    int a, b;
    int64_t ns;
    fu_error_clear(&error);
    fu_malloc_fail_at(fail_at);
    fusor_status s = rt_device_open(&error, 0, &device);
    if (s == FUSOR_OK) s = rt_queue_new(device, &error, &q);
    if (s == FUSOR_OK) s = rt_queue_new(device, &error, &other);
    if (s == FUSOR_OK) s = rt_device_kernel_get(device, &error, text, &k);
    for (int i = 0; i < 3 && s == FUSOR_OK; i++) {
        x = y = 0;
        s = rt_queue_get(q, &error, 4 * N, &x);
        if (s == FUSOR_OK) s = rt_queue_get(q, &error, 4 * N, &y);
        if (s == FUSOR_OK) s = rt_queue_upload(q, &error, x, data, 4 * N);
        if (s == FUSOR_OK) s = rt_queue_mark(q, &error, &a);
        if (s == FUSOR_OK) s = add(q, k, x, y, N, 1);
        if (s == FUSOR_OK) s = rt_queue_mark(q, &error, &b);
        if (s == FUSOR_OK) s = rt_queue_copy(q, &error, x, y, 4 * N);
        if (s == FUSOR_OK) s = rt_queue_fill(q, &error, y, 0, 4 * N);
        if (s == FUSOR_OK) s = rt_queue_follow(other, &error, q);
        if (s == FUSOR_OK) s = rt_queue_download_later(q, &error, back, x, 4 * N);
        if (s == FUSOR_OK) s = rt_queue_wait(q, &error);
        if (s == FUSOR_OK) s = rt_queue_between(q, &error, a, b, &ns);
        if (s == FUSOR_OK) s = rt_queue_download(other, &error, few, x, sizeof few);
        if (s == FUSOR_OK && (back[N - 1] != N + 1 || few[3] != 5)) return 9;
        rt_queue_put(q, x);
        rt_queue_put(q, y);
    }
    fu_malloc_fail_at(0);
    rt_device_kernel_release(k);
    rt_kernel_release(text);
    rt_queue_free(other);
    rt_queue_free(q);
    if (device) rt_device_trim(device);
    free(data);
    free(back);
    if (s == FUSOR_OK) return error.status == FUSOR_OK ? 0 : 8;
    return s == error.status && error.text[0] && (s == FUSOR_ERROR_DEVICE || s == FUSOR_ERROR_MEMORY) ? 1 : 7;
}

Test(device, every_function_fails, .timeout = 300) {
    static const int nth[] = {1, 2, 4}, codes[] = {1, 2, 700};
    int n_failed = 0, n_served = 0;
    on_fake(NULL);
    cr_assert_eq(in_child(scenario), 0);
    for (size_t f = 0; f < sizeof all_functions / sizeof *all_functions; f++)
        for (int i = 0; i < 3; i++) {
            char fault[128];
            snprintf(fault, sizeof fault, "%s:%d=%d", all_functions[f], nth[i], codes[(f + (size_t)i) % 3]);
            setenv("FAKECUDA_FAIL", fault, 1);
            int got = in_child(scenario);
            cr_assert(got <= 1, "%s: %d", fault, got);
            n_failed += got;
            n_served += !got;
        }
    cr_assert(n_failed > 40 && n_served > 5, "%d failed, %d served", n_failed, n_served);
}

Test(device, every_allocation_fails, .timeout = 60) {
    int n_failed = 0;
    on_fake(NULL);
    for (fail_at = 1; fail_at < 200; fail_at++) {
        int got = in_child(scenario);
        cr_assert(got <= 1, "allocation %ld: %d", fail_at, got);
        n_failed += got;
        if (!got && fail_at > 20) break; /* there are not that many */
    }
    cr_assert(n_failed > 5 && fail_at < 200, "%d failed, %ld tried", n_failed, fail_at);
}
