# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tools: to add a file of the fusor command, append one line "tool_sources += %D%/NAME.c".
# reference writes what is made from tables; make generated and make check build it.
doc_programs += %D%/reference
%C%_reference_LDADD = libfu-ir.la libfu-base.la $(FUSOR_LIBS)
tool_sources += %D%/options.c
tool_sources += %D%/program.c
tool_sources += %D%/report.c
tool_sources += %D%/html.c
tool_sources += %D%/inputs.c
tool_sources += %D%/limits.c
tool_sources += %D%/timing.c
tool_sources += %D%/fusor.c
tool_sources += %D%/cmd_run.c
tool_sources += %D%/cmd_eval.c
tool_sources += %D%/expression.c
tool_sources += %D%/cmd_check.c
tool_sources += %D%/cmd_fmt.c
tool_sources += %D%/cmd_explain.c
tool_sources += %D%/cmd_emit.c
tool_sources += %D%/export_object.c
tool_sources += %D%/export_header.c
tool_sources += %D%/cmd_info.c
tool_sources += %D%/cmd_cache.c
tool_sources += %D%/cmd_cache_warm.c
tool_sources += %D%/cmd_cache_disasm.c
tool_sources += %D%/cache_entries.c
tool_sources += %D%/specialize.c
tool_sources += %D%/cmd_bench.c
# The manual page, and completion under the name that bash looks for.
dist_man_MANS = doc/man/fusor.1 doc/man/fusor-cache.1
install-data-local:
	$(MKDIR_P) '$(DESTDIR)$(datadir)/bash-completion/completions'
	$(INSTALL_DATA) '$(srcdir)/tools/fusor.bash' '$(DESTDIR)$(datadir)/bash-completion/completions/fusor'
uninstall-local:
	rm -f '$(DESTDIR)$(datadir)/bash-completion/completions/fusor'
