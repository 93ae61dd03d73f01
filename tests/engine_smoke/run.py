# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a whole smoke run: clean up after an earlier one, do the acts, clean up."""

from __future__ import annotations

import contextlib
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from engine_recording import RecordingProxy
from engine_recording.recorder import take

from engine_smoke.acts import ACTS
from engine_smoke.clean_up import clean_up
from engine_smoke.site import DOUBLE, Notes, Site, Skipped, Wishes

DONE, SKIPPED, FAILED = "done", "skipped", "failed"
CLEAN_UP = "cleaning up"


@dataclass(frozen=True)
class Outcome:
    """The result of an act; ``why`` is the reason if it is not done."""

    act: str
    outcome: str
    why: str = ""


Tell = Callable[[Outcome], None]


def smoke(wishes: Wishes, tell: Tell, door: Any = None, fast: bool = False) -> bool:
    """Run all acts; False if one failed. KeyboardInterrupt ends it, after cleaning up.

    Raises what :func:`remove_what_is_left` does, and Skipped where there is no data
    center for it.
    """
    door, fast = _of_tests(wishes, door, fast)
    with contextlib.closing(Notes(wishes.notes)) as notes:
        with contextlib.closing(Site(wishes, wishes.url, notes, door, fast)) as before:
            # Before the recording begins.
            clean_up(before)
            before.choose_center()
            center = before.center
        with contextlib.ExitStack() as at_end:
            url = wishes.url
            if wishes.record is not None:
                url = at_end.enter_context(_recorded(wishes))
                wishes = replace(wishes, ca_file=None)
            site = Site(wishes, url, notes, door, fast, center=center)
            at_end.callback(site.close)
            return _acts(site, tell)


def remove_what_is_left(wishes: Wishes, door: Any = None, fast: bool = False) -> None:
    """Remove what a killed run left. Raises OtherRun, Left, and EngineProblem."""
    door, fast = _of_tests(wishes, door, fast)
    with contextlib.ExitStack() as at_end:
        notes = at_end.enter_context(contextlib.closing(Notes(wishes.notes)))
        site = Site(wishes, wishes.url, notes, door, fast)
        at_end.callback(site.close)
        clean_up(site)


def _of_tests(wishes: Wishes, door: Any, fast: bool) -> tuple[Any, bool]:
    if wishes.hosts != DOUBLE:
        return door, fast
    from support.engine.engine_door import HttpDoor

    return HttpDoor(wishes.url), True


def _acts(site: Site, tell: Tell) -> bool:
    good = True
    with _signals(site) as calm:
        try:
            for name, act in ACTS.items():
                one = _outcome(name, act, site)
                good = good and one.outcome != FAILED
                tell(one)
        finally:
            calm()
            site.ended = False
            one = _outcome(CLEAN_UP, clean_up, site)
            tell(one)
    return good and one.outcome == DONE


def _outcome(name: str, act: Callable[[Site], None], site: Site) -> Outcome:
    try:
        act(site)
        site.go_on()
    except Skipped as reason:
        return Outcome(name, SKIPPED, str(reason))
    except Exception as error:  # noqa: BLE001 - the next acts run
        where = traceback.extract_tb(error.__traceback__)
        line = next((f for f in reversed(where) if "engine_smoke" in f.filename), None)
        place = f" ({line.name}: {line.line})" if line else ""
        return Outcome(name, FAILED, f"{type(error).__name__}: {error}{place}")
    return Outcome(name, DONE)


@contextlib.contextmanager
def _recorded(wishes: Wishes) -> Iterator[str]:
    """Yield the address of a recording proxy; write the manifest at the end."""
    assert wishes.record is not None
    passwords = (wishes.password or "", f"not-{wishes.password}")
    proxy = RecordingProxy(wishes.url, wishes.record, passwords[:1], wishes.ca_file)
    with proxy:
        plain = replace(wishes, url=proxy.url, ca_file=None)
        site = Site(plain, proxy.url, notes=None)  # type: ignore[arg-type]
        manifest = take(proxy, site.settings())
        yield proxy.url
    proxy.writer.finish(manifest)


@contextlib.contextmanager
def _signals(site: Site) -> Iterator[Callable[[], None]]:
    """Let SIGINT and SIGTERM end the run; yield a function that makes them ignored."""

    def end(number: int, frame: Any) -> None:
        site.ended = True
        raise KeyboardInterrupt

    before: dict[int, Any] = {}

    def calm() -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)

    with contextlib.suppress(ValueError):  # not in the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, end)
    try:
        yield calm
    finally:
        for number, was in before.items():
            signal.signal(number, was)
