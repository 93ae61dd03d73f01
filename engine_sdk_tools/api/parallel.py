# SPDX-License-Identifier: GPL-2.0-or-later
"""Call a function for many subjects in parallel, in a way that Ctrl-C can stop.

At its end, a program waits for the threads of concurrent.futures, however long they
take. It does not wait for these threads.
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
    """Return the result of ``act`` for each subject, in order.

    At most ``at_once`` calls run at a time. After an error no new call is started, and
    the first error in the order of the subjects is raised.
    """
    results: list[Any] = [None] * len(subjects)
    errors: dict[int, BaseException] = {}
    pending = iter(range(len(subjects)))
    lock = threading.Lock()

    def take() -> Optional[int]:
        with lock:
            return None if errors else next(pending, None)

    def work() -> None:
        while (number := take()) is not None:
            try:
                results[number] = act(subjects[number])
            except BaseException as error:  # noqa: BLE001  (the caller raises it)
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
