# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare our option string with VDSM's own: the double's, or VDSM_SOURCE's."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ovirt_rdma.host.export import AUTO, VERSIONS, option_string

EXTRA = st.lists(
    st.sampled_from(["", "lock", "nolock", "rdma", "port=20049", "hard", "locks"])
).map(",".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    version=st.sampled_from(VERSIONS),
    extra=EXTRA,
    timeout=st.integers(1, 6000),
    retrans=st.integers(0, 30),
)
def test_is_what_vdsm_makes_letter_for_letter(vdsm, version, extra, timeout, retrans):
    version = None if version == AUTO else version
    stock = vdsm.storage_server.NFSConnection(
        id="1",
        export="10.0.0.1:/e",
        timeout=timeout,
        retrans=retrans,
        version=version,
        extraOptions=extra,
    )
    assert option_string(version, extra, timeout, retrans) == stock._mountCon.options
