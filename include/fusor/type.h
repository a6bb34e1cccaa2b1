/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_TYPE_H
#define FUSOR_TYPE_H
/* fusor/type.h: element types, status codes, buffers. */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FUSOR_API __attribute__((visibility("default")))
#define FUSOR_MUST_CHECK __attribute__((warn_unused_result))
#define FUSOR_EXTENSION_ __extension__
#else
#define FUSOR_API
#define FUSOR_MUST_CHECK
#define FUSOR_EXTENSION_
#endif

#define FUSOR_VERSION_MAJOR 0
#define FUSOR_VERSION_MINOR 1
#define FUSOR_VERSION_PATCH 0

#define FUSOR_MAX_RANK 8

/** Element type of a tensor. The numbers are part of the ABI. */
typedef enum fusor_dtype {
    FUSOR_F64 = 1, FUSOR_F32, FUSOR_F16, FUSOR_BF16, FUSOR_I64, FUSOR_I32, FUSOR_I16,
    FUSOR_I8, FUSOR_U8, FUSOR_BOOL, FUSOR_U16, FUSOR_U32, FUSOR_U64
} fusor_dtype;

/** What a call came to. FUSOR_OK is 0; everything else left an error record in the context. */
typedef enum fusor_status {
    FUSOR_OK, FUSOR_ERROR_ARGUMENT, FUSOR_ERROR_SYNTAX, FUSOR_ERROR_TYPE, FUSOR_ERROR_SHAPE,
    FUSOR_ERROR_INDEX, FUSOR_ERROR_OVERLAP, FUSOR_ERROR_STALE, FUSOR_ERROR_MISS, FUSOR_ERROR_MEMORY,
    FUSOR_ERROR_IO, FUSOR_ERROR_DEVICE, FUSOR_ERROR_UNSUPPORTED, FUSOR_ERROR_INTERNAL
} fusor_status;

enum { FUSOR_STRIDED = 1, FUSOR_READONLY = 2 };

/** A tensor in memory, described for one call. A zero-filled struct with data, dtype, rank and
 *  shape set is contiguous, row-major and on the CPU. */
typedef struct fusor_buffer {
    void    *data;               /* first element, aligned to the element size; NULL allowed where the size is 0 */
    int32_t  dtype, rank;        /* fusor_dtype; rank 0..8 */
    int64_t  shape[8], stride[8];/* elements; strides count only with FUSOR_STRIDED, may be 0 or negative */
    uint32_t flags;              /* FUSOR_STRIDED, FUSOR_READONLY; any other bit is an error */
    int32_t  device;             /* 0 = CPU, 1 + k = CUDA device k */
} fusor_buffer;

typedef struct fusor_context fusor_context;
typedef struct fusor_executable fusor_executable;

#define FUSOR_SHAPE(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
/** A fusor_buffer of contiguous memory of the CPU: FUSOR_BUFFER(x, FUSOR_F32, 2, 3); without sizes a scalar. In C;
 *  C++ has fusor::buffer of fusor.hpp. */
#define FUSOR_BUFFER(pointer, element, ...)                                                                           \
    (FUSOR_EXTENSION_(fusor_buffer){.data = (void *)(pointer), .dtype = (int32_t)(element),                           \
                    .rank = (int32_t)(sizeof((int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t) - 1),                     \
                    .shape = {__VA_ARGS__}})

/** Bytes of one element; 0 for a number that is no dtype. */
FUSOR_API size_t fusor_dtype_size(fusor_dtype dtype);
/** "f32"; "?" for a number that is no dtype. */
FUSOR_API const char *fusor_dtype_name(fusor_dtype dtype);
/** "FUSOR_ERROR_SHAPE"; "?" for a number that is no status. Static storage. */
FUSOR_API const char *fusor_status_name(fusor_status status);
/** major * 10000 + minor * 100 + patch of the library that runs. */
FUSOR_API int fusor_version(void);
/** "0.1.0" of the library that runs. */
FUSOR_API const char *fusor_version_string(void);

#ifdef __cplusplus
}
#endif
#endif
