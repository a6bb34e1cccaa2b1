# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tools: to add a file of the fusor command, append one line "tool_sources += %D%/NAME.c".
# reference writes what is made from tables; make generated and make check build it.
doc_programs += %D%/reference
%C%_reference_SOURCES = %D%/reference.c %D%/manual.c
%C%_reference_LDADD = libfu-ir.la libfu-base.la $(FUSOR_LIBS)
tool_sources += %D%/options.c
tool_sources += %D%/program.c
tool_sources += %D%/report.c
tool_sources += %D%/html.c
tool_sources += %D%/disasm.c
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
tool_sources += %D%/explain_graph.c
tool_sources += %D%/explain_html.c
tool_sources += %D%/cmd_emit.c
tool_sources += %D%/export_object.c
tool_sources += %D%/export_header.c
tool_sources += %D%/export_names.c
tool_sources += %D%/cmd_info.c
tool_sources += %D%/cmd_cache.c
tool_sources += %D%/cmd_cache_warm.c
tool_sources += %D%/cmd_cache_disasm.c
tool_sources += %D%/cache_entries.c
tool_sources += %D%/specialize.c
tool_sources += %D%/cmd_bench.c
tool_sources += %D%/bench_suite.c
tool_sources += %D%/bench_kind.c
tool_sources += %D%/bench_lazy.c
tool_sources += %D%/bench_auto.c
tool_sources += %D%/bench_plain.c
tool_sources += %D%/bench_peer.c
tool_sources += %D%/bench_run.c
tool_sources += %D%/bench_compare.c
tool_sources += %D%/bench_counts.c
tool_sources += %D%/bench_html.c
tool_sources += %D%/bench_chart.c
# The text of the peers' worker, as numbers: fusor bench hands it to the interpreter.
MOSTLYCLEANFILES = bench/peers/worker.inc
bench/peers/worker.inc: $(srcdir)/bench/peers/worker.py
	$(AM_V_GEN)$(MKDIR_P) bench/peers && od -An -v -t u1 $(srcdir)/bench/peers/worker.py | sed 's/\([0-9]\{1,\}\)/\1,/g' >$@.tmp && mv $@.tmp $@
tools/bench_peer.$(OBJEXT): bench/peers/worker.inc
# The manual page, and completion under the name that bash looks for.
dist_man_MANS = doc/man/fusor.1 doc/man/fusor-cache.1 doc/man/fusor-run.1 doc/man/fusor-check.1 doc/man/fusor-explain.1 \
	doc/man/fusor-emit.1 doc/man/fusor-bench.1 doc/man/fusor-info.1 doc/man/fusor-fmt.1 doc/man/fusor-eval.1
install-data-local:
	$(MKDIR_P) '$(DESTDIR)$(datadir)/bash-completion/completions'
	$(INSTALL_DATA) '$(srcdir)/tools/fusor.bash' '$(DESTDIR)$(datadir)/bash-completion/completions/fusor'
	$(MKDIR_P) '$(DESTDIR)$(datadir)/zsh/site-functions'
	$(INSTALL_DATA) '$(srcdir)/tools/fusor.zsh' '$(DESTDIR)$(datadir)/zsh/site-functions/_fusor'
uninstall-local:
	rm -f '$(DESTDIR)$(datadir)/bash-completion/completions/fusor' '$(DESTDIR)$(datadir)/zsh/site-functions/_fusor'
