# SPDX-License-Identifier: GPL-2.0-or-later
"""Reinstalling a host, with the defaults that surprise: facts/engine.md, 2.5.

``host.more["install_tasks"]`` are the tasks that are shown as events;
``host.more["install_fails"]`` is the sentence for which the installation fails.
"""

from __future__ import annotations

from typing import Optional

from engine_double.answers import Answer, Refusal, done
from engine_double.host_life import ON_REBOOT, begin_activation
from engine_double.hosts_of_the_world import SimHost
from engine_double.routing import Call, known, route
from engine_double.world import World

# UpdateHostValidator.java.
_INSTALLABLE = ("maintenance", "non_operational", "install_failed", "installing_os")


@route(
    "POST",
    "/hosts/{host}/install",
    root="action",
    fields=(
        *("activate", "reboot", "deploy_hosted_engine", "undeploy_hosted_engine"),
        *("root_password", "ssh.authentication_method", "host.override_iptables"),
    ),
)
def install(call: Call) -> Answer:
    host = known(call.world.hosts, call.ids["host"])
    body = call.body
    if host.status not in _INSTALLABLE:
        raise Refusal(409, f"Cannot install Host {host.name} in the status it has.")
    way = body.ssh.authentication_method.value if body.ssh else "password"
    if way == "password" and not body.root_password:
        raise Refusal(400, "Cannot install Host with empty password.")
    # BackendHostResource.java: activate is false and reboot true where not sent.
    activate = bool(body.activate)
    reboot = True if body.reboot is None else body.reboot
    _begin(call.world, host, activate, reboot, call.correlation_id)
    return done()


def _begin(
    world: World,
    host: SimHost,
    activate: bool,
    reboot: bool,
    correlation_id: Optional[str],
) -> None:
    def record(code: int, severity: str, text: str) -> None:
        about = {"correlation_id": correlation_id, "host": host.id}
        world.log.record(code, severity, text, **about)

    def installed() -> None:
        for task in host.more.get("install_tasks", ()):
            record(559, "normal", f"Installing Host {host.name}. {task}.")
        failure = host.more.get("install_fails")
        if failure:
            host.status = "install_failed"
            record(505, "error", f"Host {host.name} installation failed. {failure}.")
            world.transitions.stop(host.id)
            return
        record(561, "normal", f"The playbook for host {host.name} has finished.")
        host.status = "reboot" if reboot else "installing"
        if reboot:
            host.mounts.clear()
            for lose in ON_REBOOT:
                lose(world, host)

    def finished() -> None:
        record(504, "normal", f"Host {host.name} installed.")
        host.status = "maintenance"
        if activate:
            begin_activation(world, host, correlation_id)

    host.status = "installing"
    record(560, "normal", f"The playbook for host {host.name} has started.")
    world.transitions.begin(host.id, installed, finished)
