# SPDX-License-Identifier: GPL-2.0-or-later
"""Keep what a task of the daemon saw last in a file of /run that everybody may read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic, Optional, Protocol, TypeVar, Union

from ovirt_rdma.host.paths import under
from ovirt_rdma.host.system.files import not_written, write_public
from ovirt_rdma.host.system.json_codec import (
    Check,
    Envelope,
    Records,
    WrongRecord,
    json_value,
    plain,
)
from ovirt_rdma.host.system.tree import FileTree, Problems, seconds_after_boot


class _State(Protocol):
    def is_fresh(self, now_s: float) -> bool: ...


_S = TypeVar("_S", bound=_State)


class StateFile(Generic[_S]):
    """The file ``path`` with a record of the class ``cls`` in ``envelope``. The record
    says itself whether it ``is_fresh``, so many seconds after boot; ``noun`` is it in
    sentences.
    """

    def __init__(
        self,
        path: str,
        envelope: Envelope,
        cls: type[_S],
        noun: str,
        check: Check = Records.check,
    ) -> None:
        self._path, self._cls, self._noun = path, cls, noun
        self._envelope = envelope
        self._records = Records(f"the {noun}", check)

    def write(self, root: Union[str, Path], state: _S) -> None:
        """Write the state below ``root``. Raises Problem if that is not possible."""
        write_public(under(root, self._path), self._envelope.text(plain(state)))

    def remove(self, root: Union[str, Path]) -> None:
        """Remove the state below ``root``, so that nobody takes it for the present one.
        Raises Problem if that is not possible.
        """
        path = under(root, self._path)
        try:
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise not_written(error, path) from error

    def read(
        self,
        root: Union[str, Path] = "/",
        problems: Problems = None,
        now_s: Optional[float] = None,
    ) -> Optional[_S]:
        """Return the state below ``root``; None if nobody keeps it.

        None and a sentence in ``problems`` if it cannot be used, or is stale ``now_s``
        seconds after boot (None: now).
        """
        tree = FileTree(root)
        if not os.path.lexists(tree.below(self._path)):
            return None
        data = tree.data(self._path, problems)
        if data is None:
            return None
        try:
            content = self._envelope.content(json_value(data))
            state = self._records.read(self._cls, content)
        except WrongRecord as error:
            sentence = f"{self._path} is invalid and is ignored: {error}"
        else:
            if state.is_fresh(seconds_after_boot() if now_s is None else now_s):
                return state
            # Without its age: a unit says each sentence once.
            sentence = f"{self._path} is stale, so the {self._noun} is unknown"
        if problems is not None:
            problems.append(sentence)
        return None
