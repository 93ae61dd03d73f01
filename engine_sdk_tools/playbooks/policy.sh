#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Writes a policy.yaml, and perhaps its drop-ins, on a host and loads them; if that
# fails, restores the old files.
# Reads POLICY, its path; NEW, the text in base64; KEEP: no removes the file after it
# was loaded; DROP_INS: keep leaves the drop-ins, otherwise there is a line for each,
# its name and its text in base64, and all others go.
export POLICY NEW DROP_INS
# If the connection is lost, the script still completes.
trap '' PIPE
tell version ovirt-rdma-host --version || exit 0
had=no
if [ -e "$POLICY" ] || [ -L "$POLICY" ]; then
    had=yes
    tell before cat "$POLICY" || exit 0
fi

folder=$(dirname "$POLICY")
drop_ins=$folder/policy.d
new=$folder/.policy.yaml.new.$$
old=$folder/.policy.yaml.old.$$
trap 'rm -rf "$TOLD" "$new" "$old"' EXIT
[ -d "$folder" ] || tell folder mkdir -m 755 "$folder" || exit 0
# All files as they will be, in a folder that nothing reads, to check them together.
# shellcheck disable=SC2016  # they are the inner shell's $1 and $2
tell write sh -c '
    set -e
    umask 022
    rm -rf "$1" "$3"  # of a push that was killed
    mkdir "$1"
    printf %s "$NEW" | base64 -d >"$1/policy.yaml"
    if [ "$DROP_INS" = keep ]; then
        # What the command takes for a drop-in, and refuses, is its own matter.
        ln -s "$2" "$1/policy.d"
    else
        mkdir "$1/policy.d"
        printf "%s\n" "$DROP_INS" | while read -r name text; do
            [ -z "$name" ] || printf %s "$text" | base64 -d >"$1/policy.d/$name"
        done
    fi
    for file in "$1/policy.yaml" "$1"/policy.d/*; do
        [ ! -e "$file" ] || sync "$file"
    done
' sh "$new" "$drop_ins" "$old" || exit 0
tell check ovirt-rdma-host policy check -o json "$new/policy.yaml" || exit 0

mkdir -m 700 "$old"
if [ "$had" = yes ]; then
    tell keep ln "$POLICY" "$old/policy.yaml" || exit 0
fi
# From here to the end of load, the files and the loaded policy differ.
trap '' HUP INT TERM
restore() {
    # shellcheck disable=SC2016
    tell restore sh -c '
        set -e
        if [ "$1" = yes ]; then mv -f "$2/policy.yaml" "$POLICY"; else rm -f "$POLICY"; fi
        [ -d "$2/policy.d" ] || exit 0
        ls "$2/policy.d" >"$2/names"
        for file in "$2"/policy.d/*.yaml; do
            [ ! -e "$file" ] && [ ! -L "$file" ] || mv -f "$file" "$3"
        done
        for file in "$3"/[0-9][0-9]-*.yaml; do
            grep -qxF -e "${file##*/}" "$2/names" || rm -f "$file"
        done
    ' sh "$had" "$old" "$drop_ins"
}
tell place mv -f "$new/policy.yaml" "$POLICY" || exit 0
if [ "$DROP_INS" != keep ] && [ "$DROP_INS$(ls -A "$drop_ins" 2>/dev/null)" ]; then
    # One file after the other, the new ones first: after a power cut each is complete,
    # and none is missing. Files that are no drop-ins, and equal ones, stay as they are.
    # shellcheck disable=SC2016
    tell swap sh -c '
        set -e
        umask 022
        mkdir -p "$3"
        mkdir "$2/saved"
        for file in "$3"/[0-9][0-9]-*.yaml; do
            [ ! -e "$file" ] && [ ! -L "$file" ] || cp -pP "$file" "$2/saved"
        done
        mv "$2/saved" "$2/policy.d"
        ls "$1/policy.d" >"$2/names"
        for file in "$1"/policy.d/*.yaml; do
            [ -e "$file" ] || continue
            present=$3/${file##*/}
            [ -f "$present" ] && [ "$(base64 <"$file")" = "$(base64 <"$present")" ] ||
                mv -f "$file" "$present"
        done
        for file in "$3"/[0-9][0-9]-*.yaml; do
            grep -qxF -e "${file##*/}" "$2/names" || rm -f "$file"
        done
        sync "$3"
    ' sh "$new" "$old" "$drop_ins" || {
        restore
        exit 0
    }
fi
# The push, or the conversion, has shown what it changes, and asked.
# 75: another run of ovirt-rdma-host is changing this host.
for _ in 1 2 3 4 5; do
    tell load ovirt-rdma-host policy load -y -o json && break
    [ "$STATUS" -eq 75 ] || break
    sleep 3
done
if [ "$STATUS" -ne 0 ]; then
    restore
    exit 0
fi
[ "$KEEP" = yes ] || tell remove rm -f "$POLICY" || exit 0
tell status ovirt-rdma-host status -o json
# Failures are reported above.
exit 0
