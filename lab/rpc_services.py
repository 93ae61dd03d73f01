# SPDX-License-Identifier: GPL-2.0-or-later
"""Start rpcbind and statd, which NFS 3 needs on both sides of a mount."""

from __future__ import annotations

from lab.second_host import Host

# With the users that Debian's maintainer scripts would create.
_SCRIPT = """
for user in _rpc:990 statd:991; do
    getent passwd ${user%:*} ||
        echo ${user%:*}:x:${user#*:}:65534::/:/usr/sbin/nologin >> /etc/passwd
done
mkdir -p /run/rpcbind /var/lib/nfs
mount -t tmpfs -o mode=755 tmpfs /var/lib/nfs
cd /var/lib/nfs
mkdir -p v4recovery sm sm.bak
touch etab rmtab state xtab
chown -R statd: /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/state
chown statd: /var/lib/nfs
chown _rpc: /run/rpcbind
rpcbind -w
rpc.statd --no-notify
"""


def start_rpc_services(guest: Host) -> None:
    """Start rpcbind and statd in ``guest``; a second time does nothing."""
    guest.run(f"set -e; [ -e /run/rpcbind.sock ] && exit; {_SCRIPT}", check=True)
