# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the flags of a definition or of a multicast group in partitions.conf. Pure.

opensm matches their names by the beginning, so ``s=3`` is a scope, and ignores what it
does not know; a wrong MTU or rate leaves the partition without its broadcast group, so
that IPoIB never gets a carrier.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.model import GroupFlags
from ovirt_rdma.host.facts import ib_codes
from ovirt_rdma.host.facts.pkeys import LIMITED, MEMBERSHIPS
from ovirt_rdma.host.system.numbers import whole

IPOIB, INDX0, DEFMEMBER = "ipoib", "indx0", "defmember"
_OF_DEFINITION = (IPOIB, INDX0, DEFMEMBER)


class _Range(NamedTuple):
    field: str
    low: int
    high: int
    shown: str


_NUMBERS = {
    "rate": _Range("rate", 2, 24, "the code of a rate"),
    "mtu": _Range("mtu", 1, 5, "the code of an IB MTU"),
    "sl": _Range("sl", 0, 15, "a service level"),
    # 0 and 15 are reserved (RFC 4291 section 2.7).
    "scope": _Range("scopes", 1, 14, "a multicast scope"),
    # 0 stands for the default, here and below.
    "Q_Key": _Range("q_key", 1, 0xFFFFFFFF, "a Q_Key"),
    "TClass": _Range("tclass", 1, 0xFF, "a traffic class"),
    "FlowLabel": _Range("flow_label", 0, 0xFFFFF, "a flow label"),
}
# In the order in which opensm compares.
GROUP_FLAGS = ("mtu", "rate", "scope", "Q_Key", "TClass", "sl", "FlowLabel")


class MistakeInFlag(ValueError):
    """A flag is refused; ``sentence`` says why."""

    def __init__(self, id: str, text: str) -> None:
        super().__init__(text)
        self.sentence = Sentence(id, text)


class FlagReader:
    """Collects flags. ``of_group``: those of a multicast group, which has fewer."""

    def __init__(self, *, of_group: bool = False) -> None:
        self.ipoib = self.indx0 = False
        self.membership = LIMITED
        self._of_group = of_group
        self._seen: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._scopes: list[int] = []

    @property
    def group_flags(self) -> GroupFlags:
        """The flags about multicast groups."""
        return GroupFlags(**self._numbers, scopes=tuple(self._scopes))

    def add(self, text: str) -> None:
        """Read one flag, ``mtu=5``. Raises MistakeInFlag."""
        name, equals, value = (one.strip() for one in text.partition("="))
        known = name in _NUMBERS or (name in _OF_DEFINITION and not self._of_group)
        if not known:
            raise self._unknown(name)
        repeated = name in self._seen and name != "scope"
        if repeated:
            raise MistakeInFlag(
                "flag-repeated",
                f"{name} is given twice, and opensm uses the last one",
            )
        self._seen.add(name)
        if name in (IPOIB, INDX0):
            if equals:
                raise MistakeInFlag(
                    "flag-has-value",
                    f"{text} has a value, which opensm ignores; write {name}",
                )
            self.ipoib |= name == IPOIB
            self.indx0 |= name == INDX0
        elif name == DEFMEMBER:
            self._membership(text, value)
        else:
            self._number(name, text, value)

    def _membership(self, text: str, value: str) -> None:
        if value not in MEMBERSHIPS:
            taken = next((one for one in MEMBERSHIPS if one.startswith(value)), LIMITED)
            raise MistakeInFlag(
                "membership-unknown",
                f"{text} has no membership; allowed: {', '.join(MEMBERSHIPS)} "
                f"(opensm takes it for {taken})",
            )
        self.membership = value

    def _number(self, name: str, text: str, value: str) -> None:
        field, low, high, shown = _NUMBERS[name]
        allowed = f"allowed: {shown}, {low} to {high}"
        number = whole(value, 0)
        if number is None:
            raise MistakeInFlag(
                "flag-value-invalid", f"{text} has no valid number; {allowed}"
            )
        if not low <= number <= high:
            raise MistakeInFlag(
                "flag-value-out-of-range",
                f"{text} is out of range; {allowed}{_meant(name, number)}",
            )
        if name != "scope":
            self._numbers[field] = number
        elif number in self._scopes:
            raise MistakeInFlag("scope-repeated", f"{text} is given twice")
        else:
            self._scopes.append(number)

    def _unknown(self, name: str) -> MistakeInFlag:
        names = (*GROUP_FLAGS, *(() if self._of_group else _OF_DEFINITION))
        taken = next((one for one in names if one.startswith(name)), None)
        if taken == INDX0:
            taken = None  # compared as a whole
        effect = f"takes it for {taken}" if taken else "ignores it"
        return MistakeInFlag(
            "flag-unknown",
            f"{name!r} is not a flag; allowed: {', '.join(sorted(names))} "
            f"(opensm {effect})",
        )


def _meant(name: str, number: int) -> str:
    code: Optional[int] = None
    if name == "mtu":
        code = ib_codes.meant_mtu(number)
    elif name == "rate":
        code = ib_codes.meant_rate(number)
    if code is None:
        return ""
    text = ib_codes.mtu_text(code) if name == "mtu" else ib_codes.rate_text(code)
    return f"; did you mean {name}={text}?"
