# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tools: to add a file of the fusor command, append one line "tool_sources += %D%/NAME.c".
# reference writes the pages of doc/ that come from tables; make check builds it.
doc_programs += %D%/reference
%C%_reference_LDADD = libfu-ir.la libfu-base.la $(FUSOR_LIBS)
