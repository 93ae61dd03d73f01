# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests share: hosts, engines and kernels that they are run on."""
