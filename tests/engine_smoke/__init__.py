# SPDX-License-Identifier: GPL-2.0-or-later
"""Run every verb of ovirt-rdma against a real engine, and clean up in any case.

    OVIRT_RDMA_TEST_URL=https://engine.example.com OVIRT_RDMA_TEST_ALLOW_CHANGES=1 \\
    OVIRT_RDMA_TEST_USERNAME=admin@internal OVIRT_RDMA_TEST_PASSWORD=... \\
    OVIRT_RDMA_TEST_CAFILE=ca.pem PYTHONPATH=tests python -m engine_smoke

``site.py`` has all variables. The names of all objects that it makes begin with
``ovirt-rdma-smoke-``. Each is noted before it is made, and the next start removes what
a killed run left.
"""
