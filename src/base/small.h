/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* small.h: included first by large files whose speed nobody waits for (the front end, reports): they are made small, so
 * that libfusor stays well below 1 MB (tests/api/symbols.sh; compilers differ by some kilobytes). It affects the file
 * that includes it, so no header does. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("Os")
#endif
