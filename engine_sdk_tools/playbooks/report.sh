#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Reports a host's facts, status and policy. Changes nothing.
tell facts ovirt-rdma-host facts -o json || [ "$STATUS" -ne 127 ] || exit 0
tell status ovirt-rdma-host status -o json
if [ -e "$POLICY" ] || [ -L "$POLICY" ]; then
    tell policy cat "$POLICY"
fi
# Failures are reported above.
exit 0
