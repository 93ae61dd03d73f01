# SPDX-License-Identifier: GPL-2.0-or-later
"""A strict double of VDSM: only what ovirt-rdma may rely on, nothing else.

Written from the contract and proven against real VDSM sources by
tests/storage/vdsm/test_vdsm_contract.py; names and signatures are VDSM's.
"""
