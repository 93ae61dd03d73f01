# SPDX-License-Identifier: GPL-2.0-or-later
"""Doing the same for many at once, with an end that Ctrl-C can bring about.

The threads of concurrent.futures are waited for when the program ends, however long
they take; these are not.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Callable, Optional, TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def in_parallel(
    act: Callable[[_In], _Out], subjects: Sequence[_In], at_once: int
) -> list[_Out]:
    """Return ``act`` of each subject, in order, ``at_once`` at a time.

    Raises the first error, by order, after which nothing new is begun.
    """
    results: list[Any] = [None] * len(subjects)
    errors: dict[int, BaseException] = {}
    todo = iter(range(len(subjects)))
    lock = threading.Lock()

    def take() -> Optional[int]:
        with lock:
            return None if errors else next(todo, None)

    def work() -> None:
        while (number := take()) is not None:
            try:
                results[number] = act(subjects[number])
            except BaseException as error:  # noqa: BLE001  (raised by who asked)
                with lock:
                    errors[number] = error

    threads = [
        threading.Thread(target=work, daemon=True)
        for _ in range(min(at_once, len(subjects)))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:
        with lock:
            errors.setdefault(len(subjects), error)
        raise
    if errors:
        raise errors[min(errors)]
    return results
