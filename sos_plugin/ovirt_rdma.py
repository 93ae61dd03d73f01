# SPDX-License-Identifier: GPL-2.0-or-later
"""Plugin of sos 4: what a support case about ovirt-rdma needs of a hypervisor.

It is installed in sos's own folder of plugins, because sos looks for them nowhere else
(sos/report/__init__.py, load_plugins). There are no secrets in what it collects: no
keys, of NetworkManager profiles only what ``facts`` shows of them, and of logs that
others write only the lines that name ovirt-rdma.
"""

from sos.report.plugins import DebianPlugin, Plugin, RedHatPlugin

from ovirt_rdma.host.collect.statistics import SWITCHES
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
    # Each by its name: ``srcaddr`` of an RDMA connection can crash the kernel.
    f"{SWITCHES}/*/xprt_switch_info",
    *(f"{SWITCHES}/*/xprt-*/{name}" for name in ("xprt_info", "xprt_state", "dstaddr")),
)

# Of this log only the lines with this text. The loggers are ``storage.ovirt_rdma``.
VDSM_LOG = "/var/log/vdsm/vdsm.log"
OURS_IN_LOG = ("ovirt_rdma", "ovirt-rdma")

_LOG_MB = 15
_TIMEOUT_S = 60


class OvirtRdma(Plugin, RedHatPlugin, DebianPlugin):
    """Facts, findings, plan, history, policy, mounts and our lines of vdsm.log."""

    short_desc = "NFS over RDMA and InfiniBand for oVirt hypervisors"
    plugin_name = "ovirt_rdma"
    profiles = ("virt", "storage", "nfs", "network")
    packages = ("ovirt-rdma-host",)
    commands = ("ovirt-rdma-host",)

    def setup(self):
        """Tell sos what to collect."""
        self.add_copy_spec(list(FILES), sizelimit=_LOG_MB)
        for verb in VERBS:
            command = " ".join(["ovirt-rdma-host", *verb])
            self.add_cmd_output(command, timeout=_TIMEOUT_S)
        for name, argv in TOOLS:
            command = " ".join(_quoted(word) for word in argv)
            self.add_cmd_output(command, suggest_filename=name, timeout=_TIMEOUT_S)
        # Only the lines of ours, also if sos's own plugin for VDSM is left out.
        pattern = "|".join(OURS_IN_LOG)
        self.add_cmd_output(
            f"grep -ahE '{pattern}' {VDSM_LOG}",
            suggest_filename="vdsm.log",
            sizelimit=_LOG_MB,
            timeout=_TIMEOUT_S,
        )


def _quoted(word):
    return f"'{word}'" if set(word) & set("*|") else word
