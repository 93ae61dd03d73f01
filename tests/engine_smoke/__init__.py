# SPDX-License-Identifier: GPL-2.0-or-later
"""Every verb of ovirt-rdma against a real engine, cleaned up whatever happens.

    OVIRT_RDMA_TEST_URL=https://engine.example.com OVIRT_RDMA_TEST_ALLOW_CHANGES=1 \\
    OVIRT_RDMA_TEST_USERNAME=admin@internal OVIRT_RDMA_TEST_PASSWORD=... \\
    OVIRT_RDMA_TEST_CAFILE=ca.pem PYTHONPATH=tests python -m engine_smoke

``wishes.py`` has all variables. What is made has names that begin with
``ovirt-rdma-smoke-``; it is noted before it is made, and the next start removes what a
killed run left.
"""
