"""What quota commands print, read. The samples are as the tools' sites and manuals show them."""

from __future__ import annotations

import contextlib
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmon.analysis.disks.quota import Answer, Parser, Unread, of_path, parse
from trainmon.model import Allowance, Quota

NOW = 1_800_000_000.0
KIB, GIB = 1024, 1024**3

LUSTRE = """\
Disk quotas for usr normandf (uid 1471600598):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
/home/mila/n/normandf
                95747836       0 104857600       -  908722       0 1048576       -
uid 1471600598 is using default block quota setting
"""
LUSTRE_OVER = """\
Disk quotas for grp lab (gid 600):
     Filesystem    used   quota   limit   grace   files   quota   limit   grace
           /fsx  5242880* 4194304 6291456  6d23h59m      12       0       0       -
"""
LUSTRE_AWAY = """\
Disk quotas for usr me (uid 1000):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
           /fsx [10200224]       0 20971520       -    1234       0  500000       -
Some errors happened when getting quota info. Some devices may be not working or deactivated. The data in "[]" is \
inaccurate.
"""
LUSTRE_VERBOSE = """\
Disk quotas for usr me (uid 1000):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
           /fsx    8192       0   16384       -      10       0     100       -
fsx-MDT0000_UUID
                      0       -       0       -      10       -       0       -
fsx-OST0000_UUID
                   8192       -    9216       -       -       -       -       -
Total allocated inode limit: 0, total allocated block limit: 9216
"""
GPFS = """\
mmlsquota::HEADER:version:reserved:reserved:filesystemName:quotaType:id:name:blockUsage:blockQuota:blockLimit:\
blockInDoubt:blockGrace:filesUsage:filesQuota:filesLimit:filesInDoubt:filesGrace:remarks:quota:defQuota:fid:filesetname:
mmlsquota::0:1:::gpfs01:USR:1234:me:2097152:10485760:12582912:0:none:4000:0:500000:0:none:e:on:off:::
mmlsquota::0:1:::gpfs01:FILESET:7:lab%3Aone:11534336:10485760:12582912:1024:6%20days:4000:0:0:0:none:e:on:off:::
"""
BEEGFS_CSV = """\
name,id,size,hard,files,hard
nunal,4500,2791507521536,unlimited,873812,unlimited
me,1000,1099511627776,2199023255552,99,1000
"""
BEEGFS = """\
Quota information for storage pool Default (ID: 1):

      user/group     ||           size          ||    chunk files
     name     |  id  ||    used    |    hard    ||  used   |  hard
--------------|------||------------|------------||---------|---------
normandf|1471600598||   76.61 GiB|    5.00 TiB||   687792|unlimited
"""
QUOTA = """\
Disk quotas for user me (uid 6215):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
server:/export/home 14684160 16777216 20971520       0   12000       0       0       0
"""
QUOTA_OVER = """\
Disk quotas for user me (uid 6215):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
      /dev/sda1   17000*  16000   20000   6days     120       0       0
      /dev/sdb1   17000*  16000   20000    none     130*    100     200   23:59
"""
QUOTA_SUMMARY = """\
Disk quotas for user me (uid 6215):
     Filesystem   space   quota   limit   grace   files   quota   limit   grace
     /dev/sda1    14340M  16384M  20480M             12k       0       0
"""


def only(parser: Parser, text: str, *argv: str, limit: int | None = None) -> Allowance:
    (one,) = parse(parser, text, NOW, argv, limit).allowances
    return one


# ---- Lustre ----------------------------------------------------------------------------------------------------------


def test_a_path_that_lustre_wraps_is_joined_with_its_numbers() -> None:
    one = only("lustre", LUSTRE)
    assert (one.owner, one.filesystem) == ("user normandf", "/home/mila/n/normandf")
    assert (one.used_bytes, one.soft_bytes, one.hard_bytes) == (95747836 * KIB, None, 104857600 * KIB)
    assert (one.used_inodes, one.hard_inodes, one.left_inodes) == (908722, 1048576, 139854)
    assert (one.bytes_grace, one.is_inexact) == (None, False)


def test_the_quiet_form_says_whose_it_is_by_the_command() -> None:
    quiet = "\n".join(LUSTRE.splitlines()[2:4])
    assert only("lustre", quiet, "lfs", "quota", "-q", "-u", "me", "/home").owner == "user me"
    assert only("lustre", quiet, "lfs", "quota", "-q", "-p", "42", "/home").owner == "project 42"


def test_a_soft_limit_with_a_running_grace() -> None:
    one = only("lustre", LUSTRE_OVER)
    assert (one.owner, one.used_bytes, one.bytes_grace) == ("group lab", 5242880 * KIB, "6d23h59m")
    assert (one.hard_inodes, one.inodes_grace) == (None, None)


def test_numbers_in_brackets_are_used_and_marked_as_inexact() -> None:
    answer = parse("lustre", LUSTRE_AWAY, NOW)
    (one,) = answer.allowances
    assert (one.used_bytes, one.is_inexact) == (10200224 * KIB, True)
    assert answer.trouble is not None
    assert answer.trouble.startswith("Some errors happened when getting quota info.")


def test_what_single_servers_hold_is_no_quota() -> None:
    assert only("lustre", LUSTRE_VERBOSE).used_bytes == 8192 * KIB


# ---- GPFS ------------------------------------------------------------------------------------------------------------


def test_gpfs_is_read_by_its_header() -> None:
    mine, lab = parse("gpfs", GPFS, NOW).allowances
    assert (mine.owner, mine.filesystem) == ("user me", "gpfs01")
    assert (mine.used_bytes, mine.soft_bytes, mine.hard_bytes) == (2 * GIB, 10 * GIB, 12 * GIB)
    assert (mine.used_inodes, mine.hard_inodes, mine.bytes_grace) == (4000, 500000, None)
    assert (lab.owner, lab.bytes_grace, lab.used_bytes) == ("fileset lab:one", "6 days", 11 * GIB + 1024 * KIB)


def test_columns_of_gpfs_in_another_order_are_the_same() -> None:
    text = "mmlsquota::HEADER:quotaType:name:blockLimit:blockUsage:new:\nmmlsquota::0:USR:me:12582912:2097152:x:\n"
    one = only("gpfs", text)
    assert (one.used_bytes, one.hard_bytes, one.used_inodes) == (2 * GIB, 12 * GIB, 0)


def test_a_header_alone_says_that_there_is_no_quota() -> None:
    assert parse("gpfs", GPFS.splitlines()[0], NOW) == Answer(())


# ---- BeeGFS ----------------------------------------------------------------------------------------------------------


def test_beegfs_is_read_by_position() -> None:
    other, mine = parse("beegfs", BEEGFS_CSV, NOW, ("beegfs-ctl", "--getquota", "--uid", "me")).allowances
    assert (other.owner, other.used_bytes, other.hard_bytes, other.hard_inodes) == (
        "user nunal",
        2791507521536,
        None,
        None,
    )
    assert (mine.left_bytes, mine.left_inodes) == (1024 * GIB, 901)


def test_the_form_for_people_is_read_as_well() -> None:
    one = only("beegfs", BEEGFS, "beegfs-ctl", "--getquota", "--gid", "x")
    assert (one.owner, one.hard_bytes, one.used_inodes) == ("group normandf", 5 * 1024 * GIB, 687792)
    assert one.used_bytes == round(76.61 * GIB)


def test_each_pool_and_each_fileset_is_an_allowance_of_its_own() -> None:
    """One of them may be full while the other is empty."""
    fast = (
        "Quota information for storage pool Fast (ID: 2):\nnormandf|1471600598||  99.00 GiB|  100.00 GiB||  5|unlimited"
    )
    both = parse("beegfs", BEEGFS + fast, NOW).allowances
    assert [one.owner for one in both] == ["user normandf", "user normandf in pool Fast"]
    head, mine = GPFS.splitlines()[:2]
    rows = "\n".join((head, mine, mine.replace("off:::", "off::scratch:"), mine.replace("off:::", "off::root:")))
    assert [one.owner for one in parse("gpfs", rows, NOW).allowances] == [
        "user me", "user me in fileset scratch", "user me #2",
    ]  # fmt: skip


# ---- quota(1) --------------------------------------------------------------------------------------------------------


def test_quota_with_raw_graces() -> None:
    one = only("quota", QUOTA, "quota", "-w", "-p", "-u", "me")
    assert (one.filesystem, one.used_bytes, one.soft_bytes) == ("server:/export/home", 14684160 * KIB, 16777216 * KIB)
    assert (one.used_inodes, one.bytes_grace) == (12000, None)


def test_a_raw_grace_is_a_time() -> None:
    running = QUOTA.replace("14684160 16777216 20971520       0", f"17684160* 16777216 20971520 {int(NOW) + 518_400}")
    assert only("quota", running).bytes_grace == "6d"
    assert only("quota", running.replace(str(int(NOW) + 518_400), str(int(NOW) - 5))).bytes_grace == "expired"


def test_graces_that_are_left_out_move_no_column() -> None:
    first, second = parse("quota", QUOTA_OVER, NOW).allowances
    assert (first.bytes_grace, first.used_inodes, first.inodes_grace) == ("6days", 120, None)
    assert (second.bytes_grace, second.used_inodes, second.inodes_grace) == ("expired", 130, "23:59")


def test_sizes_with_unit_suffixes() -> None:
    one = only("quota", QUOTA_SUMMARY)
    assert (one.used_bytes, one.hard_bytes, one.used_inodes) == (14340 * 1024**2, 20480 * 1024**2, 12_000)


def test_no_quota_at_all_is_an_answer() -> None:
    for words in ("none", "no limited resources used"):
        assert parse("quota", f"Disk quotas for user x (uid 6215): {words}\n", NOW) == Answer(())


# ---- du --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "word", "size"),
    [
        (("du", "-s"), "2048", 2 * 1024**2),
        (("du", "-sb"), "2048", 2048),
        (("du", "-sm"), "2", 2 * 1024**2),
        (("du", "-s", "--block-size=1"), "2048", 2048),
        (("du", "-sh"), "1.5T", round(1.5 * 1024**4)),
    ],
)
def test_du_in_its_units_against_the_limit_of_the_config(argv: tuple[str, ...], word: str, size: int) -> None:
    one = only("du", f"{word}\t/fsx/me\n", *argv, "/fsx/me", limit=10**13)
    assert (one.owner, one.used_bytes, one.left_bytes) == ("/fsx/me", size, 10**13 - size)


def test_du_that_may_not_look_everywhere_says_so() -> None:
    answer = parse("du", "2048\t/fsx/me\ndu: cannot read directory '/fsx/me/x': Permission denied\n", NOW, ("du", "-s"))
    assert answer.allowances[0].is_inexact
    assert answer.trouble == "du: cannot read directory '/fsx/me/x': Permission denied"


# ---- what is not an answer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parser", ["lustre", "gpfs", "beegfs", "quota", "du"])
@pytest.mark.parametrize("text", ["", "command not found\n", "\x1b[31mError\x1b[0m 1 2 3 4 5 6 7 8\n"])
def test_what_is_not_understood_is_refused(parser: Parser, text: str) -> None:
    with pytest.raises(Unread, match="cannot be parsed"):
        parse(parser, text, NOW)


WORDS = st.sampled_from(
    ["\n", "/fsx", "1", "0", "-", "[7]", "9*", "none", "6d", "mmlsquota", "::", "HEADER", ",", "|", "9" * 20, "%0a"]
)


@pytest.mark.parametrize("parser", ["lustre", "gpfs", "beegfs", "quota", "du"])
@given(words=st.lists(WORDS, max_size=60), space=st.sampled_from([" ", ":", ",", "|", ""]))
@settings(max_examples=60)
def test_whatever_comes_is_read_or_refused(parser: Parser, words: list[str], space: str) -> None:
    try:
        answer = parse(parser, space.join(words), NOW, ("x", "-u", "me"))
    except Unread:
        return
    assert all(one.owner for one in answer.allowances)


@pytest.mark.parametrize("number", ["12B", "[12", "12*", "[12B]*", "9" * 400, "9" * 5000, "1." + "9" * 5000])
@pytest.mark.parametrize("parser", get_args(Parser))
def test_odd_numbers_are_read_or_refused(parser: Parser, number: str) -> None:
    rows = (f"{number}\t/fsx", f"/fsx {number} 0 {number} - 1 0 {number} -", f"me,1,{number},0,{number},0")
    header = "mmlsquota::HEADER:version:::filesystemName:quotaType:name:blockUsage:"
    for text in (*rows, f"{header}\nmmlsquota::0:1:::fsx:USR:me:{number}:"):
        with contextlib.suppress(Unread):
            assert all(one.used_bytes < 2**70 for one in parse(parser, text, NOW).allowances)


def test_a_command_that_lists_a_whole_site_is_refused() -> None:
    text = "\n".join(f"u{i},{i},1,2,3,4" for i in range(5000))
    with pytest.raises(Unread, match="more than 200 quotas"):
        parse("beegfs", text, NOW)


def test_of_several_filesystems_the_one_of_the_path_counts() -> None:
    text = "\n".join(f"{name} {n} 0 100 - 1 0 2 -" for n, name in enumerate(("/home", "/fsx", "/fsx/deep"), 1))
    answer = parse("lustre", text, NOW)
    assert [one.used_bytes for one in of_path(answer, "/fsx/run").allowances] == [2 * KIB]
    assert [one.used_bytes for one in of_path(answer, "/fsx/deep").allowances] == [3 * KIB]
    with pytest.raises(Unread, match=r"its output lists several filesystems \(/fsx, /fsx/deep, /home\)"):
        of_path(answer, "/scratch")


def test_control_characters_and_secrets_of_an_answer_are_not_kept() -> None:
    text = LUSTRE_AWAY.replace("me (uid", "m\x1b[31me (uid").replace(
        "Some errors", "token=ghp_0123456789012345678901234567890123456 Some errors"
    )
    answer = parse("lustre", text, NOW)
    assert answer.allowances[0].owner == "user me"
    assert "ghp_" not in (answer.trouble or "")


def test_of_several_limits_the_tightest_is_what_is_left() -> None:
    allowances = (
        Allowance(owner="user me", used_bytes=10, hard_bytes=100, used_inodes=5),
        Allowance(owner="group lab", used_bytes=90, hard_bytes=120, used_inodes=5, hard_inodes=5),
        Allowance(owner="group all", used_bytes=500),
    )
    quota = Quota(cluster="c", host="h", path="/fsx", at=NOW, allowances=allowances)
    assert (quota.left_bytes, quota.left_inodes) == (30, 0)
