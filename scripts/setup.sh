#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# setup.sh: installs the Debian or Ubuntu packages that building and testing fusor needs. Quick when all are there:
# then it asks dpkg only. Uses sudo when not root. LLVM 22 is preferred; where apt has none, the newest from 19 on.
set -eu
export DEBIAN_FRONTEND=noninteractive

needed="gcc g++ make autoconf automake libtool pkg-config libjansson-dev libxxhash-dev zlib1g-dev libzstd-dev
    libcriterion-dev libmpfr-dev binutils file"
# Good to have: memory checking, layout, fuzzing, probes (sys/sdt.h), bundles (xz). Nothing fails without them.
wanted="valgrind clang-format clang python3 systemtap-sdt-dev xz-utils"
llvm_versions="22 21 20 19"
llvm_packages() { echo "llvm-$1-dev lld-$1 llvm-$1-tools"; }

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]; }
missing_of() { for p in $1; do is_installed "$p" || printf '%s ' "$p"; done; }
is_offered() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *//p' | grep -v none >/dev/null; }
are_offered() { for p in $1; do is_offered "$p" || return 1; done; }

# The LLVM to install: what completes one of which a part is there, else the newest that apt offers; none: empty.
choose_llvm() {
    local v
    for v in $llvm_versions; do
        if is_installed "llvm-$v-dev" && are_offered "$(missing_of "$(llvm_packages "$v")")"; then echo "$v"; return; fi
    done
    for v in $llvm_versions; do
        if are_offered "$(missing_of "$(llvm_packages "$v")")"; then echo "$v"; return; fi
    done
}

if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is no Debian or Ubuntu; please install the counterparts of:" >&2
    echo "    $(echo $needed $(llvm_packages 22))" >&2
    exit 0
fi

# The LLVM that is installed whole already, newest first.
llvm=
for v in $llvm_versions; do
    if [ -z "$(missing_of "$(llvm_packages "$v")")" ]; then llvm=$v; break; fi
done
missing=$(missing_of "$needed")
if [ -n "$llvm" ] && [ -z "$missing" ]; then
    exit 0
fi

sudo=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        [ -n "$llvm" ] || llvm=$(choose_llvm)
        missing=$(missing_of "$needed $(llvm_packages "${llvm:-22}")")
        extra=$(missing_of "$wanted")
        install="apt-get install -y --no-install-recommends"
        echo "setup: there are missing packages and no sudo; run this as root:" >&2
        echo "    apt-get update && $install ${missing% }" >&2
        [ -n "$llvm" ] ||
            echo "setup: the package lists here offer no LLVM from 19 on; if new ones do not: https://apt.llvm.org" >&2
        [ -z "$extra" ] || echo "setup: good to have, some checks are skipped without: $install ${extra% }" >&2
        exit 1
    fi
    sudo=sudo
fi
echo "setup: installing packages"
# Package lists that are out of date fail at the download: get them anew before anything is installed. Without the error
# mode apt-get takes a list that it could not fetch for a success.
old_lists=
if ! $sudo apt-get update -q -o APT::Update::Error-Mode=any; then
    old_lists="apt-get update could not fetch all package lists (see above; is there a network?)"
    echo "setup: $old_lists; trying with those that are here" >&2
fi

if [ -z "$llvm" ]; then
    llvm=$(choose_llvm)
    if [ -z "$llvm" ] && [ -n "$old_lists" ]; then
        echo "setup: $old_lists, and those that are here offer no LLVM from 19 on; run this again when it can" >&2
        exit 1
    fi
    if [ -z "$llvm" ]; then
        echo "setup: apt offers no llvm-22-dev, and none from 19 on; add the repository of https://apt.llvm.org and run this again" >&2
        exit 1
    fi
    [ "$llvm" = 22 ] || echo "setup: using LLVM $llvm, as apt has it or a part is here (22 is what fusor is made with)" >&2
fi
missing=$(missing_of "$needed $(llvm_packages "$llvm")")
# shellcheck disable=SC2086
if ! $sudo apt-get install -q -y --no-install-recommends $missing; then
    echo "setup: these packages could not be installed: ${missing% }" >&2
    [ -z "$old_lists" ] || echo "setup: $old_lists" >&2
    exit 1
fi
extra=$(missing_of "$wanted")
if [ -n "$extra" ]; then
    # shellcheck disable=SC2086
    $sudo apt-get install -q -y --no-install-recommends $extra || echo "setup: without ${extra% } some checks are skipped" >&2
fi
