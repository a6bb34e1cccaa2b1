#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# setup.sh: installs the Debian or Ubuntu packages that building and testing fusor needs. Quick when all are there:
# then it asks dpkg only. Uses sudo when not root. LLVM 22 is preferred; where apt has none, the newest from 19 on.
set -eu
export DEBIAN_FRONTEND=noninteractive

needed="gcc g++ make autoconf automake libtool pkg-config libjansson-dev libxxhash-dev zlib1g-dev libzstd-dev
    libcriterion-dev libmpfr-dev binutils file"
# Good to have: memory checking, layout, fuzzing, probes (sys/sdt.h). Nothing fails without them.
wanted="valgrind clang-format clang python3 systemtap-sdt-dev"

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]; }
missing_of() { for p in $1; do is_installed "$p" || printf '%s ' "$p"; done; }

if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is no Debian or Ubuntu; please install the counterparts of:" >&2
    echo "    $(echo $needed) llvm-22-dev lld-22 llvm-22-tools" >&2
    exit 0
fi

# The LLVM that is installed whole already, newest first.
llvm=
for v in 22 21 20 19; do
    if [ -z "$(missing_of "llvm-$v-dev lld-$v llvm-$v-tools")" ]; then llvm=$v; break; fi
done
missing=$(missing_of "$needed")
if [ -n "$llvm" ] && [ -z "$missing" ]; then
    exit 0
fi

sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: missing packages: $missing; run as root or install sudo" >&2; exit 1; }
    sudo=sudo
fi
echo "setup: installing packages"
# Package lists that are out of date fail at the download: get them anew before anything is installed.
$sudo apt-get update -q || echo "setup: apt-get update failed; trying with the package lists that are here" >&2

if [ -z "$llvm" ]; then
    for v in 22 21 20 19; do
        if [ -n "$(apt-cache policy "llvm-$v-dev" 2>/dev/null | sed -n 's/^ *Candidate: *//p' | grep -v none)" ]; then
            llvm=$v
            break
        fi
    done
    if [ -z "$llvm" ]; then
        echo "setup: apt offers no llvm-22-dev, and none from 19 on; add the repository of https://apt.llvm.org and run this again" >&2
        exit 1
    fi
    [ "$llvm" = 22 ] || echo "setup: apt has no llvm-22-dev; using LLVM $llvm (fusor is developed with 22)" >&2
fi
missing=$(missing_of "$needed llvm-$llvm-dev lld-$llvm llvm-$llvm-tools")
# shellcheck disable=SC2086
$sudo apt-get install -q -y --no-install-recommends $missing
extra=$(missing_of "$wanted")
if [ -n "$extra" ]; then
    # shellcheck disable=SC2086
    $sudo apt-get install -q -y --no-install-recommends $extra || echo "setup: without $extra some checks are skipped" >&2
fi
