# SPDX-License-Identifier: GPL-2.0-or-later
"""Texts of partitions.conf: valid ones, and those that opensm takes for something else.

tests/lab/test_opensm_lab.py shows the real opensm each of them.
"""

from __future__ import annotations

from hypothesis import strategies as st

from ovirt_rdma.host.fabric.partitions_conf import (
    Definition,
    Group,
    Member,
    guid_text,
    mistakes_between,
)
from ovirt_rdma.host.facts.infiniband import MEMBERSHIPS, PORT_WORDS

# In the form of the file that EL packages: the default partition in two definitions.
EL_DEFAULT = """\
# comment
Default=0x7fff, rate=3, mtu=4, scope=2, defmember=full:
        ALL, ALL_SWITCHES=full;
Default=0x7fff, ipoib, rate=3, mtu=4, scope=2:
        mgid=ff12:401b::ffff:ffff       # IPv4 broadcast
        mgid=ff12:401b::1               # IPv4 all hosts
        mgid=ff12:601b::1:3
        ALL=full, ALL_SWITCHES=full;
"""

VALID = [
    "Default=0x7fff : ALL=full;",
    "Default=0x7fff,ipoib:ALL=full;stor=0x0001,ipoib,mtu=5,defmember=full:"
    "0x100001,0x100003;\n",
    "0x8005 : ALL;\nDefault=32767 : ALL=full ;",
    "=0x5 : ALL;",
    "a b=0x1 :\n\n ALL ,\n\t# one\n\t0x1=full\n 0x2=full\t;\n",
    "a=0x300 : ALL=limited;\na=0x300 : SELF=full;",
    "a=0x300,defmember=full : 0x1, 0x2;\na=0x300 : 0x3, 0x4=full;",
    "a=0x1 : 1048577=full, 0x100003;",
    "a=0x1,ipoib,sl=0,scope=2,Q_Key=0xb1b,TClass=1,FlowLabel=7 : ALL=both;",
    "a=0x1,ipoib : ALL, mgid=ff12::1,sl=2\nmgid=ff12:401b:8001::5,scope=2,Q_Key=0x5;\n",
    "a=0x1 : mgid=ff12::5,sl=3\n mgid=ff12::6 # no flag\n ALL=full;",
    "a=0x1 :\n# 3456789012345 no flag either\n mgid=ff12::1\n ALL;",
    EL_DEFAULT,
]

_REST = "Default=0x7fff : ALL=full;\n"
_LONG = f"#{' ' * 4093}x=0x2 : ALL=full;\n"

# Id of our mistake, and the text. opensm exits with 0 for each, and takes it for valid
# or opens the fabric.
SWALLOWED = [
    ("no-definition", ""),
    ("no-definition", "# only a comment\n"),
    ("definition-not-ended", _REST + "a=0x1 : ALL"),
    ("colon-missing", _REST + "a=0x1 ALL=full; b=0x2 : ALL;"),
    ("colon-missing", _REST + "a=0x1,\n ipoib : ALL;"),
    ("member-invalid", _REST + "a=0x1 : ALL=full\nb=0x2 : ALL;"),
    ("semicolon-alone", _REST + "a=0x1 : ALL;;\n"),
    ("semicolon-first", _REST + "a=0x1 : ALL\n; b=0x2 : ALL;"),
    ("semicolon-first", _REST + "a=0x1 :\n0x1=full\n 0x2=full\n;\n"),
    ("group-takes-comment", _REST + "a=0x1 : ALL\n mgid=ff12::1 # rate=7\n 0x5;"),
    (
        "group-takes-comment",
        _REST + "a=0x1 :\n# 3456789012345,scope=5 , rate=7\n mgid=ff12::1\n ALL;",
    ),
    ("mgid-invalid", _REST + "a=0x1 : ALL\n mgid=ff15::1,rate=3\n 0x5;"),
    ("group-without-broadcast", _REST + "a=0x1 : ALL\n mgid=ff12:401b::5,sl=0;"),
    ("definition-after-group", _REST + "a=0x1 : ALL, mgid=ff12::1; b=0x2 : ALL;"),
    ("line-too-long", _REST + _LONG),
    ("character-not-allowed", _REST + "a=0x1 : 0x100001=full\r\n;"),
    ("character-not-allowed", _REST + "a=0x1 : ALL;\0b=0x2 : ALL=full;"),
    ("character-not-allowed", _REST + "ä=0x1 : ALL;"),
    ("pkey-missing", _REST + "a : ALL;"),
    ("pkey-missing", "Default,ipoib : ALL=full;"),
    ("pkey-invalid", _REST + "a=0 : ALL;"),
    ("pkey-invalid", _REST + "a=0x8000 : 0x100001=full;"),
    ("pkey-invalid", _REST + "a=0x10000 : ALL;"),
    ("pkey-invalid", _REST + "a=0x1ffff : 0x100001=limited;"),
    ("pkey-invalid", _REST + "a=-1 : 0x100001=limited;"),
    ("pkey-invalid", _REST + "a=010 : ALL;"),
    ("pkey-invalid", _REST + "a=+1 : ALL;"),
    ("pkey-invalid", _REST + "a=0x1=0x2 : ALL;"),
    ("partition-name-invalid", _REST + f"{'n' * 32}=0x1 : ALL;"),
    ("partition-name-repeated", _REST + "a=0x1 : ALL;\na=0x2 : ALL;"),
    ("partition-name-repeated", "Default=0x1 : ALL=full;"),
    ("pkey-repeated", _REST + "a=0x1 : ALL;\nb=0x8001 : ALL;"),
    ("definitions-differ", _REST + "a=0x1,ipoib : ALL;\na=0x1,ipoib,mtu=5 : ALL;"),
    ("definitions-differ", _REST + "a=0x1,sl=3 : ALL;\na=0x1 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipiob : ALL;"),
    ("flag-invalid", _REST + "a=0x1,m=5 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,s=3 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,, ipoib : ALL;"),
    ("flag-invalid", _REST + "a=0x1, : ALL;"),
    ("flag-invalid", _REST + "a=0x1,MTU=5 : ALL;"),
    ("flag-invalid", _REST + "a=0x1 : mgid=ff12::1,ipoib\n ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,mtu=4,mtu=5 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib=no : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,mtu= : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,mtu : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,mtu=4k : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,rate=010 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,mtu=0 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,mtu=9 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,mtu=260 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,mtu=4096 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,rate=1 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,rate=259 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,sl=16 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,scope=5 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,scope=16 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,TClass=256 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,Q_Key=0x100000000 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,FlowLabel=1048576 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,ipoib,scope=2,scope=2 : ALL;"),
    ("flag-invalid", _REST + "a=0x1,defmember= : 0x100001;"),
    ("flag-invalid", _REST + "a=0x1,defmember=f : 0x100001;"),
    ("flag-invalid", _REST + "a=0x1,defmember=none : 0x100001;"),
    ("membership-unknown", _REST + "a=0x1 : 0x100001=;"),
    ("membership-unknown", _REST + "a=0x1 : 0x100001=ful1;"),
    ("membership-unknown", _REST + "a=0x1 : 0x100001=full=limited;"),
    ("member-invalid", _REST + "a=0x1 : A;"),
    ("member-invalid", _REST + "a=0x1 : AL=full;"),
    ("member-invalid", _REST + "a=0x1 : ALL_S=full;"),
    ("member-invalid", _REST + "a=0x1 : S=full;"),
    ("member-invalid", _REST + "a=0x1 : NONE;"),
    ("member-invalid", _REST + "a=0x1 : all;"),
    ("member-invalid", _REST + "a=0x1 : -1=full;"),
    ("member-invalid", _REST + "a=0x1 : 0x100001 0x100003;"),
    ("member-invalid", _REST + "a=0x1 : 0002:c903:00fb:1231;"),
    ("member-invalid", _REST + "a=0x1 : 0x10000000000100001;"),
    ("member-invalid", _REST + "a=0x1 : 18446744073709551617;"),
    ("member-invalid", _REST + "a=0x1 : 0x0;"),
    ("member-invalid", _REST + "a=0x1 : ALL,,SELF=full;"),
    ("member-invalid", _REST + "a=0x1 : ALL, ;"),
    ("member-repeated", _REST + "a=0x1 : 0x100001, 0x100001;"),
    ("member-overridden", _REST + "a=0x1 : 0x100001=full, 0x100001;"),
    ("member-overridden", _REST + "a=0x300:SELF=full;\na=0x300:ALL=limited;"),
    ("member-overridden", _REST + "a=0x1 : 0x100001=full, ALL_CAS=limited;"),
    ("partition-empty", _REST + "a=0x1,ipoib : ;"),
    ("mgid-invalid", _REST + "a=0x1 : ALL, mgid=fe80::1;"),
    ("mgid-invalid", _REST + "a=0x1 : ALL, mgid=;"),
    ("mgid-invalid", _REST + "a=0x1 : ALL, mgid=ff42::1,rate=3;"),
    ("mgid-invalid", _REST + "a=0x1 : ALL, mgid=ff12:a01b::1,rate=3;"),
    ("group-differs", _REST + "a=0x1,ipoib : ALL, mgid=ff12:401b:8002::5,sl=0;"),
    ("group-differs", _REST + "a=0x1,ipoib : ALL, mgid=ff12:401b::5,mtu=5;"),
    ("group-differs", _REST + "a=0x1,ipoib : ALL, mgid=ff12:401b::5,rate=7;"),
    (
        "group-repeated",
        _REST + "a=0x1 : ALL, mgid=ff12::1,mtu=4\n mgid=ff12::1,mtu=5;",
    ),
]

_NAMES = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=",:;=#"),
    min_size=1,
    max_size=31,
).filter(lambda name: name != "Default")


FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "mtu": st.integers(1, 5),
        # 23 and 24 need opensm 3.3.24, and Debian has 3.3.23.
        "rate": st.integers(2, 22),
        "sl": st.integers(0, 15),
        "Q_Key": st.integers(1, 0xFFFFFFFF),
        "TClass": st.integers(1, 255),
        "FlowLabel": st.integers(0, 0xFFFFF),
    },
)
# Those of the simulated fabric are among them.
GUIDS = st.sampled_from([0x100001, 0x100003, 0x100005]) | st.integers(1, 2**64 - 1)
MEMBERS = st.builds(
    Member,
    st.sampled_from(PORT_WORDS) | GUIDS.map(guid_text),
    st.sampled_from(MEMBERSHIPS),
)
GROUPS = st.builds(
    Group,
    st.integers(1, 0xFFFF).map(lambda n: f"ff12::{n:x}"),
    FLAGS.filter(bool),
)


@st.composite
def definitions_of_files(draw):
    """Return the definitions of a valid file."""
    pkeys = draw(st.lists(st.integers(1, 0x7FFE), min_size=1, max_size=5, unique=True))
    names = draw(
        st.lists(_NAMES, min_size=len(pkeys), max_size=len(pkeys), unique=True)
    )
    found = []
    for pkey, name in zip(pkeys, names):
        one = Definition(
            draw(st.just("") | st.just(name)),
            pkey,
            draw(st.booleans()),
            draw(st.booleans()),
            draw(FLAGS),
            tuple(
                draw(
                    st.lists(
                        MEMBERS, min_size=1, max_size=4, unique_by=lambda m: m.port
                    )
                )
            ),
            tuple(draw(st.lists(GROUPS, max_size=2, unique_by=lambda g: g.mgid))),
        )
        found.append(one)
    return tuple(one for one in found if not list(mistakes_between([one]))) or (
        Definition("a", 1, members=(Member("ALL", "full"),)),
    )
