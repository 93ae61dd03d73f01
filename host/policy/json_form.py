# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert a policy to JSON data and back, strictly, and compute its digest.

Pure; needs only the standard library.

vdsmd reads this form. It has every field of the model, defaults too, so that a later
version with other defaults reads the same policy. The values were validated when the
policy was loaded, perhaps by a version with wider ranges, so only their types and
choices are checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ovirt_rdma.host.policy.block_fields import SRP, BlockPolicy, SrpTarget
from ovirt_rdma.host.policy.fields import (
    INTERFACE,
    MATCH,
    RULE,
    VF_MATCH,
    VIRTUAL_FUNCTIONS,
)
from ovirt_rdma.host.policy.forms import Field, Number, Text
from ovirt_rdma.host.policy.model import (
    POLICY_VERSION,
    HostPolicy,
    InterfaceRule,
    NfsPolicy,
    NfsRule,
    Policy,
    VfRule,
)
from ovirt_rdma.host.system.json_codec import Records, plain
from ovirt_rdma.host.system.json_document import WrongRecord, digest_of

_FIELDS: Mapping[Any, Mapping[str, Field]] = {
    NfsRule: RULE.fields,
    InterfaceRule: {**MATCH.fields, **INTERFACE.fields},
    VfRule: {**VF_MATCH.fields, **VIRTUAL_FUNCTIONS.fields},
    SrpTarget: SRP.fields,
}
# Seconds between two events: with none, a service would never sleep.
_INTERVALS: Mapping[Any, tuple[str, ...]] = {
    NfsPolicy: ("health_interval",),
    HostPolicy: ("partitions_interval",),
    BlockPolicy: ("login_timeout", "rescan_interval"),
}


def _check(cls: Any, values: Mapping[str, Any]) -> tuple[str, str]:
    for key in _INTERVALS.get(cls, ()):
        if values[key] is not None and values[key] <= 0:
            return key, "must be more than 0"
    for key, field in _FIELDS.get(cls, {}).items():
        form, value = field.form, values.get(key)
        if value is None or not isinstance(form, (Text, Number)):
            continue
        allowed: tuple[object, ...] = form.choices
        if isinstance(form, Number) and isinstance(value, str):
            allowed = (form.word,)
        if allowed and value not in allowed:
            return key, f"is {value!a}; allowed: {form.allowed}"
    return "", ""


_RECORDS = Records("the policy", _check)


def to_json_dict(policy: Policy) -> dict[str, Any]:
    """Return the policy as dicts, lists, strings, numbers, truth values and None."""
    data: dict[str, Any] = plain(policy)
    return data


def from_json_dict(data: object) -> Policy:
    """Read the result of :func:`to_json_dict`.

    Raises ValueError, with a sentence that names the key, for an unknown or missing
    key, a value of the wrong type or another policy version.
    """
    # Another version explains all other mistakes.
    version = data.get("version", POLICY_VERSION) if isinstance(data, dict) else None
    if version is not None and version != POLICY_VERSION:
        raise WrongRecord(f"version is {version!a}; allowed: {POLICY_VERSION}")
    return _RECORDS.read(Policy, data)


def digest(policy: Policy) -> str:
    """Return ``sha256:…`` over the policy's content: equal policies, equal digests."""
    return digest_of(to_json_dict(policy))
