# SPDX-License-Identifier: GPL-2.0-or-later
"""Define what a metric is, and the labels and sources that metrics share. Data only.

No dataclass here, and no typing: the exporter starts every 15 seconds.
"""

from __future__ import annotations

from typing import Union

PREFIX = "ovirt_rdma_"
GAUGE, COUNTER = "gauge", "counter"

# Labels.
MOUNT = ("export", "mountpoint")
CONNECTION = (*MOUNT, "connection", "protocol")
OPERATION = (*MOUNT, "operation")
TRANSPORT = ("switch", "transport", "protocol", "destination")
PORT = ("device", "port")

MOUNTSTATS = "/proc/self/mountstats"
XPRT_INFO = "/sys/kernel/sunrpc/xprt-switches/switch-N/xprt-M/xprt_info"
COUNTERS = "/sys/class/infiniband/DEVICE/ports/N/counters"
HW_COUNTERS = "/sys/class/infiniband/DEVICE/ports/N/hw_counters"
REVIEW = "the proof of the mount and the policy, as `ovirt-rdma-host nfs list`"
HEALTH = "/run/ovirt-rdma/health.json"
OWN = "the exporter itself"


class Family:
    """One metric: ``name`` begins with PREFIX, ``kind`` is GAUGE or COUNTER, ``labels``
    are the names of its labels, ``source`` says where its values come from.
    """

    __slots__ = ("help", "kind", "labels", "name", "source")

    def __init__(
        self, name: str, kind: str, help: str, labels: tuple[str, ...], source: str
    ) -> None:
        self.name, self.kind, self.help = PREFIX + name, kind, help
        self.labels, self.source = labels, source


class Counted:
    """A metric made of one number of the kernel, which has the name ``value`` in
    host/facts/statistics: multiplied by ``times``, divided by ``per``.
    """

    __slots__ = ("family", "per", "times", "value")

    def __init__(
        self, family: Family, value: str, times: int = 1, per: int = 1
    ) -> None:
        self.family, self.value, self.times, self.per = family, value, times, per

    def of(self, number: int) -> Union[int, float]:
        """Return the value of the metric for the kernel's ``number``."""
        number *= self.times
        return number if self.per == 1 else number / self.per
