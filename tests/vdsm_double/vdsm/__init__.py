# SPDX-License-Identifier: GPL-2.0-or-later
"""A strict double of VDSM: only the parts on which ovirt-rdma may rely.

It follows the contract, and is compared with real VDSM sources by
tests/storage/vdsm/test_vdsm_contract.py; names and signatures are VDSM's.
"""
