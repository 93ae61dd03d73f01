#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# What every script for a host begins with. Commands are run by tell, which prints a
# line for each: the mark, its name, its exit status, and packed what it printed, so
# that nothing a login shell or a terminal adds can be taken for it.
# Needs LIMIT_S, the seconds that a command may take.
set -u
export LC_ALL=C PATH="${PATH:-}:/usr/sbin:/usr/bin:/sbin:/bin"
umask 077
TOLD=$(mktemp -d) || exit 1
trap 'rm -rf "$TOLD"' EXIT
trap 'exit 1' HUP INT TERM

packed() { gzip -c | base64 | tr -d '\n'; }

tell() {
    name=$1
    shift
    timeout -k 5 "$LIMIT_S" "$@" >"$TOLD/out" 2>"$TOLD/err" </dev/null
    STATUS=$?
    printf '\novirt-rdma-told %s %s %s %s\n' "$name" "$STATUS" \
        "$(packed <"$TOLD/out")" "$(tail -c 4000 "$TOLD/err" | packed)"
    return "$STATUS"
}
