#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# examples.sh: every program in examples/ type-checks, and every command in its comments ("#   fusor ...") runs: as it
# stands, unfused, and with three threads (under sanitizers as it stands); results of the three are the same bytes. Then the digits.
passed=0 failed=0
verdict() { # verdict STATUS TEXT
    if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi
}
fusor() { "$FUSOR" "$@"; }
ways=("" "--no-fuse" "--threads 3")
[ -n "${FUSOR_SANITIZE-}" ] && ways=("")
cp -r "$FUSOR_SRCDIR/examples" "$TMPDIR/examples" && cd "$TMPDIR/examples" || exit 1
for file in *.fusor */*.fusor; do
    (cd "$(dirname "$file")" && fusor check "$(basename "$file")" >"$TMPDIR/out" 2>&1)
    verdict $? "fusor check $file: $(cat "$TMPDIR/out")"
done
for file in *.fusor; do
    mapfile -t commands < <(sed -n 's/^#   fusor run //p' "$file")
    [ ${#commands[@]} -gt 0 ]
    verdict $? "$file says no command that runs it"
    for command in "${commands[@]}"; do
        [[ " $command " == *" $file "*" --check "* ]]
        verdict $? "$file: 'fusor run $command' does not run $file with --check"
        i=0
        for options in "${ways[@]}"; do
            i=$((i + 1))
            # shellcheck disable=SC2086 # words of the command line
            fusor run $command $options >"$TMPDIR/out" 2>&1
            verdict $? "fusor run $command $options: $(cat "$TMPDIR/out")"
            fusor run $command $options -o "$TMPDIR/results$i/" >"$TMPDIR/out" 2>&1 &&
                diff -r "$TMPDIR/results1" "$TMPDIR/results$i" >>"$TMPDIR/out"
            verdict $? "fusor run $command $options: other bytes than without: $(cat "$TMPDIR/out")"
        done
        rm -rf "$TMPDIR"/results?
    done
done
cd / || exit 1
"$TMPDIR/examples/digits/run.sh" >"$TMPDIR/out" 2>&1 && grep -q '^accuracy  *0\.9' "$TMPDIR/out" &&
    grep -q 'equal to those of NumPy for every digit' "$TMPDIR/out"
verdict $? "examples/digits/run.sh: $(cat "$TMPDIR/out")"
cat "$TMPDIR/out"
# One weight is changed: the script must say no.
cp "$TMPDIR/examples/digits/b1.npy" "$TMPDIR/examples/digits/keep.npy"
head -c 128 "$TMPDIR/examples/digits/keep.npy" >"$TMPDIR/examples/digits/b1.npy"
head -c 512 /dev/zero >>"$TMPDIR/examples/digits/b1.npy"
"$TMPDIR/examples/digits/run.sh" >"$TMPDIR/out" 2>&1
[ $? -eq 1 ]
verdict $? "examples/digits/run.sh accepts wrong weights: $(cat "$TMPDIR/out")"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
