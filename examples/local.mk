# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# examples: to add a program (one file, examples/DIR/NAME.c), append two lines
#   example_programs += %D%/DIR/NAME
#   %C%_DIR_NAME_LDADD = libfusor.la
# Examples use the public API only; make check builds them.
example_programs += %D%/sequence/lstm
%C%_sequence_lstm_LDADD = libfusor.la -lm
