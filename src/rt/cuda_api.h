/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_CUDA_API_H
#define RT_CUDA_API_H
/* The CUDA driver API, declared here so that no toolkit is needed to build or run, and its functions, found by dlopen
 * of libcuda.so.1 (or what FUSOR_CUDA_LIB names) on first use. Source of types and numbers: CUDA driver API reference,
 * 13.0. */
#include "base/error.h"

typedef int cu_result;
typedef int cu_device; /* ordinal's handle */
typedef uint64_t cu_address;
typedef struct cu_context_st *cu_context;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_module_st *cu_module;
typedef struct cu_function_st *cu_function;
typedef struct cu_link_st *cu_link;

/* CUresult */
enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_DEINITIALIZED = 4,
    CU_STUB_LIBRARY = 34,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_IMAGE = 200,
    CU_INVALID_CONTEXT = 201,
    CU_NO_BINARY_FOR_GPU = 209,
    CU_ECC_UNCORRECTABLE = 214,
    CU_INVALID_PTX = 218,
    CU_JIT_COMPILER_NOT_FOUND = 221,
    CU_UNSUPPORTED_PTX_VERSION = 222,
    CU_JIT_COMPILATION_DISABLED = 223,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700, /* from here on most are the context's end: is_fatal in device.c */
    CU_LAUNCH_OUT_OF_RESOURCES = 701,
    CU_LAUNCH_TIMEOUT = 702,
    CU_CONTEXT_IS_DESTROYED = 709,
    CU_ASSERT = 710,
    CU_HARDWARE_STACK_ERROR = 714,
    CU_ILLEGAL_INSTRUCTION = 715,
    CU_MISALIGNED_ADDRESS = 716,
    CU_INVALID_ADDRESS_SPACE = 717,
    CU_INVALID_PC = 718,
    CU_LAUNCH_FAILED = 719,
    CU_SYSTEM_NOT_READY = 802,
    CU_SYSTEM_DRIVER_MISMATCH = 803,
    CU_COMPAT_NOT_SUPPORTED = 804,
    CU_UNKNOWN = 999
};
/* CUdevice_attribute */
enum {
    CU_DEVICE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_MAX_SHARED_PER_BLOCK = 8,
    CU_DEVICE_CLOCK_KHZ = 13,
    CU_DEVICE_MULTIPROCESSORS = 16,
    CU_DEVICE_INTEGRATED = 18,
    CU_DEVICE_MEMORY_CLOCK_KHZ = 36,
    CU_DEVICE_MEMORY_BUS_BITS = 37,
    CU_DEVICE_L2_BYTES = 38,
    CU_DEVICE_CC_MAJOR = 75,
    CU_DEVICE_CC_MINOR = 76,
    CU_DEVICE_MAX_SHARED_OPTIN = 97
};
/* CUfunction_attribute */
enum {
    CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_SHARED_BYTES = 1,
    CU_FUNC_LOCAL_BYTES = 3,
    CU_FUNC_REGISTERS = 4,
    CU_FUNC_PTX_VERSION = 5,
    CU_FUNC_MAX_DYNAMIC_SHARED = 8
};
/* CUjit_option, CUjitInputType */
enum { CU_JIT_INFO_LOG = 3, CU_JIT_INFO_LOG_BYTES = 4, CU_JIT_ERROR_LOG = 5, CU_JIT_ERROR_LOG_BYTES = 6 };
enum { CU_JIT_INPUT_PTX = 1 };
/* Flags of streams, events, host memory; CUpointer_attribute */
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2, CU_HOST_PORTABLE = 1 };
enum { CU_POINTER_CONTEXT = 1, CU_POINTER_MEMORY_TYPE = 2, CU_POINTER_DEVICE_ORDINAL = 9 };
enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };

typedef struct rt_cuda_api {
#define CUDA(NEED, SYMBOL, PARAMETERS) cu_result(*SYMBOL) PARAMETERS;
#include "rt/cuda_api.def"
#undef CUDA
} rt_cuda_api;

/* The driver, initialized (cuInit). Errors: DEVICE with what is missing: no library, a function of it, no device, a
 * driver that says no. Once found (or not) it stays so in this process and its children know nothing of it: after a
 * fork, DEVICE. */
fusor_status rt_cuda_get(fu_error *e, const rt_cuda_api **out);
/* The driver was used before the fork that made this process: nothing of it may be called here. */
bool rt_cuda_is_forked(void);
/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)", into text. */
const char *rt_cuda_text(const rt_cuda_api *cu, cu_result code, char *text, size_t room);
#endif
