/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* unload.c: a thread that holds an error record of a library that was opened with dlopen ends after dlclose. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <fusor/fusor.h>

static pthread_barrier_t barrier;
static void *library;

static void *use(void *arg) {
    (void)arg;
    /* ISO C has no cast from void * to a function */
    fusor_context *(*new_context)(const fusor_context_options *);
    void (*free_context)(fusor_context *);
    fusor_status (*compile)(fusor_context *, const char *, const char *, fusor_executable **);
    void *symbol[] = {dlsym(library, "fusor_context_new"), dlsym(library, "fusor_context_free"),
                      dlsym(library, "fusor_compile_text")};
    memcpy(&new_context, &symbol[0], sizeof symbol[0]);
    memcpy(&free_context, &symbol[1], sizeof symbol[1]);
    memcpy(&compile, &symbol[2], sizeof symbol[2]);
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    fusor_executable *exe;
    o.device = "reference";
    o.cache_dir = "";
    fusor_context *ctx = new_context(&o);
    printf("%d\n", ctx && compile(ctx, "no program", NULL, &exe) == FUSOR_ERROR_SYNTAX);
    free_context(ctx);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* closed */
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) return puts(dlerror()), 1;
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, use, NULL) != 0) return 1;
    pthread_barrier_wait(&barrier);
    dlclose(library);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    puts("ended");
    return 0;
}
