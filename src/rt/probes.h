/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_PROBES_H
#define RT_PROBES_H
/* USDT probes, for bpftrace, perf probe and SystemTap: fusor:compile(symbol, ns, status), fusor:load(symbol, address,
 * bytes), fusor:run(symbol, phases, tiles of the first phase). One nop each where nobody listens; nothing where the
 * library was built without sys/sdt.h. */
#if defined __has_include
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define RT_PROBE_COMPILE(symbol, ns, status)  DTRACE_PROBE3(fusor, compile, symbol, ns, status)
#define RT_PROBE_LOAD(symbol, address, bytes) DTRACE_PROBE3(fusor, load, symbol, address, bytes)
#define RT_PROBE_RUN(symbol, phases, tiles)   DTRACE_PROBE3(fusor, run, symbol, phases, tiles)
#endif
#endif
#ifndef RT_PROBE_COMPILE
#define RT_PROBE_COMPILE(symbol, ns, status)  ((void)0)
#define RT_PROBE_LOAD(symbol, address, bytes) ((void)0)
#define RT_PROBE_RUN(symbol, phases, tiles)   ((void)0)
#endif
#endif
