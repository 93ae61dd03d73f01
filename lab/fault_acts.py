# SPDX-License-Identifier: GPL-2.0-or-later
"""Cause the faults in the lab, and end them."""

from __future__ import annotations

import threading

from lab import modules
from lab.fault import Act
from lab.fault_site import CASES, Case, FaultSite
from lab.topology import HYPERVISOR_ADDRESSES, NETDEV, SERVER_ADDRESSES

# Seconds after vdsmd's start in which a port comes up while a connect waits for it.
SETTLES_AFTER = 20.0
_RDMA_CM = "/dev/infiniband/rdma_cm"


def nothing(site: FaultSite) -> None:
    """Change nothing: the name of the server is the fault."""


def without_listener(site: FaultSite) -> None:
    """Restart the NFS service without RDMA."""
    site.lab.nfs.restart(rdma_port=None)


def with_listener(site: FaultSite) -> None:
    """Restart the NFS service with RDMA."""
    site.lab.nfs.restart()


def hide_rdma_cm(site: FaultSite) -> None:
    """Remove the device of rdma_ucm, so that no server can be asked."""
    site.shell(f"mv {_RDMA_CM} {_RDMA_CM}.away")


def show_rdma_cm(site: FaultSite) -> None:
    """Restore the device."""
    site.shell(f"mv {_RDMA_CM}.away {_RDMA_CM}")


def fail_and_come_back(site: FaultSite) -> None:
    """Connect every case to a server without a listener; then start the listener."""
    without_listener(site)
    for case in CASES:
        site.connect(case, case.export("nas"))
    site.unmount_all()
    with_listener(site)


def fail_unasked_and_come_back(server: str) -> Act:
    """Return an act that does the same without rdma_ucm, with a mount that fails.

    ``server`` is the name that the cases use.
    """

    def begin(site: FaultSite) -> None:
        hide_rdma_cm(site)
        without_listener(site)
        # Failures of NFS 3 and 4 are remembered separately.
        for case in (Case("require-rdma", "4.2"), Case("require-rdma", "3")):
            site.connect(case, case.export(server))
        with_listener(site)

    return begin


def plug_in_late(site: FaultSite) -> None:
    """Start vdsmd while the cable is out; plug it in SETTLES_AFTER seconds later."""
    site.lab.hypervisor.monitor.pull_cable()
    site.vdsmd.stop()
    site.vdsmd.start()
    plug = site.lab.hypervisor.monitor.plug_cable
    threading.Timer(SETTLES_AFTER, plug).start()


def _own(site: FaultSite, owner: str, mode: str) -> None:
    site.lab.server.run(
        f"chown {owner} /nfsroot/srv/*-rdma-* && chmod {mode} /nfsroot/srv/*-rdma-*",
        check=True,
    )


def restart_server(site: FaultSite) -> None:
    """Boot the server; it has its exports again, but no data."""
    site.lab.start_server()
    site.add_exports()


def pull_cable(site: FaultSite) -> None:
    """Take down the hypervisor's link."""
    site.lab.hypervisor.monitor.pull_cable()


def plug_cable(site: FaultSite) -> None:
    """Restore the hypervisor's link."""
    site.lab.hypervisor.monitor.plug_cable()


def freeze_server(site: FaultSite) -> None:
    """Pause the server."""
    site.lab.server.monitor.freeze()


def thaw_server(site: FaultSite) -> None:
    """Let the server continue."""
    site.lab.server.monitor.thaw()


def remove_server_device(site: FaultSite) -> None:
    """Remove the server's RDMA device; nfsd still lists its listener."""
    site.lab.fabric.take_down(site.lab.server, NETDEV)


def add_server_device(site: FaultSite) -> None:
    """Add the server's RDMA device again."""
    site.lab.fabric.bring_up(site.lab.server, NETDEV, SERVER_ADDRESSES)


def remove_client_device(site: FaultSite) -> None:
    """Remove the hypervisor's RDMA device."""
    site.lab.fabric.take_down(site.lab.hypervisor, NETDEV)


def add_client_device(site: FaultSite) -> None:
    """Add the hypervisor's RDMA device again."""
    site.lab.fabric.bring_up(site.lab.hypervisor, NETDEV, HYPERVISOR_ADDRESSES)


def unload_module(site: FaultSite) -> None:
    """Unload rpcrdma; the next mount loads it."""
    site.shell("modprobe -r rpcrdma")


def hide_module(site: FaultSite) -> None:
    """Hide rpcrdma, as if the kernel did not have it."""
    modules.hide(site.lab.hypervisor, "rpcrdma")


def unhide_module(site: FaultSite) -> None:
    """Restore rpcrdma."""
    modules.unhide(site.lab.hypervisor, "rpcrdma")


def stop_nfsd(site: FaultSite) -> None:
    """Stop the NFS service; rpcbind and mountd stay."""
    site.lab.nfs.stop()


def start_nfsd(site: FaultSite) -> None:
    """Start the NFS service again."""
    site.lab.nfs.start()


def cut_route(site: FaultSite) -> None:
    """Let the kernel answer as a router that cannot reach the server."""
    site.shell("ip route add unreachable 10.98.0.1")


def restore_route(site: FaultSite) -> None:
    """Remove the unreachable route."""
    site.shell("ip route del unreachable 10.98.0.1")


def kill_server(site: FaultSite) -> None:
    """Cut the server's power."""
    site.lab.server.kill()


def keep_vdsm_out(site: FaultSite) -> None:
    """Give the exports to root only."""
    _own(site, "0:0", "700")


def let_vdsm_in(site: FaultSite) -> None:
    """Give the exports back to vdsm."""
    _own(site, "36:36", "755")
