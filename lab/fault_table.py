# SPDX-License-Identifier: GPL-2.0-or-later
"""List every fault that `make faults` tries and docs/faults.md shows."""

from __future__ import annotations

from dataclasses import replace

from lab import fault_acts
from lab.fault import ConnectFault, Expected, Fault, WritingFault
from lab.fault_acts import SETTLES_AFTER
from lab.fault_site import PRIVATE_FOLDER, Case

ACCESS, MOUNT_FAILED = 469, 477
REQUIRE_42 = Case("require-rdma", "4.2")
PREFER_42, PREFER_3 = Case("prefer-rdma", "4.2"), Case("prefer-rdma", "3")


def _refused(within: float, says: str, fix: str) -> Expected:
    return Expected(MOUNT_FAILED, within, None, says, fix)


def _falls_back(within: float, says: str, fix: str) -> Expected:
    return Expected(0, within, "tcp", says, fix)


_OVER_RDMA = Expected(0, 20, "rdma", "mounted over rdma, proven")

_NOT_UP = "check that the server is up and its RDMA device is ACTIVE"
_RDMA_Y = "on a Linux server set rdma=y"
_ODD_PORT = "set rdma=y and rdma-port=20050"
_SILENT = "10.99.0.1 did not answer an RDMA connection within 2 s"
_NO_TCP = "TCP port 2049 does not answer either"
_NO_RPCBIND = "TCP port 111 does not answer either"


def _dead(says: str, fix: str) -> tuple[Expected, Expected]:
    """Return what each rule does with a server that answers nothing."""
    require = _refused(12, says, fix)
    prefer = replace(require, within=16, says=_NO_TCP, says_v3=_NO_RPCBIND)
    return require, prefer


# QEMU pauses a virtual machine whose disk gives errors.
_RESUME = "then resume the virtual machine, which is paused"

_LATE = replace(
    _OVER_RDMA,
    within=45,
    # The connect begins a moment after vdsmd's start.
    at_least=SETTLES_AFTER - 5,
    also="s for an RDMA port to come up",
)

# The text before the path is VDSM's, so only the path is compared.
_KEPT_OUT = Expected(
    ACCESS,
    20,
    None,
    "path = /rhev/data-center/mnt/nas:_srv_",
    "chown 36:36",
    also="VDSM has no permission to access it",
)

# RDMA works, so another transport would fail too.
_NOT_FOR_US = Expected(
    MOUNT_FAILED,
    15,
    None,
    "the server does not export this path to this host",
    "check the path",
    says_v3="the server refuses this path to this host",
    fix_v3="check the server's exports",
)

FAULTS: tuple[Fault, ...] = (
    ConnectFault(
        "port-at-boot",
        "vdsmd has started and the hypervisor's RDMA port comes up only"
        f" {SETTLES_AFTER:g} s later (settle_timeout).",
        _LATE,
        _LATE,
        fault_acts.plug_in_late,
        fault_acts.plug_cable,
        server="booting",
        each_case=True,
        chosen=(PREFER_42,),
    ),
    ConnectFault(
        "no-listener",
        "The server's NFS service is running, but does not listen on RDMA.",
        _refused(10, "refuses RDMA connections on port 20049", _RDMA_Y),
        _falls_back(15, "refuses RDMA connections on port 20049", _RDMA_Y),
        fault_acts.without_listener,
        fault_acts.with_listener,
        chosen=(PREFER_3,),
    ),
    ConnectFault(
        "wrong-port",
        "The rule names an RDMA port on which the server does not listen.",
        _refused(10, "refuses RDMA connections on port 20050", _ODD_PORT),
        _falls_back(15, "refuses RDMA connections on port 20050", _ODD_PORT),
        fault_acts.nothing,
        fault_acts.nothing,
        server="odd-port",
    ),
    ConnectFault(
        "server-device-gone",
        "The server's RDMA device is gone; its portlist still shows the listener.",
        _refused(12, _SILENT, _NOT_UP),
        _falls_back(16, _SILENT, _NOT_UP),
        fault_acts.remove_server_device,
        fault_acts.add_server_device,
        server="quick",
    ),
    ConnectFault(
        "nfsd-stopped",
        "The server is up and its NFS service is stopped.",
        _refused(10, "refuses RDMA connections on port 20049", _RDMA_Y),
        replace(
            _refused(20, _NO_TCP, _RDMA_Y),
            says_v3="refuses RDMA connections on port 20049",
        ),
        fault_acts.stop_nfsd,
        fault_acts.start_nfsd,
    ),
    ConnectFault(
        "server-unreachable",
        "A router reports that the server cannot be reached.",
        *_dead("no route to 10.98.0.1: No route to host", "network attachment"),
        fault_acts.cut_route,
        fault_acts.restore_route,
        server="unreachable",
    ),
    ConnectFault(
        "server-absent",
        "No machine on the storage network has the server's address.",
        *_dead("10.99.0.77 did not answer an RDMA connection within 2 s", _NOT_UP),
        fault_acts.nothing,
        fault_acts.nothing,
        server="absent",
    ),
    ConnectFault(
        "no-route",
        "The hypervisor has no route to the server.",
        *_dead("no route to 192.0.2.1: Network is unreachable", "network attachment"),
        fault_acts.nothing,
        fault_acts.nothing,
        server="unrouted",
    ),
    ConnectFault(
        "server-frozen",
        "The server hangs: its address exists, but nothing answers.",
        *_dead(_SILENT, _NOT_UP),
        fault_acts.freeze_server,
        fault_acts.thaw_server,
        server="quick",
        chosen=(REQUIRE_42, PREFER_42),
    ),
    ConnectFault(
        "link-down",
        "The hypervisor's cable is pulled.",
        *_dead("the RDMA port is not ACTIVE: rxe0/1 is DOWN", "check the cable"),
        fault_acts.pull_cable,
        fault_acts.plug_cable,
        server="quick",
    ),
    ConnectFault(
        "path-not-exported",
        "The server does not export the path.",
        _NOT_FOR_US,
        _NOT_FOR_US,
        fault_acts.nothing,
        fault_acts.nothing,
        folder="/srv/missing",
        chosen=(PREFER_3,),
    ),
    ConnectFault(
        "host-refused",
        "The server exports the path, but not to this host.",
        _NOT_FOR_US,
        _NOT_FOR_US,
        fault_acts.nothing,
        fault_acts.nothing,
        folder=PRIVATE_FOLDER,
    ),
    ConnectFault(
        "access-refused",
        "The export's owner and mode give vdsm no access.",
        _KEPT_OUT,
        _KEPT_OUT,
        fault_acts.keep_vdsm_out,
        fault_acts.let_vdsm_in,
    ),
    ConnectFault(
        "client-device-gone",
        "The hypervisor's RDMA device is gone.",
        _refused(5, "this host has no RDMA device", "what its adapters lack"),
        _falls_back(15, "this host has no RDMA device", "what its adapters lack"),
        fault_acts.remove_client_device,
        fault_acts.add_client_device,
    ),
    ConnectFault(
        "client-module-unloaded",
        "rpcrdma is not loaded on the hypervisor; it loads when it is needed.",
        replace(_OVER_RDMA, within=20),
        replace(_OVER_RDMA, within=20),
        fault_acts.unload_module,
        fault_acts.nothing,
        each_case=True,
    ),
    ConnectFault(
        "client-module-missing",
        "The hypervisor's kernel has no rpcrdma module.",
        _refused(5, "has no rpcrdma module", "extra modules"),
        _falls_back(15, "has no rpcrdma module", "install the kernel's extra modules"),
        fault_acts.hide_module,
        fault_acts.unhide_module,
    ),
    ConnectFault(
        "server-back",
        "The server refused RDMA a moment ago; now it listens again.",
        _OVER_RDMA,
        _OVER_RDMA,
        fault_acts.fail_and_come_back,
        fault_acts.nothing,
    ),
    ConnectFault(
        "server-back-remembered",
        "The same without rdma_ucm: the listener cannot be checked, so the"
        " failed mount decides as long as it is remembered (failure_cache).",
        _refused(5, "an RDMA mount of remembering failed", _RDMA_Y),
        _falls_back(15, "an RDMA mount of remembering failed", _RDMA_Y),
        fault_acts.fail_unasked_and_come_back("remembering"),
        fault_acts.show_rdma_cm,
        server="remembering",
    ),
    ConnectFault(
        "server-back-forgotten",
        "The same, and the failed mount is no longer remembered (failure_cache): RDMA"
        " is tried again.",
        replace(_OVER_RDMA, also="the mount is tried"),
        replace(_OVER_RDMA, also="the mount is tried"),
        fault_acts.fail_unasked_and_come_back("forgetting"),
        fault_acts.show_rdma_cm,
        server="forgetting",
    ),
    WritingFault(
        "link-4s-writing",
        "The cable is unplugged for 4 s while a virtual machine writes.",
        None,
        fault_acts.pull_cable,
        fault_acts.plug_cable,
        "nothing",
        lasts=4.0,
    ),
    WritingFault(
        "link-down-writing",
        "The cable is pulled and stays out while a virtual machine writes.",
        "EIO",
        fault_acts.pull_cable,
        fault_acts.plug_cable,
        f"plug the cable in, {_RESUME}",
    ),
    WritingFault(
        "server-frozen-writing",
        "The server hangs while a virtual machine writes.",
        "EIO",
        fault_acts.freeze_server,
        fault_acts.thaw_server,
        f"get the server running again, {_RESUME}",
    ),
    WritingFault(
        "client-device-gone-writing",
        "The hypervisor's RDMA device goes away while a virtual machine writes.",
        "EIO",
        fault_acts.remove_client_device,
        fault_acts.add_client_device,
        f"restore the device (rdma link shows it), {_RESUME}",
    ),
    WritingFault(
        "server-killed-writing",
        "The server loses power while a virtual machine writes, and comes back empty.",
        "EIO",
        fault_acts.kill_server,
        fault_acts.restart_server,
        "restore the server's data, then deactivate and activate the storage domain, so"
        " that it is mounted again",
        forgets=True,
    ),
)
