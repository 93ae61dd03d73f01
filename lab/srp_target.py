# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve LUNs over SRP from a guest, with the kernel's own target (LIO, ib_srpt)."""

from __future__ import annotations

from lab import modules
from lab.guest import Guest

# id_ext and ioc_guid of the target; ib_srpt's default is the first device's.
SERVICE_GUID = "0002c90300fb1230"
CM_PORT = 5555

_TARGET = "/sys/kernel/config/target"
_START = f"""
set -e
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
modprobe ib_srpt srpt_service_guid=0x{SERVICE_GUID}
mkdir {_TARGET}/srpt
echo {CM_PORT} > {_TARGET}/srpt/discovery_auth/rdma_cm_port
"""
# offer GROUP DISK NUMBER INITIATOR...: the disk as that LUN of a port's group.
_LUN = f"""
set -e
cd {_TARGET}
offer() {{
    local group=$1 disk=$2 lun=lun_$3 initiator own
    shift 3
    mkdir "$group/lun/$lun"
    ln -s "{_TARGET}/$disk" "$group/lun/$lun/disk"
    for initiator in "$@"; do
        own=$group/acls/$initiator/$lun
        mkdir "$own"
        ln -s "{_TARGET}/$group/lun/$lun" "$own/lun"
    done
}}
"""
# A port's name is the GUID in its first GID.
_SERVE = f"""{_LUN}
gid=$(cat "/sys/class/infiniband/$1/ports/$2/gids/0")
group=srpt/${{gid: -19}}/${{gid: -19}}
mkdir -p "$group"
shift 2
for initiator in "$@"; do mkdir "$group/acls/$initiator"; done
for disk in core/fileio_*/*; do
    if [ -d "$disk" ]; then offer "$group" "$disk" "${{disk##*disk}}" "$@"; fi
done
echo 1 > "$group/enable"
"""
# One more disk, while the target is enabled.
_OFFER = f"""{_LUN}
number=$1
shift
for group in srpt/*/*; do
    [ -d "$group/lun" ] || continue
    offer "$group" "core/fileio_$number/disk$number" "$number" "$@"
done
"""
_DISK = f"""
set -e
disk={_TARGET}/core/fileio_$1/disk$1
mkdir -p "$disk"
echo "fd_dev_name=/run/disk$1.img,fd_dev_size=$2" > "$disk/control"
echo "lab-disk-$1" > "$disk/wwn/vpd_unit_serial"
echo 1 > "$disk/enable"
"""


class SrpServer:
    """The target in ``guest``, whose RDMA devices are up."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        modules.load(guest, "target_core_file")
        guest.run(_START, check=True)

    def add_disk(self, number: int, size: int) -> None:
        """Make a disk of ``size`` bytes; ports that serve later have it as this LUN."""
        self.guest.run(
            ["bash", "-c", _DISK, "disk", f"{number}", f"{size}"], check=True
        )

    def serve(self, device: str, port: int, *initiators: str) -> None:
        """Serve all disks on a port to ``initiators``: port GUIDs such as
        0002:c903:00fb:1231, or for RDMA CM the port's own IP address, which ib_srpt
        takes for that of the initiator (srpt_rdma_cm_req_recv, Linux 6.1).
        """
        words = ["bash", "-c", _SERVE, "serve", device, str(port), *initiators]
        self.guest.run(words, check=True)

    def offer(self, number: int, *initiators: str) -> None:
        """Add a disk to what the ports serve already."""
        words = ["bash", "-c", _OFFER, "offer", str(number), *initiators]
        self.guest.run(words, check=True)
