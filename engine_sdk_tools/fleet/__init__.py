# SPDX-License-Identifier: GPL-2.0-or-later
"""All hosts at once: readiness, the policy, the cluster's feature."""
