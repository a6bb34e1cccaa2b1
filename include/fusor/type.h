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

/** Two arguments, a count and a list of int64_t: fusor_wrap(ctx, x, FUSOR_F32, FUSOR_SHAPE(2, 3)). **Ownership**: the
 *  list lives as long as the block around it; in C++, from C++11 on, until the end of the call. */
#ifndef __cplusplus
#define FUSOR_SHAPE(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#else
#define FUSOR_SHAPE(...) decltype(fusor_shape_of_(__VA_ARGS__))::count, fusor_shape_of_(__VA_ARGS__).data()
#endif
/** A fusor_buffer of contiguous memory of the CPU: FUSOR_BUFFER(x, FUSOR_F32, 2, 3); without sizes a scalar. In C;
 *  C++ has fusor::buffer of fusor.hpp. */
#define FUSOR_BUFFER(...) \
    FUSOR_BUFFER_PICK_(__VA_ARGS__, T_, T_, T_, T_, T_, T_, T_, T_, T_, T_, T_, T_, S_, S_, S_)(__VA_ARGS__)
/* FUSOR_BUFFER_T_, of a tensor, or FUSOR_BUFFER_S_, of a scalar: ISO C has no "..." without an argument. Sizes past the
 * eighth are what the compiler complains of. */
#define FUSOR_BUFFER_PICK_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, which, ...) FUSOR_BUFFER_##which
#define FUSOR_BUFFER_T_(pointer, element, ...)                                                                        \
    (FUSOR_EXTENSION_(fusor_buffer){.data = (void *)(pointer), .dtype = (int32_t)(element),                           \
                    .rank = (int32_t)(sizeof((int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t) - 1),                     \
                    .shape = {__VA_ARGS__}})
#define FUSOR_BUFFER_S_(pointer, element) \
    (FUSOR_EXTENSION_(fusor_buffer){.data = (void *)(pointer), .dtype = (int32_t)(element)})

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

#if defined(__cplusplus) && __cplusplus >= 201103L
/* What FUSOR_SHAPE comes to in C++, which has no compound literals. */
template <size_t N> struct fusor_shape_ {
    int64_t sizes[N ? N : 1];
    enum : int { count = N };
    const int64_t *data() const { return sizes; }
};
template <class... T> inline fusor_shape_<sizeof...(T)> fusor_shape_of_(T... sizes) {
    return {{static_cast<int64_t>(sizes)...}};
}
#endif
#endif
