/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_MANUAL_H
#define TOOL_MANUAL_H
#include <stdbool.h>

/* Prints "man-COMMAND", "zsh" or "bash-words"; false: there is no such page. */
bool manual_print(const char *page);
#endif
