# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemon of a host, ``ovirt-rdmad.service``: its loop, its state, and its tasks."""
