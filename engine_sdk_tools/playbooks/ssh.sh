#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs ssh and passes on at most OVIRT_RDMA_MOST_SENT bytes of its output, and 64 KiB of
# stderr: Ansible keeps all output in memory, several times, and needs minutes for a
# hundred megabytes. The rest is read and discarded, so that ssh ends when the host does.
exec 3>&1
status=$(
    {
        {
            {
                ssh "$@" 3>&- 4>&- 5>&-
                echo "$?" >&4
            } 2>&5 | {
                head -c "$OVIRT_RDMA_MOST_SENT" >&3
                exec 3>&-
                cat >/dev/null
            }
        } 5>&1 | {
            head -c 65536 >&2
            exec 2>/dev/null
            cat >/dev/null
        }
    } 4>&1
)
exit "${status:-255}"
