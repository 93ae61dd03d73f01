# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve the LUNs of a guest over iSER too, and give a guest open-iscsi."""

from __future__ import annotations

from lab import modules
from lab.cache import cache_folder
from lab.guest import Guest
from lab.packages import fetched

IQN = "iqn.2003-01.org.example:lab"
PACKAGES = ("open-iscsi", "libopeniscsiusr", "libisns0")
_TARGET = "/sys/kernel/config/target"
# iscsi_target_mod makes a second listener, over RDMA, for a portal with iser. The tag
# is not that of an initiator's record, which is 1.
_SERVE = f"""
set -e
cd {_TARGET}
mkdir -p iscsi
group=iscsi/{IQN}/tpgt_7
mkdir -p "$group/np/$1:3260"
for disk in core/fileio_*/*; do
    number=${{disk##*disk}}
    [ -d "$disk" ] || continue
    mkdir "$group/lun/lun_$number"
    ln -s "{_TARGET}/$disk" "$group/lun/lun_$number/disk"
done
echo 0 > "$group/attrib/authentication"
echo 1 > "$group/attrib/generate_node_acls"
echo 0 > "$group/attrib/demo_mode_write_protect"
echo 1 > "$group/enable"
echo 1 > "$group/np/$1:3260/iser"
"""
# As EL's iscsid.conf says.
_INSTALL = """
set -e
cp "$1/usr/sbin/iscsid" "$1/usr/sbin/iscsiadm" /usr/sbin/
cp -a "$1"/usr/lib/*-linux-gnu/*.so* /usr/lib/
mkdir -p /etc/iscsi /run/lock/iscsi
sed 's/^node.startup = .*/node.startup = automatic/' "$1/etc/iscsi/iscsid.conf" \
    > /etc/iscsi/iscsid.conf
echo InitiatorName=iqn.2003-01.org.example:$HOSTNAME > /etc/iscsi/initiatorname.iscsi
"""


def serve(guest: Guest, address: str) -> None:
    """Serve all disks of the guest's target to everybody, over iSER at ``address``."""
    modules.load(guest, "iscsi_target_mod", "ib_isert")
    guest.run(["bash", "-c", _SERVE, "serve", address], check=True)


def start_iscsid(guest: Guest) -> None:
    """Give ``guest`` iscsiadm and a running iscsid; the packages are fetched once."""
    package = fetched(cache_folder(), *PACKAGES)
    guest.run(["bash", "-c", _INSTALL, "install", str(package)], check=True)
    modules.load(guest, "ib_iser", "iscsi_tcp", "scsi_transport_iscsi")
    guest.start(["iscsid", "-f"])
