# SPDX-License-Identifier: GPL-2.0-or-later
"""List what a support case about this host needs: for the plugin of sos.

There are no secrets in it: no keys, no NetworkManager profiles, and of logs that others
write only the lines that name ovirt-rdma. Pure.
"""

from __future__ import annotations

from ovirt_rdma.host.collect.storage import MOUNTINFO, MOUNTSTATS
from ovirt_rdma.host.paths import (
    CAPS_JSON,
    DROP_INS,
    DROPIN_DIRECTORY,
    ENABLED,
    JOURNAL,
    POLICY_COPY,
    POLICY_JSON,
    POLICY_YAML,
)
from ovirt_rdma.host.system.files import OWN_FILES

# Our own verbs, with a document for programs each; ``history`` is also for people.
VERBS = (
    ("facts", "-o", "json"),
    ("status", "-o", "json"),
    ("check", "-o", "json"),
    ("plan", "-o", "json"),
    ("history", "-v"),
    ("policy", "show", "-o", "json"),
    ("nfs", "list", "-v", "-o", "json"),
)

# Tools, with the name of their output. A host without systemd or rdma has none.
TOOLS = (
    (
        "journal-of-units",
        ("journalctl", "--no-pager", "-n", "5000", "-u", "ovirt-rdma*"),
    ),
    (
        "journal-of-launcher-and-hooks",
        ("journalctl", "--no-pager", "-n", "5000", "-g", "ovirt-rdma"),
    ),
    (
        "journal-of-kernel",
        ("journalctl", "--no-pager", "-n", "2000", "-k", "-g", "rdma|ib_|mlx|sunrpc"),
    ),
    ("units", ("systemctl", "--no-pager", "--full", "status", "ovirt-rdma*")),
    ("vdsmd-unit", ("systemctl", "--no-pager", "cat", "vdsmd.service")),
)

# Files, and folders with all that is below them. None that the user vdsm can write: sos
# copies what a link leads to, as root (sos/report/plugins/__init__.py, _copy_symlink).
# ``status`` has what is in these.
FILES = (
    POLICY_YAML,
    DROP_INS,
    ENABLED,
    POLICY_JSON,
    POLICY_COPY,
    JOURNAL,
    CAPS_JSON,
    *OWN_FILES,
    DROPIN_DIRECTORY,
    "/etc/nfsmount.conf",
    "/etc/nfsmount.conf.d",
    MOUNTINFO,
    MOUNTSTATS,
    "/sys/kernel/sunrpc",
)

# Of this log only the lines with this text. The loggers are ``storage.ovirt_rdma``.
VDSM_LOG = "/var/log/vdsm/vdsm.log"
OURS_IN_LOG = ("ovirt_rdma", "ovirt-rdma")
