# SPDX-License-Identifier: GPL-2.0-or-later
"""Make named tuples as typing.NamedTuple does, without the module typing.

For the exporter of metrics, which starts every 15 seconds: typing, and its look at each
annotation, would be a seventh of its run on Python 3.12.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False  # of typing, which is what is left out here
if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _NamedTupleType(type):
        """Turns the body of a class into a named tuple with the same methods.

        As ``__new__`` of NamedTupleMeta (Lib/typing.py), with annotations that are
        texts only, which ``from __future__ import annotations`` makes of all.
        """

        def __new__(mcs, name, bases, body):
            if not bases:
                return super().__new__(mcs, name, bases, body)
            fields = body["__annotations__"]
            defaults = [body.pop(field) for field in fields if field in body]
            module = body.pop("__module__")
            made = namedtuple(name, fields, defaults=defaults, module=module)
            for attribute, value in body.items():
                setattr(made, attribute, value)
            return made

    class NamedTuple(metaclass=_NamedTupleType):
        """The base of a named tuple: ``name: type``, or ``name: type = default``."""


__all__ = ["NamedTuple"]
