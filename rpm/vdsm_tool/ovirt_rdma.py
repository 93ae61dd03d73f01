# SPDX-License-Identifier: GPL-2.0-or-later
"""Add ``vdsm-tool ovirt-rdma``, which runs ``ovirt-rdma-host``.

vdsm-tool imports each module of its package at each start (static/usr/bin/vdsm-tool,
load_modules), and continues after an Exception, which it reports to syslog. So this one
imports nothing that could fail in another way, and nothing that takes time.
"""

import os
import sys

from vdsm.tool import expose

COMMAND = "/usr/bin/ovirt-rdma-host"


@expose("ovirt-rdma")
def ovirt_rdma(*words):
    """ovirt-rdma [VERB ...]
    Check and configure RDMA on this host; the same as ovirt-rdma-host. Without a verb
    it lists them.
    """
    sys.stdout.flush()
    try:
        os.execv(COMMAND, [COMMAND, *words[1:]])  # noqa: S606
    except OSError as error:
        sys.stderr.write(
            f"{COMMAND} cannot be run: {error.strerror}\n"
            "fix: install the package ovirt-rdma-host again\n"
        )
    return 1
