# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tools: to add a file of the fusor command, append one line "tool_sources += %D%/NAME.c".
