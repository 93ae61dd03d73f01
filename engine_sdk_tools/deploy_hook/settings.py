# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the settings of the host preparation: variables of the role, for all hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from ovirt_rdma.engine_sdk_tools.deploy_hook.block import SETTINGS
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.system.lazy import LazyModule
from ovirt_rdma.host.system.safe_file import read_file, read_file_of_others

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")

_MOST_BYTES = 1_000_000
_OTHER_FORM = (AttributeError, KeyError, TypeError, ValueError)
_KINDS = {
    "bool": "true or false",
    "int": "a number",
    "list": "a list",
    "str": "a text",
}
_TRUTH = ("yes", "on", "1", "true", "y", "t", "no", "off", "0", "false", "n", "f")


class SettingsProblem(Problem):
    """The settings of the host preparation are invalid."""


def read_settings(
    path: str = SETTINGS, collection: Optional[Path] = None
) -> dict[str, Any]:
    """Return the variables in the file ``path``; none if it is missing or empty.

    With ``collection``, the folder of our collection, unknown names and values that the
    role does not take are refused, too: the engine's run does not check them
    (rolespec_validate in the block). Raises SettingsProblem.
    """
    try:
        values = yaml.safe_load(read_file(path, _MOST_BYTES))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _invalid(path, error.strerror or str(error)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise _invalid(path, f"{where}{reason}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise _invalid(path, "it is not a list of lines 'NAME: VALUE'")
    known = _known(collection)
    unknown = sorted(name for name in values if known and name not in known)
    if unknown:
        raise _invalid(path, f"the role has no variable {', '.join(unknown)}")
    for name, value in values.items():
        wrong = _wrong(name, known.get(name, {}), value)
        if wrong:
            raise _invalid(path, f"{name} {wrong}")
    return values


def policy_of_engine(path: str = POLICY_YAML) -> dict[str, Any]:
    """Return the variable that sends this machine's policy, if there is one."""
    return {"prepare_policy_file": path} if os.access(path, os.F_OK) else {}


def _known(collection: Optional[Path]) -> dict[str, Any]:
    """Return the role's variables with their types; none if they cannot be read."""
    if collection is None:
        return {}
    specs = str(collection / "roles/prepare/meta/argument_specs.yml")
    try:
        # The engine's user may write there, and this may be root.
        text = read_file_of_others(str(collection), specs, _MOST_BYTES)
        options = yaml.safe_load(text)["argument_specs"]["main"]["options"]
        return {name: dict(spec) for name, spec in options.items()}
    except (OSError, yaml.YAMLError, RecursionError, *_OTHER_FORM):
        return {}


def _wrong(name: str, known: Mapping[str, Any], value: Any) -> str:
    """Return what is wrong with the value of a variable, "" if nothing is."""
    choices, kind = known.get("choices"), known.get("type")
    choices = [str(one) for one in choices] if isinstance(choices, list) else []
    if isinstance(value, str) and "{{" in value and name != "prepare_on_failure":
        return ""  # a template; Ansible alone knows its value
    if choices and value not in choices:
        return f"is {value!r}, and must be one of {', '.join(choices)}"
    # As ansible.module_utils.common.validation takes them, but for None.
    good = {
        "bool": isinstance(value, bool) or str(value).lower() in _TRUTH,
        "int": not isinstance(value, bool) and str(value).isdecimal(),
        "list": isinstance(value, (list, str)),
        "str": value is None or isinstance(value, (str, int, float)),
    }
    if good.get(str(kind), True):
        return ""
    return f"is {value!r}, and must be {_KINDS[str(kind)]}"


def _invalid(path: str, reason: str) -> SettingsProblem:
    return SettingsProblem(
        "host-deploy-settings-invalid",
        f"{path} is invalid: {reason}",
        "correct it; docs/host-deploy.md lists the variables",
    )
