# SPDX-License-Identifier: GPL-2.0-or-later
"""Plugin of sos 4: what a support case about ovirt-rdma needs of a hypervisor.

It is installed in sos's own folder of plugins, because sos looks for them nowhere else
(sos/report/__init__.py, load_plugins).
"""

from sos.report.plugins import DebianPlugin, Plugin, RedHatPlugin

from ovirt_rdma.host.services import support_content as content

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
        self.add_copy_spec(list(content.FILES), sizelimit=_LOG_MB)
        for verb in content.VERBS:
            command = " ".join(["ovirt-rdma-host", *verb])
            self.add_cmd_output(command, timeout=_TIMEOUT_S)
        for name, argv in content.TOOLS:
            command = " ".join(_quoted(word) for word in argv)
            self.add_cmd_output(command, suggest_filename=name, timeout=_TIMEOUT_S)
        # Only the lines of ours, also if sos's own plugin for VDSM is left out.
        pattern = "|".join(content.OURS_IN_LOG)
        self.add_cmd_output(
            f"grep -ahE '{pattern}' {content.VDSM_LOG}",
            suggest_filename="vdsm.log",
            sizelimit=_LOG_MB,
            timeout=_TIMEOUT_S,
        )


def _quoted(word):
    return f"'{word}'" if set(word) & set("*|") else word
