#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Document the action ovirt_rdma.host.package; plugins/action/package.py has it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package
short_description: Install or remove the packages of ovirt-rdma with dnf
version_added: 0.2.0
description:
  - Runs M(ansible.builtin.dnf) on the host, and reports a failure as one sentence with
    a fix.
options:
  name:
    description:
      - Names of packages, URLs of RPM files, or RPM files on the host.
    type: list
    elements: str
    default: [ovirt-rdma-host]
  files:
    description:
      - RPM files on the control machine. They are copied to the host and installed in
        the same transaction, in place of the packages in O(name).
    type: list
    elements: path
    default: []
  state:
    description:
      - V(present) installs what is missing, V(latest) updates it too, V(absent)
        removes what is there.
    type: str
    choices: [present, latest, absent]
    default: present
  disable_gpg_check:
    description:
      - Whether to install packages without a valid signature.
    type: bool
    default: false
attributes:
  check_mode:
    description: Resolves the transaction and installs nothing.
    support: full
  diff_mode:
    description: The packages are in RV(results).
    support: none
author:
  - The ovirt-rdma developers (@oVirt)
"""

EXAMPLES = r"""
- name: Install ovirt-rdma from the repositories of the host
  ovirt_rdma.host.package:

- name: Install it from files of the control machine
  ovirt_rdma.host.package:
    files:
      - /srv/rpm/python3-ovirt-rdma-0.2.0-1.el9.noarch.rpm
      - /srv/rpm/ovirt-rdma-host-0.2.0-1.el9.noarch.rpm
"""

RETURN = r"""
results:
  description: What dnf did, one line per package.
  returned: success
  type: list
  elements: str
"""
