# SPDX-License-Identifier: GPL-2.0-or-later
"""What faults do to the lab, and how that is undone."""

from __future__ import annotations

import threading

from lab import modules
from lab.fault import Act
from lab.fault_site import CASES, Case, FaultSite
from lab.topology import HYPERVISOR_ADDRESSES, NETDEV, SERVER_ADDRESSES

# Seconds in which a port comes up while a connect waits for it.
SETTLES_AFTER = 3.0
_PYVERBS = "/usr/lib/python3/dist-packages/pyverbs"


def nothing(site: FaultSite) -> None:
    """The names that the case uses are the fault."""


def without_listener(site: FaultSite) -> None:
    """Restart the NFS service without RDMA."""
    site.lab.nfs.restart(rdma_port=None)


def with_listener(site: FaultSite) -> None:
    """Restart it with RDMA."""
    site.lab.nfs.restart()


def hide_pyverbs(site: FaultSite) -> None:
    """Take python3-pyverbs away, so that no server can be asked."""
    site.shell(f"mv {_PYVERBS} {_PYVERBS}.away")


def show_pyverbs(site: FaultSite) -> None:
    """Put it back."""
    site.shell(f"mv {_PYVERBS}.away {_PYVERBS}")


def fail_and_come_back(site: FaultSite) -> None:
    """Let every case meet a server without listener; then there is one."""
    without_listener(site)
    for case in CASES:
        site.connect(case, case.export("nas"))
    site.unmount_all()
    with_listener(site)


def fail_unasked_and_come_back(server: str) -> Act:
    """Return what does so without pyverbs, by a mount that fails; ``server`` is the
    name that the cases use.
    """

    def begin(site: FaultSite) -> None:
        hide_pyverbs(site)
        without_listener(site)
        # NFS 3 and 4 are remembered apart.
        for case in (Case("require-rdma", "4.2"), Case("require-rdma", "3")):
            site.connect(case, case.export(server))
        with_listener(site)

    return begin


def plug_in_while_booting(site: FaultSite) -> None:
    """Be a host that has just booted; its cable is in after SETTLES_AFTER."""
    # Nothing else tells how long a host has been up.
    young = "echo 5.00 5.00 > /run/uptime && mount --bind /run/uptime /proc/uptime"
    site.shell(young)
    site.lab.hypervisor.monitor.pull_cable()
    plug = site.lab.hypervisor.monitor.plug_cable
    threading.Timer(SETTLES_AFTER, plug).start()


def booted(site: FaultSite) -> None:
    """Be as old as the host is."""
    site.lab.hypervisor.monitor.plug_cable()
    site.shell("umount /proc/uptime")


def _own(site: FaultSite, owner: str, mode: str) -> None:
    site.lab.server.run(
        f"chown {owner} /nfsroot/srv/*-rdma-* && chmod {mode} /nfsroot/srv/*-rdma-*",
        check=True,
    )


def restart_server(site: FaultSite) -> None:
    """Boot it: it has its exports again, and no data."""
    site.lab.start_server()
    site.add_exports()


def pull_cable(site: FaultSite) -> None:
    """Take the hypervisor's link."""
    site.lab.hypervisor.monitor.pull_cable()


def plug_cable(site: FaultSite) -> None:
    """Give it back."""
    site.lab.hypervisor.monitor.plug_cable()


def freeze_server(site: FaultSite) -> None:
    """Stop the server's time."""
    site.lab.server.monitor.freeze()


def thaw_server(site: FaultSite) -> None:
    """Let it go on."""
    site.lab.server.monitor.thaw()


def remove_server_device(site: FaultSite) -> None:
    """Take the server's RDMA device away; nfsd still lists its listener."""
    site.lab.fabric.take_down(site.lab.server, NETDEV)


def add_server_device(site: FaultSite) -> None:
    """Give it back."""
    site.lab.fabric.bring_up(site.lab.server, NETDEV, SERVER_ADDRESSES)


def remove_client_device(site: FaultSite) -> None:
    """Take the hypervisor's RDMA device away."""
    site.lab.fabric.take_down(site.lab.hypervisor, NETDEV)


def add_client_device(site: FaultSite) -> None:
    """Give it back."""
    site.lab.fabric.bring_up(site.lab.hypervisor, NETDEV, HYPERVISOR_ADDRESSES)


def unload_module(site: FaultSite) -> None:
    """Unload rpcrdma; the next mount loads it."""
    site.shell("modprobe -r rpcrdma")


def hide_module(site: FaultSite) -> None:
    """Make the kernel one without rpcrdma."""
    modules.hide(site.lab.hypervisor, "rpcrdma")


def unhide_module(site: FaultSite) -> None:
    """Put it back."""
    modules.unhide(site.lab.hypervisor, "rpcrdma")


def stop_nfsd(site: FaultSite) -> None:
    """Stop the NFS service; rpcbind and mountd stay."""
    site.lab.nfs.stop()


def start_nfsd(site: FaultSite) -> None:
    """Start it again."""
    site.lab.nfs.start()


def cut_route(site: FaultSite) -> None:
    """Have the kernel answer as a router would that cannot go on."""
    site.shell("ip route add unreachable 10.98.0.1")


def mend_route(site: FaultSite) -> None:
    """Take that back."""
    site.shell("ip route del unreachable 10.98.0.1")


def kill_server(site: FaultSite) -> None:
    """Cut the server's power."""
    site.lab.server.kill()


def keep_vdsm_out(site: FaultSite) -> None:
    """Give the exports to root alone."""
    _own(site, "0:0", "700")


def let_vdsm_in(site: FaultSite) -> None:
    """Give them back to vdsm."""
    _own(site, "36:36", "755")
