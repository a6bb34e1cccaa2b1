/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* queue_test.c: devices, queues, copies, memory and kernels, on the fake driver: work runs as late as it may, or in the
 * other order, so that what is not ordered by events shows. */
#include "queue_add.h"
#include <pthread.h>

/* ---- devices ---- */
Test(queue, information) {
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
    Test(queue, NAME) {                                                                                                \
        on_fake("FAKECUDA_CC", CC, "FAKECUDA_VERSION", VERSION, NULL);                                                 \
        OK(rt_device_open(&error, 0, &device));                                                                        \
        cr_assert_eq(rt_device_get_info(device)->target.level, LEVEL);                                                 \
    }
TARGET(target_of_7, "70", "12000", IR_LEVEL_SM70)
TARGET(target_of_8, "86", "12000", IR_LEVEL_SM80)
TARGET(target_of_9_with_an_old_driver, "90", "11080", IR_LEVEL_SM80)
TARGET(target_of_12, "120", "13000", IR_LEVEL_SM80)

Test(queue, none) {
    on_fake("FAKECUDA_DEVICES", "0", NULL);
    int n = 7;
    FAILS(rt_device_count(&error, &n), FUSOR_ERROR_DEVICE, "no ");
    cr_assert_eq(n, 0);
}

/* ---- copies and kernels ---- */

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
Test(queue, round_trips_lazy) { round_trips("lazy"); }
Test(queue, round_trips_reverse) { round_trips("reverse"); }
Test(queue, round_trips_eager) { round_trips("eager"); }

/* Pinned memory of a queue serves the next one. */
Test(queue, queues_come_and_go) {
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

/* Memory that others used is 0 there, once, and goes back with the queue. */
Test(queue, counters_are_zero) {
    on_fake(NULL);
    enum { BYTES = 4 * RT_QUEUE_COUNTERS };
    uint32_t *data = numbers(RT_QUEUE_COUNTERS, 1);
    for (int i = 0; i < 3; i++) {
        rt_queue *q = open_queue();
        rt_address x, counters, again;
        OK(rt_queue_get(q, &error, BYTES, &x));
        OK(rt_queue_fill(q, &error, x, 0xff, BYTES));
        rt_queue_put(q, x);
        OK(rt_queue_counters(q, &error, &counters));
        OK(rt_queue_download(q, &error, data, counters, BYTES));
        for (int k = 0; k < RT_QUEUE_COUNTERS; k++) cr_assert_eq(data[k], 0);
        OK(rt_queue_counters(q, &error, &again));
        cr_assert_eq(counters, again);
        rt_queue_free(q);
    }
    cr_assert_eq(fake_count("cuMemAlloc_v2"), 1);
    free(data);
}

Test(queue, nothing_to_do) {
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

/* Random operations on a queue and, as they are put on it, on memory of the host: the same contents in the end, in
 * every order that the driver may choose. Buffers of both sides of the limit between the lanes. */
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
Test(queue, random_programs_lazy, .timeout = 120) { random_programs("lazy"); }
Test(queue, random_programs_reverse, .timeout = 120) { random_programs("reverse"); }

/* What is on its way from memory that is written again, by a copy or by a kernel, whether it was given back between or
 * not. */
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
Test(queue, written_again_lazy) { written_again("lazy"); }
Test(queue, written_again_reverse) { written_again("reverse"); }

/* ---- what a call costs ---- */
static long all_calls(void) {
    long n = 0;
    for (int i = 0; i < N_FAKE_FUNCTIONS; i++) n += fake_count(fake_functions[i]);
    return n;
}

Test(queue, calls_of_the_driver) {
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
Test(queue, large_copies_overlap) {
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
Test(queue, memory_comes_again) {
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
    rt_queue_put(other, c);
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
Test(queue, follow_lazy) { follow("lazy"); }
Test(queue, follow_reverse) { follow("reverse"); }

Test(queue, time_between_marks) {
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
Test(queue, threads_with_queues_of_their_own, .timeout = 60) { run_threads(false); }
Test(queue, threads_on_one_queue, .timeout = 60) { run_threads(true); }

/* ---- processes ---- */
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

Test(queue, a_fork) {
    on_fake(NULL);
    the_queue = open_queue();
    the_kernel = get_add();
    cr_assert_eq(in_child(use_after_fork), 0);
    round_trip(the_queue, the_kernel, 1000, false); /* the parent goes on */
    rt_queue_free(the_queue);
}
