# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Describe the options of the modules that run ovirt-rdma."""

from __future__ import annotations


class ModuleDocFragment:
    """The options in module_utils/engine_command.py."""

    DOCUMENTATION = r"""
options:
  auth:
    description:
      - The engine and the login there, as the modules of C(ovirt.ovirt) take them. The
        fact of C(ovirt.ovirt.ovirt_auth) can be used.
      - What it lacks comes from the environment of the task, and from the settings that
        C(ovirt-rdma login) wrote for the user on that machine.
    type: dict
    suboptions:
      url:
        description: The URL of the API, or E(OVIRT_URL).
        type: str
      hostname:
        description: The name of the engine machine, in place of the URL.
        type: str
      username:
        description: The name of the user, or E(OVIRT_USERNAME).
        type: str
      password:
        description: The password of the user, or E(OVIRT_PASSWORD).
        type: str
      token:
        description: A token in place of user and password, or E(OVIRT_TOKEN).
        type: str
      ca_file:
        description:
          - The engine's CA certificate, or E(OVIRT_CAFILE). Without it, the CAs of the
            system are trusted.
        type: path
      insecure:
        description: Has no effect. The engine's certificate is always verified.
        type: bool
      timeout:
        description: Has no effect. Each request has a limit.
        type: int
      compress:
        description: Has no effect.
        type: bool
      kerberos:
        description: Has no effect. Log in with a token, or with a password.
        type: bool
      headers:
        description: Has no effect.
        type: dict
  data_center:
    description: The data center; needed if the name of a domain exists in several.
    type: str
  ssh_key:
    description:
      - The private key with which hosts are asked. The default, for root on the engine
        machine, is the engine's own.
    type: path
  ssh_user:
    description: The user for SSH. The default is root.
    type: str
  inventory:
    description: An Ansible inventory of the hosts that differ from these defaults.
    type: path
requirements:
  - The package ovirt-rdma-engine on the machine that runs the module.
author:
  - The ovirt-rdma developers (@oVirt)
"""
