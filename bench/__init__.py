# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure what ovirt-rdma costs and saves, against named rivals (``make bench``)."""
