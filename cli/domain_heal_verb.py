# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain heal``: hosts whose mounts fell back to TCP mount them anew."""

from __future__ import annotations

import contextlib
import time
from argparse import Namespace
from collections.abc import Sequence

from ovirt_rdma.cli.asked_hosts import NO_WAY
from ovirt_rdma.cli.conversion_run import Run, no_other_under_way
from ovirt_rdma.cli.engine_session import door_of, opened
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_resume
from ovirt_rdma.engine_sdk_tools.conversion.state import HEAL, UNDER_WAY
from ovirt_rdma.engine_sdk_tools.conversion.users import pinned_on
from ovirt_rdma.engine_sdk_tools.domain_heal import plan_heal
from ovirt_rdma.engine_sdk_tools.domain_rows import domains_to_verify
from ovirt_rdma.engine_sdk_tools.engine_facts import Domain, Engine
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.refusals import Refused

_KIND = "domain-heal"


def heal(words: Namespace, screen: Screen) -> int:
    """Heal the data centers one after the other; the worst exit code."""
    with opened(words) as session:
        engine = read_engine(session)
        domains = domains_to_verify(engine, words.names, words.datacenter)
        door = door_of(words, engine)
        if door is None:
            raise Refused([NO_WAY[0]], NO_WAY[1])
        run = Run(words, screen, session, door)
        centers = dict.fromkeys(str(d.data_center) for d in domains if d.data_center)
        codes = [_center(run, engine, center, domains) for center in centers]
    if not codes and screen.for_people:
        screen.line("There is no NFS storage domain in a data center.")
    return max(codes, default=0)


def _center(run: Run, engine: Engine, center: str, domains: Sequence[Domain]) -> int:
    words, screen = run.words, run.screen
    with contextlib.ExitStack() as locked:
        if not words.dry_run:
            locked.enter_context(run.folder.only_run(center))
        found = run.recorded(engine, center)
        cut_off = next(
            (s for s in found if s.kind == HEAL and s.stage in UNDER_WAY), None
        )
        no_other_under_way(found, cut_off)
        reports = run.reports(engine, center) or ()
        if cut_off is not None:
            return run.do(plan_resume(cut_off, engine, reports), _KIND)
        mine = [d for d in domains if d.data_center == center]
        plan = plan_heal(
            engine,
            center,
            mine,
            reports,
            pinned=pinned_on(run.session, engine.hosts_of(center)),
            batch=words.batch,
            now=time.time(),
        )
        for sentence in () if words.dry_run else plan.warnings:
            screen.message(f"warning: {sentence}")
        if not plan.state.hosts and not words.dry_run:
            if screen.for_people:
                screen.text("Nothing to heal: no mount is known to be degraded.")
            else:
                screen.document(_KIND, {"stage": "nothing to do", "hosts": []})
            return 3 if plan.warnings else 0
        return run.do(plan, _KIND)
