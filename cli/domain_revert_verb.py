# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain revert``: a conversion is taken back, to what it found at its begin."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from dataclasses import replace

from ovirt_rdma.cli.conversion_run import (
    Run,
    no_other_under_way,
    stands_converted,
    stored_of,
)
from ovirt_rdma.cli.engine_session import door_of, opened
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_revert
from ovirt_rdma.engine_sdk_tools.conversion.state import REVERTED, ROLLED_BACK
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.names import domain_named
from ovirt_rdma.engine_sdk_tools.refusals import Refused

_KIND = "domain-revert"


def revert(words: Namespace, screen: Screen) -> int:
    """Take back what was recorded; with other domains that were converted with it."""
    with opened(words) as session, contextlib.ExitStack() as locked:
        engine = read_engine(session)
        domain = domain_named(engine, words.name, words.datacenter)
        run = Run(words, screen, session, door_of(words, engine))
        if domain.data_center is None:
            raise Refused(
                [f"{domain.name} is attached to no data center: no host mounts it"],
                "attach it first",
            )
        center = domain.data_center
        if not words.dry_run:
            locked.enter_context(run.folder.only_run(center))
        found = run.folder.states(center)
        state = stored_of(found, [domain])
        if state is None:
            raise Refused(
                [f"this machine has no record of a conversion of {domain.name}"],
                "run it where the conversion was run, as the same user; or convert it: "
                f"ovirt-rdma domain convert {domain.name} --to tcp",
            )
        no_other_under_way(found, state)
        over = state.stage in (REVERTED, ROLLED_BACK)
        if over and not stands_converted(state):
            if screen.for_people:
                screen.text(f"Nothing to revert: {state.title} is as before.")
            else:
                names = [one.name for one in state.domains]
                screen.document(_KIND, {"domains": names, "stage": state.stage})
            return 0
        state = replace(state, batch=words.batch)
        reports = None if state.blind else run.reports(engine, state.data_center)
        plan = plan_revert(state, engine, reports)
        for sentence in () if words.dry_run else plan.warnings:
            screen.message(f"warning: {sentence}")
        return run.do(plan, _KIND)
