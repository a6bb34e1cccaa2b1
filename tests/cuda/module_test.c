/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* module_test.c: kernels on a device, over the fake driver: PTX that it refuses, dynamic shared memory, the machine
 * code that it makes, in files. */
#include "queue_add.h"
#include "rt/cubin.h"
#include <dirent.h>
#include <sys/stat.h>

/* ---- loading ---- */

#define LOAD_ERROR(NAME, PTX, SETTING, VALUE, WORDS)                                                                   \
    Test(module, NAME) {                                                                                               \
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

Test(module, a_kernel_of_a_cpu) {
    on_fake(NULL);
    OK(rt_device_open(&error, 0, &device));
    rt_kernel *k = new_kernel(add_ptx, 1);
    rt_device_kernel *out;
    k->ptx = NULL;
    FAILS(rt_device_kernel_get(device, &error, k, &out), FUSOR_ERROR_ARGUMENT, "is for a CPU");
    rt_kernel_release(k);
}

Test(module, kernels_of_another_device) {
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
Test(module, dynamic_shared_memory) {
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
    k->cubins = rt_cubins_new(&d, 1 << 30, true, true);
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
