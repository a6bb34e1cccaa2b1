#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# readme.sh: what README.md and doc/*.md show is run. Fenced blocks: c, a program that is compiled against the build,
# run, and compared with the text block that follows; fusor, a program that is checked, and saved as the NAME.fusor of
# its first comment; sh, commands that start with "fusor".
passed=0 failed=0 skipped=0
verdict() { # verdict STATUS TEXT
    if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi
}
ln -s "$FUSOR_SRCDIR/examples" "$TMPDIR/examples"
mkdir "$TMPDIR/blocks"
cd "$TMPDIR" || exit 1
# blocks/001.c, blocks/002.text ...: numbered in order of appearance.
awk '
/^```/ && !kind {
    kind = substr($0, 4)
    if (kind == "") kind = "plain"
    file = sprintf("blocks/%03d.%s", ++n, kind)
    printf "" >file
    next
}
/^```/ { kind = ""; close(file); next }
kind { print >file }
' "$FUSOR_SRCDIR/README.md" "$FUSOR_SRCDIR"/doc/*.md
library=$FUSOR_BUILDDIR/.libs
# A program for a GPU runs on the fake driver.
[ -n "${FUSOR_CUDA_LIB-}" ] || export FUSOR_CUDA_LIB=$FUSOR_BUILDDIR/tests/cuda/libcuda_fake.so
for block in blocks/*; do
    case $block in
    *.c)
        if [ ! -e "$library/libfusor.so" ]; then
            echo "SKIP $block: there is no shared library"
            skipped=$((skipped + 1))
            continue
        fi
        # shellcheck disable=SC2086 # CC and flags are lists of words
        $CC -std=gnu11 -Wall -Wextra -Werror $FUSOR_SANITIZE -I"$FUSOR_SRCDIR/include" "$block" -o program \
            -L"$library" -Wl,-rpath,"$library" -lfusor >out 2>&1
        verdict $? "README program $block does not compile: $(cat out)"
        ./program >out 2>&1
        verdict $? "README program $block fails: $(cat out)"
        number=${block#blocks/}
        expected=blocks/$(printf %03d $((10#${number%%.*} + 1))).text
        diff "$expected" out >difference 2>&1
        verdict $? "README program $block prints something else: $(cat difference)"
        ;;
    *.fusor)
        name=$(sed -n '1s/^# \([a-z_]*\.fusor\):.*/\1/p' "$block")
        cp "$block" "${name:-block.fusor}"
        "$FUSOR" check "${name:-block.fusor}" >out 2>&1
        verdict $? "$block does not check: $(cat out)"
        ;;
    *.sh)
        while read -r command; do
            [[ $command == fusor\ * ]] || continue
            eval "\"\$FUSOR\" ${command#fusor }" >out 2>&1      # as a shell reads it: quotes and comments
            verdict $? "README command '$command': $(cat out)"
        done <"$block"
        ;;
    esac
done
[ "$passed" -ge 8 ]
verdict $? "README.md shows fewer programs and commands than it should"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
