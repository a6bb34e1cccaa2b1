#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# layers.sh: which directory may include which, and who may allocate, use OpenMP or know LLVM. Says for each breach
# what is wrong and how it should be. Each rule is one test case.
cd "${FUSOR_SRCDIR:-$(dirname "$0")/..}" || exit 1
shopt -s nullglob globstar
passed=0 failed=0

# rule TEXT BREACHES: BREACHES (lines FILE:LINE:TEXT) must be empty.
rule() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "layers: $1"
        printf '%s\n' "$2" | sed 's/^/    /'
    fi
}

# project_includes FILE...: FILE:LINE:PATH of every include of our own headers.
project_includes() {
    [ $# -eq 0 ] && return
    grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' "$@" |
        sed -E 's/^([^:]*:[0-9]+:).*"([^"]*)".*/\1\2/'
}

# may_include DIR ALLOWED FILE...: every include must match the extended regular expression ALLOWED.
may_include() {
    local dir=$1 allowed=$2 text=$3
    shift 3
    rule "$dir may include only $text; move what both need down, or hand it in as an argument" \
        "$(project_includes "$@" | grep -vE ":[0-9]+:($allowed)" || true)"
}

sources() { for f in "$1"/**/*.c "$1"/**/*.h "$1"/**/*.def; do echo "$f"; done; }
mapfile -t base < <(sources src/base)
mapfile -t ir < <(sources src/ir)
mapfile -t ref < <(sources src/ref)
mapfile -t rt < <(sources src/rt)
mapfile -t jit < <(sources src/jit)
mapfile -t tools < <(sources tools)
mapfile -t examples < <(sources examples)
top=(src/*.c src/*.h)
public=(include/**/*.h)

may_include include 'fusor/' 'fusor/*.h' "${public[@]}"
may_include src/base 'fusor/|base/' 'public headers and base/' "${base[@]}"
may_include src/ir 'fusor/|base/|ir/' 'public headers, base/ and ir/' "${ir[@]}"
may_include src/ref 'fusor/|base/|ir/|ref/' 'public headers, base/ and ir/' "${ref[@]}"
may_include src/rt 'fusor/|base/|ir/|rt/' 'public headers, base/ and ir/ (never jit/ or ref/)' "${rt[@]}"
may_include src/jit 'fusor/|base/|ir/|jit/' 'public headers, base/ and ir/ (never rt/ or ref/)' "${jit[@]}"
may_include 'src/*.c' '[a-z_]+\.h|fusor/|base/|ir/|ref/|rt/' 'public headers, base/, ir/, ref/ and rt/ (never jit/)' "${top[@]}"
may_include tools '[a-z_]+\.(h|def)|\.\./bench/|fusor/|base/|ir/|ref/|rt/' 'public headers, ir/, base/, ref/ (run --check) and rt/' "${tools[@]}"
may_include examples '[a-z_]+\.h|fusor/' 'public headers' "${examples[@]}"

all=("${base[@]}" "${ir[@]}" "${ref[@]}" "${rt[@]}" "${top[@]}" "${tools[@]}" "${public[@]}")
rule 'only src/jit knows LLVM' "$(grep -nHE '#[[:space:]]*include[[:space:]]*[<"]llvm' "${all[@]}" "${examples[@]}" tests/*/*.[ch] bench/*.[ch] bench/*/*.[ch] 2>/dev/null)"
# tests/cuda/cuda_h_check.c alone compares our declarations with those of a toolkit.
rule 'nothing of the CUDA toolkit is included outside tests/cuda: what is needed of the driver is declared in src/rt/cuda_api.h' \
    "$(grep -nHE '#[[:space:]]*include[[:space:]]*[<"]cuda[A-Za-z0-9_]*\.h' "${all[@]}" "${jit[@]}" "${examples[@]}" \
        tests/**/*.[ch] bench/**/*.[ch] | grep -v '^tests/cuda/')"
driver='^src/rt/(cuda_api|device[a-z_]*)\.[ch]:'
rule 'only src/rt/cuda_api and device* know the driver (rt/cuda_api.h, rt/device_internal.h); others use rt/device.h' \
    "$(project_includes "${all[@]}" "${jit[@]}" "${examples[@]}" bench/**/*.[ch] |
        grep -E ':rt/(cuda_api|device_internal)\.(h|def)$' | grep -vE "$driver")"
rule 'LLVM version checks belong in src/jit/llvm_compat.{c,h}' \
    "$(grep -nHE '#[[:space:]]*(el)?if.*LLVM_VERSION' /dev/null "${jit[@]}" | grep -v '^src/jit/llvm_compat\.')"
openmp=()
for f in "${all[@]}" "${jit[@]}"; do [ "$f" = src/rt/threads.c ] || openmp+=("$f"); done
rule 'OpenMP (omp.h, #pragma omp) belongs in src/rt/threads.c' \
    "$(grep -nHE '#[[:space:]]*pragma[[:space:]]+omp|#[[:space:]]*include[[:space:]]*<omp\.h>' "${openmp[@]}")"
# Comments and names such as fu_malloc are no calls.
allocating=()
for f in "${base[@]}" "${ir[@]}" "${ref[@]}" "${rt[@]}" "${jit[@]}" "${top[@]}"; do
    case $f in src/base/arena.c) ;; *) allocating+=("$f") ;; esac
done
rule 'malloc, calloc, realloc and free belong in src/base/arena.c; use the arena or fu_malloc' \
    "$(grep -nHE '(^|[^A-Za-z0-9_.>])(malloc|calloc|realloc|reallocarray|free|strdup|strndup|asprintf|aligned_alloc|posix_memalign)[[:space:]]*\(' \
        "${allocating[@]}" | grep -vE ':[0-9]+:[[:space:]]*(/?\*|//)|/\*[^/]*(malloc|calloc|realloc|free|strdup) *\(')"
rule 'the library never ends the process and never prints: return a status, use base/log.h' \
    "$(grep -nHE '(^|[^A-Za-z0-9_.>])(exit|_exit|_Exit|abort|quick_exit|printf|puts|putchar|perror)[[:space:]]*\(' \
        "${base[@]}" "${ir[@]}" "${ref[@]}" "${rt[@]}" "${jit[@]}" "${top[@]}" |
        grep -vE ':[0-9]+:[[:space:]]*(/?\*|//)')"
rule 'environment variables are rows of src/base/env.def, read with fu_env_*' \
    "$(grep -nHE '(^|[^A-Za-z0-9_])(secure_)?getenv[[:space:]]*\([[:space:]]*"FUSOR' "${allocating[@]}")"
missing=
for f in src/**/*.[ch] src/**/*.def include/**/*.h tools/*.[ch] tests/**/*.[ch] tests/**/*.sh bench/**/*.[ch] examples/**/*.[ch] scripts/*; do
    case $f in */build_id.h | */build_options.h | *.o | *.lo) continue ;; esac
    [ -f "$f" ] || continue
    head -n 3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception' || missing+="$f:1: no SPDX line"$'\n'
done
rule 'every file starts with "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"' "${missing%$'\n'}"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
