/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_api_test.c: the CUDA driver is found or not, with a reason that helps; on the fake driver. */
#include "on_fake.h"
#include "rt/cuda_api.h"
#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

static fu_error error;
static const rt_cuda_api *cu;

static void refused(const char *words) {
    for (int i = 0; i < 2; i++) { /* and stays so */
        fu_error_clear(&error);
        cr_assert_eq(rt_cuda_get(&error, &cu), FUSOR_ERROR_DEVICE);
        cr_assert(strstr(error.text, words), "%s", error.text);
    }
    cr_assert_null(cu);
}

Test(cuda_api, found) {
    char text[128];
    on_fake("FAKECUDA_VERSION", "12080", NULL);
    cr_assert_eq(rt_cuda_get(&error, &cu), FUSOR_OK, "%s", error.text);
    const rt_cuda_api *again = NULL;
    int version = 0;
    cr_assert_eq(rt_cuda_get(&error, &again), FUSOR_OK);
    cr_assert_eq(cu, again);
    cr_assert_eq(fake_count("cuInit"), 1);
    cr_assert_eq(cu->cuDriverGetVersion(&version), CU_OK);
    cr_assert_eq(version, 12080);
    cr_assert(strstr(rt_cuda_text(cu, CU_OUT_OF_MEMORY, text, sizeof text), "CUDA_ERROR_OUT_OF_MEMORY ("), "%s", text);
    cr_assert(strstr(rt_cuda_text(cu, 12345, text, sizeof text), "12345"), "%s", text);
    cr_assert_str_eq(rt_cuda_text(cu, CU_OUT_OF_MEMORY, text, 6), "CUDA_");
}

Test(cuda_api, no_library) {
    setenv("FUSOR_CUDA_LIB", "/nowhere/libcuda.so.1", 1);
    refused("no CUDA driver: /nowhere/libcuda.so.1");
}

Test(cuda_api, not_a_library) {
    char path[] = "/tmp/fusor-no-library-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, "text", 4) == 4);
    close(fd);
    setenv("FUSOR_CUDA_LIB", path, 1);
    refused("no CUDA driver: ");
    unlink(path);
}

Test(cuda_api, a_library_without_the_functions) {
    setenv("FUSOR_CUDA_LIB", "libm.so.6", 1);
    refused("has no function cuInit and ");
}

Test(cuda_api, a_missing_function_is_named) {
    on_fake("FAKECUDA_LACKS", "cuLaunchKernel", NULL);
    refused("has no function cuLaunchKernel; one for CUDA 11.0 or newer");
}

Test(cuda_api, optional_functions_may_lack) {
    on_fake("FAKECUDA_LACKS", "cuLinkCreate_v2,cuDeviceGetUuid_v2", NULL);
    cr_assert_eq(rt_cuda_get(&error, &cu), FUSOR_OK, "%s", error.text);
    cr_assert(!cu->cuLinkCreate_v2 && !cu->cuDeviceGetUuid_v2 && cu->cuLinkDestroy);
}

#define REFUSAL(NAME, CODE, WORDS)                                                                                     \
    Test(cuda_api, NAME) {                                                                                             \
        on_fake("FAKECUDA_INIT", #CODE, NULL);                                                                         \
        refused(WORDS);                                                                                                \
        cr_assert(strstr(error.text, "cuInit: "), "%s", error.text);                                                   \
    }
REFUSAL(no_device, 100, "CUDA_VISIBLE_DEVICES")
REFUSAL(stub, 34, "the toolkit's stub")
REFUSAL(not_ready, 802, "fabric manager")
REFUSAL(mismatch, 803, "different versions")
REFUSAL(compatibility, 804, "cuda-compat")
REFUSAL(unknown, 999, "/dev/nvidia")

/* What a child says in which nothing of the driver works. */
static int ask_in_child(void) {
    pid_t pid = fork();
    if (pid == 0) {
        fu_error_clear(&error);
        fusor_status s = rt_cuda_get(&error, &cu);
        _exit(s == FUSOR_OK ? 0 : s == FUSOR_ERROR_DEVICE && strstr(error.text, "does not survive a fork") ? 1 : 2);
    }
    int status = 0;
    cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

Test(cuda_api, after_a_fork) {
    on_fake(NULL);
    cr_assert_eq(ask_in_child(), 0); /* not used here yet: the child may */
    cr_assert_eq(rt_cuda_get(&error, &cu), FUSOR_OK);
    cr_assert_eq(ask_in_child(), 1);
    cr_assert_eq(rt_cuda_get(&error, &cu), FUSOR_OK); /* the parent goes on */
}

Test(cuda_api, a_reason_survives_a_fork) {
    setenv("FUSOR_CUDA_LIB", "/nowhere/libcuda.so.1", 1);
    refused("/nowhere");
    cr_assert_eq(ask_in_child(), 2);
}
