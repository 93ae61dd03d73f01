#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Writes a policy.yaml on a host and loads it; if that fails, restores the old file.
# Reads POLICY, its path; NEW, the text in base64; KEEP: no removes the file after it
# was loaded.
export POLICY NEW
# If the connection is lost, the script still completes.
trap '' PIPE
tell version ovirt-rdma-host --version || exit 0
had=no
if [ -e "$POLICY" ] || [ -L "$POLICY" ]; then
    had=yes
    tell before cat "$POLICY" || exit 0
fi

folder=$(dirname "$POLICY")
new=$folder/.policy.yaml.new.$$
old=$folder/.policy.yaml.old.$$
trap 'rm -rf "$TOLD" "$new" "$old"' EXIT
[ -d "$folder" ] || tell folder mkdir -m 755 "$folder" || exit 0
# shellcheck disable=SC2016  # it is the inner shell's $1
tell write sh -c 'printf %s "$NEW" | base64 -d >"$1" && chmod 644 "$1" && sync "$1"' \
    sh "$new" || exit 0
tell check ovirt-rdma-host policy check -o json "$new" || exit 0

if [ "$had" = yes ]; then
    tell keep ln "$POLICY" "$old" || exit 0
fi
# From here to the end of load, the file and the loaded policy differ.
trap '' HUP INT TERM
tell place mv -f "$new" "$POLICY" || exit 0
# 75: another run of ovirt-rdma-host is changing this host.
for _ in 1 2 3 4 5; do
    tell load ovirt-rdma-host policy load -o json && break
    [ "$STATUS" -eq 75 ] || break
    sleep 3
done
if [ "$STATUS" -ne 0 ]; then
    if [ "$had" = yes ]; then
        tell restore mv -f "$old" "$POLICY"
    else
        tell restore rm -f "$POLICY"
    fi
    exit 0
fi
[ "$KEEP" = yes ] || tell remove rm -f "$POLICY" || exit 0
tell status ovirt-rdma-host status -o json
# Failures are reported above.
exit 0
