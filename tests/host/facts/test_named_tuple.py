# SPDX-License-Identifier: GPL-2.0-or-later
"""Our named tuples are those of typing.NamedTuple."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

from ovirt_rdma.host.facts import named_tuple


class Ours(named_tuple.NamedTuple):
    """A port."""

    device: str
    port: int = 1
    names: tuple[str, ...] = ()

    def title(self) -> str:
        """Return both."""
        return f"{self.device}/{self.port}"

    @property
    def first(self) -> bool:
        return self.port == 1


class Theirs(typing.NamedTuple):
    """A port."""

    device: str
    port: int = 1
    names: tuple[str, ...] = ()


def test_it_has_the_fields_defaults_and_texts_of_typing():
    assert Ours._fields == Theirs._fields
    assert Ours._field_defaults == Theirs._field_defaults
    assert Ours.__doc__ == Theirs.__doc__
    assert Ours.__module__ == __name__
    assert Ours.__qualname__ == "Ours"
    assert repr(Ours("mlx5_0")) == repr(Theirs("mlx5_0")).replace("Theirs", "Ours")
    assert Ours("mlx5_0", 2) == Theirs("mlx5_0", 2) == ("mlx5_0", 2, ())


def test_its_methods_and_properties_work():
    one = Ours("mlx5_0")
    assert (one.title(), one.first) == ("mlx5_0/1", True)
    assert one._replace(port=2).title() == "mlx5_0/2"
    assert not one._replace(port=2).first


def test_copies_and_pickles_are_of_the_same_class():
    one = Ours("mlx5_0", 2, ("a",))
    for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert type(other) is Ours
        assert other == one


def test_what_is_missing_unknown_or_set_is_refused():
    with pytest.raises(TypeError, match="device"):
        Ours()
    with pytest.raises(TypeError, match="speed"):
        Ours("mlx5_0", speed=1)
    with pytest.raises(AttributeError):
        Ours("mlx5_0").port = 2
