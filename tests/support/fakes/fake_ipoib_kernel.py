# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel of a fake host, whose files in /sys react to writes as those of ib_ipoib
and mlx4_core do (seen in the lab, and in Linux 6.1's sources).

Strict: what the kernel refuses is an OSError with its number.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from support.fakes.fake_netdevs import CONNECTED_MTU, FEATURES
from support.fakes.fake_root import FakeRoot

_NET = re.compile(r"/sys/class/net/([^/]+)/(mode|mtu|create_child|delete_child)")
_PORT_MTU = re.compile(r"/sys/bus/pci/devices/([^/]+)/mlx4_port(\d)_mtu")
_MOST = 4096 - 4
# The features that ipoib_fix_features turns off in connected mode.
_NOT_CONNECTED = ("\ttx-checksum-ipv4", "\ttx-tcp-segmentation")


def refused(number: int) -> OSError:
    """Return the kernel's refusal with an error number."""
    return OSError(number, os.strerror(number))


@dataclass
class IpoibKernel(FakeRoot):
    """``group_mtu`` is the MTU of the broadcast group, which limits datagram mode.

    ``refusals`` are error numbers by file. The kernel accepts and ignores writes to the
    files in ``ignored``. ``written`` has all that was written.
    """

    group_mtu: int = 2044
    ignored: set[str] = field(default_factory=set)
    refusals: dict[str, int] = field(default_factory=dict)
    written: list[tuple[str, str]] = field(default_factory=list)

    def ipoib(self, name: str, *args: object, **attributes: object) -> None:
        """Add a port's base netdev; see FakeNetdevs."""
        super().ipoib(name, *args, **attributes)  # type: ignore[arg-type]
        self.write(f"/sys/class/net/{name}/delete_child", "")

    def kernel_write(self, path: Path, data: bytes) -> None:
        """Write to a file of /sys: ``write`` of HostEffects."""
        target = "/" + str(path.relative_to(self.path))
        if target in self.refusals:
            raise refused(self.refusals[target])
        if not path.is_file():
            raise refused(errno.ENOENT)
        text = data.decode()
        value = text.removesuffix("\n")
        self.written.append((target, value))
        if target in self.ignored:
            return
        file, port = _NET.fullmatch(target), _PORT_MTU.fullmatch(target)
        if port:
            self._set_port_mtu(port[1], target, value)
        elif file and file[2] == "mode":
            if not text.endswith("\n"):
                raise refused(errno.EINVAL)
            self.set_mode(file[1], value)
        elif file and file[2] == "mtu":
            self.set_mtu(file[1], int(value))
        elif file and file[2] == "create_child":
            self.create_child(file[1], value)
        elif file:
            self.delete_child(file[1], int(value, 16))
        else:
            raise AssertionError(f"nobody writes to {target}")

    # The values of a netdev

    def text(self, netdev: str, file: str) -> str:
        """Return the text of a netdev's file, "" if it does not exist."""
        path = self.path / f"sys/class/net/{netdev}/{file}"
        return path.read_text().strip() if path.is_file() else ""

    def netdevs(self) -> set[str]:
        """Return the names of all netdevs."""
        found = (self.path / "sys/class/net").iterdir()
        return {path.name for path in found if path.is_dir()}

    def state(self, netdev: str) -> tuple[str, str, str]:
        """Return mode, MTU and TSO of a netdev."""
        tso = self._features[netdev]["\ttx-tcp-segmentation"]
        return self.text(netdev, "mode"), self.text(netdev, "mtu"), tso

    # ib_ipoib

    def set_mode(self, name: str, mode: str) -> None:
        """Change the transport mode, and the MTU and offloads with it."""
        if mode not in ("connected", "datagram"):
            raise refused(errno.EINVAL)
        if mode == "connected" and not int(self.text(name, "address")[:2], 16) & 0x80:
            raise refused(errno.EINVAL)
        if mode == self.text(name, "mode"):
            return
        self.write(f"/sys/class/net/{name}/mode", mode)
        self._ipoib_links[name]["linkinfo"]["info_data"]["mode"] = mode
        mtu = CONNECTED_MTU
        if mode == "datagram":
            mtu = min(self.group_mtu, int(self.text(name, "mtu")))
        self._put_mtu(name, mtu)
        self._fix_features(name)

    def set_mtu(self, name: str, mtu: int) -> None:
        """Change the MTU; in datagram mode the group may lower it."""
        connected = self.text(name, "mode") == "connected"
        if not 72 <= mtu <= (CONNECTED_MTU if connected else self._most(name)):
            raise refused(errno.EINVAL)
        self._put_mtu(name, mtu if connected else min(mtu, self.group_mtu))

    def create_child(self, parent: str, pkey: str) -> str:
        """Make a P_Key child; return its name."""
        number = int(pkey, 16)
        if number in (0, 0x8000) or number > 0xFFFF or self.text(parent, "parent"):
            raise refused(errno.EINVAL)
        if self.child_of(parent, number | 0x8000):
            raise refused(errno.ENOTUNIQ)
        mtu = min(self.group_mtu, self._most(parent))
        name = f"{parent[:10]}.{number:04x}"
        return self.pkey_child(parent, f"0x{number | 0x8000:04x}", name, mtu=mtu)

    def delete_child(self, parent: str, pkey: int) -> None:
        """Remove a P_Key child."""
        name = self.child_of(parent, pkey)
        if name is None:
            raise refused(errno.ENODEV)
        self.remove_netdev(name)

    def child_of(self, parent: str, pkey: int) -> Optional[str]:
        """Return the child of a netdev with a P_Key."""
        for name in self.netdevs():
            ours = self.text(name, "parent") == parent
            if ours and int(self.text(name, "pkey"), 16) == pkey:
                return name
        return None

    def set_feature(self, name: str, feature: str, on: bool) -> bool:
        """Request an offload by its kernel name; return True if it has that state then.
        The kernel remembers a request that it cannot fulfil.
        """
        shown = next(key for key in self._features[name] if key.strip() == feature)
        if not self._features[name][shown].endswith("[fixed]"):
            self._features[name][shown] = "on" if on else "off"
            self._fix_features(name)
        return self._features[name][shown].split()[0] == ("on" if on else "off")

    def _fix_features(self, name: str) -> None:
        connected = self.text(name, "mode") == "connected"
        for feature in _NOT_CONNECTED:
            state = self._features[name][feature]
            if connected and state == "on":
                self._features[name][feature] = "off [requested on]"
            elif not connected and state == "off [requested on]":
                self._features[name][feature] = "on"

    def _most(self, name: str) -> int:
        port = int(self.text(self.text(name, "parent") or name, "dev_port") or "0") + 1
        largest = [most for (_, p), (most, _) in self._mtus.items() if p == port]
        return largest[0] - 4 if largest else _MOST

    def _put_mtu(self, name: str, mtu: int) -> None:
        self.write(f"/sys/class/net/{name}/mtu", str(mtu))
        self._links[name]["mtu"] = mtu

    # Netdevs that are removed, recreated and renamed

    def remove_netdev(self, name: str) -> None:
        """Remove a netdev, and its children first."""
        for child in sorted(self.netdevs()):
            if self.text(child, "parent") == name:
                self.remove_netdev(child)
        link = self.path / "sys/class/net" / name
        shutil.rmtree(link.resolve())
        link.unlink()
        for known in (self._links, self._ipoib_links, self._features):
            known.pop(name, None)

    def rename_netdev(self, old: str, new: str) -> None:
        """Rename a netdev, as ``ip link set OLD name NEW`` does."""
        link = self.path / "sys/class/net" / old
        real = link.resolve()
        link.unlink()
        real.rename(real.with_name(new))
        link = link.with_name(new)
        link.symlink_to(os.path.relpath(real.with_name(new), link.parent.resolve()))
        for child in self.netdevs():
            if self.text(child, "parent") == old:
                self.write(f"/sys/class/net/{child}/parent", new)
                self._ipoib_links[child]["link"] = new
        for side in ("upper", "lower"):
            for stacked in (self.path / "sys/class/net").glob(f"*/{side}_{old}"):
                stacked.unlink()
                stacked.with_name(f"{side}_{new}").symlink_to(link.resolve())
        for rows in (self._links, self._ipoib_links):
            if old in rows:
                rows[new] = {**rows.pop(old), "ifname": new}
        self._features[new] = self._features.pop(old)

    def anew(self, name: str) -> None:
        """Make an IPoIB netdev as its driver does: in datagram mode, with defaults."""
        for child in sorted(self.netdevs()):
            if self.text(child, "parent") == name:
                self.remove_netdev(child)
        self.write(f"/sys/class/net/{name}/mode", "datagram")
        self._ipoib_links[name]["linkinfo"]["info_data"]["mode"] = "datagram"
        self._features[name] = dict(FEATURES)
        self._put_mtu(name, min(self.group_mtu, self._most(name)))

    def base_netdevs(self, address: str = "") -> list[str]:
        """Return the ports' own IPoIB netdevs, all or those of a PCI function."""
        return [
            name
            for name in sorted(self.netdevs())
            if (self.path / "sys/class/net" / name / "create_child").exists()
            and address in str((self.path / "sys/class/net" / name).resolve())
        ]

    def _set_port_mtu(self, address: str, target: str, value: str) -> None:
        if value not in ("256", "512", "1024", "2048", "4096"):
            raise refused(errno.EINVAL)
        self.write(target, value)
        port = int(target[-5])
        for (device, number), (_, active) in list(self._mtus.items()):
            if number == port:
                largest = int(value)
                self.ib_mtus(device, number, largest, min(active, largest))
        for name in self.base_netdevs(address):
            self.anew(name)
