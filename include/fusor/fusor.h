/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_FUSOR_H
#define FUSOR_FUSOR_H
/* fusor: chains of tensor operators as single native kernels, made at run time.
 *
 *   type.h     element types, status codes, buffers
 *   context.h  contexts: cache, threads, memory, errors
 *   device.h   GPUs: memory there, copies
 *   compile.h  text to executable, calls, binding constants
 *   graph.h    modules and the function builder
 *   tensor.h   lazy tensors and scopes
 *   op.h       one function an operator
 *   optim.h    optimizer steps composed of operators
 *   cache.h    the kernel cache
 *   profile.h  how long kernels take
 */
#include <fusor/type.h>
#include <fusor/context.h>
#include <fusor/device.h>
#include <fusor/compile.h>
#include <fusor/tensor.h>
#include <fusor/graph.h>
#include <fusor/op.h>
#include <fusor/optim.h>
#include <fusor/cache.h>
#include <fusor/profile.h>
#endif
