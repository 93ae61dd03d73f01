# SPDX-License-Identifier: GPL-2.0-or-later
"""Give a guest with systemd multipathd, with the settings of VDSM that matter here."""

from __future__ import annotations

from lab import modules
from lab.cache import cache_folder
from lab.guest import Guest
from lab.packages import fetched

_PACKAGES = ("multipath-tools", "kpartx", "liburcu8", "libaio1", "libjson-c5")
_INSTALL = """
set -e
cp "$1"/usr/sbin/multipath* /usr/sbin/
cp -a "$1"/usr/lib/*.so* "$1"/usr/lib/multipath /usr/lib/
cp -a "$1"/usr/lib/*-linux-gnu/*.so* /usr/lib/
cp "$1"/usr/lib/udev/rules.d/5*-dm-mpath.rules "$1"/usr/lib/udev/rules.d/95-* \
    "$1"/usr/lib/udev/rules.d/60-multipath.rules /usr/lib/udev/rules.d/
cat > /etc/multipath.conf
udevadm control --reload
"""
# From VDSM's file, where Debian's version knows no flush_on_last_del always. EL's
# multipathd makes maps of single paths too.
_CONF = """\
# VDSM REVISION 2.2
defaults {
    polling_interval            5
    no_path_retry               16
    user_friendly_names         no
    flush_on_last_del           yes
    fast_io_fail_tmo            5
    dev_loss_tmo                30
    find_multipaths             no
}
blacklist {
    protocol "(scsi:adt|scsi:sbp)"
    devnode "^(rbd)[0-9]*"
}
overrides {
    no_path_retry   16
}
"""


def start(guest: Guest) -> None:
    """Start multipathd; its packages are fetched once, into the cache."""
    package = fetched(cache_folder(), *_PACKAGES)
    command = ["bash", "-c", _INSTALL, "install", str(package)]
    guest.run(command, input=_CONF, check=True)
    modules.load(guest, "dm_multipath", "dm_service_time", "sd_mod")
    guest.run("systemd-run --unit=multipathd multipathd -d -s", check=True)
    ready = "until multipathd show daemon > /dev/null 2>&1; do sleep 0.2; done"
    guest.run(ready, check=True)
