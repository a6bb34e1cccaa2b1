/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TESTS_AMX_EMULATE_H
#define TESTS_AMX_EMULATE_H
/* The tile instructions of x86 (AMX-TILE, -INT8, -BF16, -FP16) in C, so that kernels made of them run on any machine
 * with AVX-512.
 *
 * amx_execute is one instruction on a state of registers: encoding, operation and what it refuses are those of Intel's
 * Software Developer's Manual, volume 2 (LDTILECFG, STTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1,
 * TILESTORED, TDPBF16PS, TDPFP16PS, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD; palette 1). amx_emulate() puts it behind
 * SIGILL: an instruction that the machine has not is executed on the registers of the thread that met it, each thread
 * with tiles of its own. What the instructions refuse, and any other instruction, ends the process by SIGILL after a
 * line on stderr. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64, AMX_CONFIG_BYTES = 64 };
typedef struct amx_state {
    bool is_configured;
    uint8_t start_row, rows[AMX_TILES];
    uint16_t columns[AMX_TILES]; /* bytes */
    uint8_t tile[AMX_TILES][AMX_ROWS][AMX_ROW_BYTES];
} amx_state;
typedef struct amx_registers {
    uint64_t general[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8 ... r15, as encoded */
    uint64_t ip;          /* of the instruction; then of the next one */
} amx_registers;

/* NULL when it was done; else why not (static text), and nothing has changed. code: 16 bytes that may be read. */
const char *amx_execute(amx_state *s, amx_registers *r, const uint8_t *code);

/* From now on, in all threads. Once or more often. Asks the kernel for the machine's own tiles, where it has some:
 * then only its instructions run, as registers in two places are no state. */
void amx_emulate(void);
bool amx_can_emulate(void); /* the machine has AVX-512, which everything around the tiles needs */

typedef enum amx_kind { AMX_CONFIGURE, AMX_RELEASE, AMX_LOAD, AMX_STORE, AMX_ZERO, AMX_PRODUCT, AMX_KINDS } amx_kind;
/* Has the machine tile registers of its own? Then instructions that the process may execute are not emulated, nor
 * counted. */
bool amx_has_hardware(void);
/* What a test can have kernels use, in LLVM's names: all of it, or what the machine's own tiles do. */
const char *amx_features(void);
bool amx_runs_fp16(void); /* is AMX-FP16 one of them? */
long amx_count(amx_kind kind); /* instructions executed by all threads so far */
/* Is this thread's state what a program expects to find: no tiles configured? */
bool amx_is_released(void);
#endif
