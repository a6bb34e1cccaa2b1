/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exit.c: part of fusor-codegen.so only. LLVM's static objects are not destroyed when the process ends: a thread may
 * still be compiling (src/start.c), exit handlers run in the reverse order of their registration, and LLVM registers
 * the destructors of objects inside functions when they are first used, so after whatever handler waits for the thread.
 * The module is never unloaded, and the memory goes with the process. Hidden, so it serves what is linked into the
 * module and nobody else. */
int __cxa_atexit(void (*destroy)(void *), void *object, void *module);

__attribute__((visibility("hidden"))) int __cxa_atexit(void (*destroy)(void *), void *object, void *module) {
    (void)destroy;
    (void)object;
    (void)module;
    return 0;
}
