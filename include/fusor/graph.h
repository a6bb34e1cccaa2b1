/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_GRAPH_H
#define FUSOR_GRAPH_H
/* fusor/graph.h: modules (programs of several functions) and the builder that makes functions with the operators of
 * op.h. */
#include <fusor/compile.h>
#include <fusor/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Parses a program. name: what messages call it (a path; NULL = "<text>"). **Ownership**: *out is the caller's; it
 * holds ctx. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_module_parse(fusor_context *ctx, const char *name, const char *text,
                                                           size_t length, fusor_module **out);
/** Reads and parses a file; "-" is stdin. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_module_load(fusor_context *ctx, const char *path, fusor_module **out);
/** An empty module for the builder. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_module_new(fusor_context *ctx, fusor_module **out);
/** Canonical text; free with fusor_text_free. Parsing it gives the same module. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_module_print(const fusor_module *module, char **text_out);
FUSOR_API void fusor_module_free(fusor_module *module);

/** Size in a parameter's shape: a name where it is not NULL, else the number. fusor_size shape[] = {{"B", 0}, {NULL,
 * 784}}; */
typedef struct fusor_size {
    const char *name;
    int64_t size;
} fusor_size;

/** Begins a function; between begin and end, operators of op.h on its parameters trace instead of being lazy. One
 * function at a time and thread. **Errors** are sticky: fusor_function_end reports the first. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_function_begin(fusor_module *module, const char *name);
/** A named size, to be used in parameters of the function: size known when called. Its name lives as long as the
 * module. */
FUSOR_API fusor_size fusor_function_dim(fusor_module *module, const char *name);
/** Adds a parameter; is_const: it may be bound. The handle is valid until fusor_function_end. */
FUSOR_API fusor_tensor fusor_function_param(fusor_module *module, const char *name, fusor_dtype dtype, int rank,
                                            const fusor_size *shape, int is_const);
/** Adds a result. alias: name of the parameter it is written over, or NULL. */
FUSOR_API void fusor_function_result(fusor_module *module, const char *name, fusor_tensor value, const char *alias);
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_function_end(fusor_module *module);

#ifdef __cplusplus
}
#endif
#endif
