#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# The beginning of each script for a host. ``tell`` runs a command and prints one line:
# the mark, a name, the exit status, and the output packed, so that nothing that a login
# shell or a terminal adds is taken for it.
# Reads LIMIT_S, the seconds that a command may take.
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
