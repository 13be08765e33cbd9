"""What every object store must do, whatever is behind it: the same calls, the same core outcome.

``BucketContract`` and ``StrictKeysContract`` hold for all of them, ``RemoteContract`` for those that are reached over a
network. A column is a class with ``open``, ``put`` and ``keys``; over a network also with ``close``, ``faults``,
``answers``, ``lock``, ``deny`` and ``requests``.
"""

import pytest

from reprieve.core.errors import (
    ContainerMissingError,
    DeniedError,
    InvalidError,
    NotFoundError,
    ReprieveError,
    ThrottledError,
    UnavailableError,
    UnknownError,
)
from reprieve.core.outcomes import (
    ContainerMissing,
    Denied,
    Done,
    Invalid,
    Locked,
    Retryable,
    Unknown,
    is_gone,
)
from tests.integration.buckets_http import IMPATIENCE, PLAIN_404
from tests.integration.cloud_http import GARBAGE, Answer

MANY = 2500
ODD_KEYS = (
    "a b",
    "a+b",
    "a%2Fb",
    "100%",
    "%zz",
    "a?b=c",
    "a#b",
    "a&<b>",
    "a'b",
    "über/größe",
    "日本",
    "😀",
    "~.hidden",
    "a..",
    "=",
    "@(x)[y]{z}",
    "back\\slash",
    'quo"te',
    "deep/er/still",
)
BAD_KEYS = ("", "/", "/a", "a/", "a//b", "a/../b", "..", "./a", "a/.", "a\tb", "a\nb", "a\x00b", "\udce4", "x" * 1025)


def names(count: int = MANY) -> list[str]:
    return [f"backups/many/{i:05}" for i in range(count)]


def keys_of(store, prefix: str) -> list[str]:
    return [info.key for info in store.list(prefix)]


class BucketContract:
    """For every store."""

    def test_what_is_written_is_read_and_listed_with_its_size(self, cloud):
        store = cloud.open()
        store.write("backups/a/velero-backup.json", b"{}")
        store.write("backups/a/empty", b"")
        assert store.read("backups/a/velero-backup.json", limit=2) == b"{}"
        assert store.read("backups/a/empty", limit=0) == b""
        assert [(info.key, info.size) for info in store.list("backups/a/")] == [
            ("backups/a/empty", 0),
            ("backups/a/velero-backup.json", 2),
        ]

    def test_writing_again_replaces_the_whole_file(self, cloud):
        store = cloud.open()
        store.write("k", b"a long first text")
        store.write("k", b"short")
        assert store.read("k", limit=100) == b"short"

    def test_a_listed_file_says_when_it_was_written(self, cloud):
        store = cloud.open()
        store.write("k", b"1")
        (info,) = store.list("")
        assert info.modified is not None
        assert info.modified.tzinfo is not None

    def test_a_missing_key_is_not_found(self, cloud):
        cloud.put("other")
        with pytest.raises(NotFoundError):
            cloud.open().read("backups/a/nothing", limit=10)

    def test_a_directory_is_no_file(self, cloud):
        cloud.put("backups/a/file")
        with pytest.raises(NotFoundError):
            cloud.open().read("backups/a", limit=10)

    def test_more_than_the_limit_is_refused_with_the_number(self, cloud):
        cloud.put("big", b"x" * 1001)
        with pytest.raises(InvalidError, match=r"big .*\b1000\b"):
            cloud.open().read("big", limit=1000)

    def test_exactly_the_limit_is_read(self, cloud):
        cloud.put("big", b"x" * 1000)
        assert cloud.open().read("big", limit=1000) == b"x" * 1000

    def test_a_prefix_is_a_directory(self, cloud):
        for key in ("backups/a/1", "backups/a/deep/2", "backups/ab/1", "backups/a-b", "backups/b/a/1"):
            cloud.put(key)
        store = cloud.open()
        assert keys_of(store, "backups/a/") == ["backups/a/1", "backups/a/deep/2"]

    def test_keys_come_in_their_order(self, cloud):
        for key in ("d/b", "d/a/x", "d/a-b", "d/B", "d/ü", "d/a.b", "d/a"[:2] + "aa"):
            cloud.put(key)
        assert keys_of(cloud.open(), "d/") == sorted(cloud.keys())

    def test_nothing_below_a_prefix_is_an_empty_list(self, cloud):
        cloud.put("backups/ab/1")
        store = cloud.open()
        assert keys_of(store, "backups/a/") == []
        assert list(store.list_directories("backups/a/")) == []

    def test_an_empty_bucket_is_an_empty_list(self, cloud):
        assert keys_of(cloud.open(), "") == []

    def test_directories_are_named_once_without_slashes_and_files_are_none(self, cloud):
        for key in ("backups/b/1", "backups/a/1", "backups/a/2", "backups/a/deep/3", "backups/file", "restores/r/1"):
            cloud.put(key)
        store = cloud.open()
        assert list(store.list_directories("backups/")) == ["a", "b"]
        assert list(store.list_directories("")) == ["backups", "restores"]

    def test_keys_are_relative_to_the_location_s_prefix(self, cloud):
        cloud.put("team/backups/a/1", b"ours")
        cloud.put("team2/backups/a/1", b"theirs")
        store = cloud.open(prefix="team")
        assert keys_of(store, "") == ["backups/a/1"]
        assert list(store.list_directories("backups/")) == ["a"]
        assert store.read("backups/a/1", limit=10) == b"ours"
        store.write("backups/a/2", b"new")
        assert is_gone(store.delete(["backups/a/1"])["backups/a/1"])
        assert cloud.keys() == {"team/backups/a/2", "team2/backups/a/1"}

    def test_many_keys_are_listed_and_deleted_and_no_other(self, cloud):
        for key in names():
            cloud.put(key)
        cloud.put("backups/many-more/1")
        store = cloud.open()
        assert keys_of(store, "backups/many/") == names()
        assert store.delete(names()) == dict.fromkeys(names(), Done())
        assert cloud.keys() == {"backups/many-more/1"}

    def test_a_full_page_and_not_a_key_more_is_listed_once(self, cloud):
        for key in names(1000):
            cloud.put(key)
        assert keys_of(cloud.open(), "backups/many/") == names(1000)

    def test_many_directories_are_all_named(self, cloud):
        for i in range(1200):
            cloud.put(f"backups/{i:05}/x")
        assert list(cloud.open().list_directories("backups/")) == [f"{i:05}" for i in range(1200)]

    def test_a_key_that_was_not_there_counts_as_gone(self, cloud):
        cloud.put("there")
        outcomes = cloud.open().delete(["there", "not/there", "nor/there"])
        assert all(is_gone(outcome) for outcome in outcomes.values())
        assert list(outcomes) == ["there", "not/there", "nor/there"]
        assert cloud.keys() == set()

    def test_deleting_twice_is_gone_twice(self, cloud):
        cloud.put("k")
        store = cloud.open()
        assert is_gone(store.delete(["k"])["k"])
        assert is_gone(store.delete(["k"])["k"])

    def test_deleting_nothing_is_nothing(self, cloud):
        assert cloud.open().delete([]) == {}

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_odd_keys_are_taken_byte_for_byte(self, cloud, key):
        if set(key) & set(getattr(cloud, "refused", "")):
            assert isinstance(cloud.open().delete([f"d/{key}"])[f"d/{key}"], Invalid)
            return
        cloud.put(f"d/{key}", b"odd")
        cloud.put("d/plain")
        store = cloud.open()
        assert keys_of(store, "d/") == sorted([f"d/{key}", "d/plain"])
        assert store.read(f"d/{key}", limit=3) == b"odd"
        assert is_gone(store.delete([f"d/{key}"])[f"d/{key}"])
        assert cloud.keys() == {"d/plain"}

    def test_a_bad_key_among_good_ones_stops_none_of_them(self, cloud):
        cloud.put("a")
        cloud.put("b")
        outcomes = cloud.open().delete(["a", "a//b", "b"])
        assert [type(o) for o in outcomes.values()] == [Done, Invalid, Done]
        assert cloud.keys() == set()

    def test_a_missing_bucket_is_never_a_missing_key(self, cloud):
        store = cloud.open("gone")
        for ask in (
            lambda: store.read("backups/a/x", limit=1),
            lambda: keys_of(store, ""),
            lambda: keys_of(store, "backups/a/"),
            lambda: list(store.list_directories("backups/")),
            lambda: store.write("k", b"1"),
        ):
            with pytest.raises(ContainerMissingError):
                ask()

    @pytest.mark.parametrize("count", [1, 3, 1200])
    def test_nothing_is_gone_from_a_missing_bucket(self, cloud, count):
        outcomes = cloud.open("gone").delete(names(count))
        assert len(outcomes) == count
        assert {type(o) for o in outcomes.values()} == {ContainerMissing}


class StrictKeysContract:
    """For every store that takes no key or prefix which another one could not hold."""

    @pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
    def test_a_key_that_cannot_be_asked_for_is_invalid_and_no_other_is_touched(self, cloud, key):
        for plain in ("a", "b", "a/b"[:1] + "x"):
            cloud.put(plain)
        before = cloud.keys()
        store = cloud.open()
        with pytest.raises(InvalidError):
            store.read(key, limit=10)
        with pytest.raises(InvalidError):
            store.write(key, b"")
        assert isinstance(store.delete([key])[key], Invalid)
        assert cloud.keys() == before

    @pytest.mark.parametrize("prefix", ["/", "/a", "a//b", "..", "a/../b/", "a\x00"], ids=ascii)
    def test_a_prefix_that_cannot_be_asked_for_is_invalid(self, cloud, prefix):
        store = cloud.open()
        with pytest.raises(InvalidError):
            keys_of(store, prefix)
        with pytest.raises(InvalidError):
            list(store.list_directories(prefix))

    def test_a_prefix_needs_no_slash_at_its_end(self, cloud):
        for key in ("backups/a/1", "backups/ab/1"):
            cloud.put(key)
        assert keys_of(cloud.open(), "backups/a") == ["backups/a/1"]

    def test_names_that_begin_with_dots_are_names(self, cloud):
        for key in ("d/..a", "d/.b", "d/.c/x"):
            cloud.put(key)
        assert keys_of(cloud.open(), "d/") == ["d/..a", "d/.b", "d/.c/x"]

    def test_more_than_the_limit_is_refused_with_both_numbers(self, cloud):
        cloud.put("big", b"x" * 1001)
        with pytest.raises(InvalidError, match=r"big has 1001 bytes, .*1000"):
            cloud.open().read("big", limit=1000)


FAULTS = {
    "denied": (DeniedError, Denied),
    "unauthenticated": (DeniedError, Denied),
    "throttled": (ThrottledError, Retryable),
    "broken": (UnavailableError, Retryable),
    "missing": (ContainerMissingError, ContainerMissing),
}


class RemoteContract:
    """For every store that is reached over a network."""

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_refused_read_says_why(self, cloud, fault):
        cloud.put("k")
        store = cloud.open()
        cloud.faults.next(cloud.answers[fault])
        with pytest.raises(FAULTS[fault][0]):
            store.read("k", limit=10)
        assert store.read("k", limit=10) == b"x"

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_refused_listing_says_why(self, cloud, fault):
        cloud.put("d/k")
        store = cloud.open()
        cloud.faults.next(cloud.answers[fault], times=2)
        with pytest.raises(FAULTS[fault][0]):
            keys_of(store, "d/")
        with pytest.raises(FAULTS[fault][0]):
            list(store.list_directories(""))
        assert keys_of(store, "d/") == ["d/k"]

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_listing_that_is_refused_half_way_raises(self, cloud, fault):
        for key in names(1200):
            cloud.put(key)
        cloud.faults.next(cloud.answers[fault], when=lambda r: "token" in str(r.query) or "marker" in r.query)
        with pytest.raises(FAULTS[fault][0]):
            keys_of(cloud.open(), "backups/many/")

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_refused_write_says_why(self, cloud, fault):
        store = cloud.open()
        cloud.faults.next(cloud.answers[fault])
        with pytest.raises(FAULTS[fault][0]):
            store.write("k", b"1")
        assert cloud.keys() == set()

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_refused_delete_says_why_and_nothing_is_gone(self, cloud, fault):
        for key in "abc":
            cloud.put(key)
        store = cloud.open()
        cloud.faults.next(cloud.answers[fault], when=cloud.deletes, times=3)
        outcomes = store.delete(["a", "b", "c"])
        assert {type(o) for o in outcomes.values()} == {FAULTS[fault][1]}
        assert cloud.keys() == {"a", "b", "c"}

    def test_throttled_then_fine(self, cloud):
        cloud.put("k")
        store = cloud.open()
        cloud.faults.next(cloud.answers["throttled"], when=cloud.deletes)
        assert isinstance(store.delete(["k"])["k"], Retryable)
        assert store.delete(["k"]) == {"k": Done()}

    def test_each_key_has_its_own_outcome(self, cloud):
        for key in names():
            cloud.put(key)
        cloud.lock(names()[7])
        cloud.deny(names()[1500])
        cloud.lock(names()[2499])
        outcomes = cloud.open().delete([*names(), "backups/many/not-there"])
        assert {k: type(o) for k, o in outcomes.items() if not isinstance(o, Done)} == {
            names()[7]: Locked,
            names()[1500]: Denied,
            names()[2499]: Locked,
        }
        assert cloud.keys() == {names()[7], names()[1500], names()[2499]}

    def test_a_plain_404_is_of_nothing_that_is_known(self, cloud):
        """A 404 of a proxy or of a wrong path names neither a key nor a bucket; it must not pass for "gone"."""
        store = cloud.open()
        cloud.faults.next(PLAIN_404, times=20)
        with pytest.raises(UnknownError):
            store.read("backups/a/x", limit=10)

    def test_a_plain_404_is_of_the_key_when_the_bucket_lists_others(self, cloud):
        cloud.put("other")
        store = cloud.open()
        cloud.faults.next(PLAIN_404)
        with pytest.raises(NotFoundError):
            store.read("backups/a/x", limit=10)

    def test_nothing_is_gone_after_plain_404s(self, cloud):
        cloud.put("k")
        store = cloud.open()
        cloud.faults.next(PLAIN_404, times=20)
        assert isinstance(store.delete(["k"])["k"], Unknown)
        assert cloud.keys() == {"k"}

    def test_garbage_is_no_empty_bucket(self, cloud):
        """The page of a proxy, with status 200, reads as a list without entries: every backup would have vanished."""
        cloud.put("backups/a/1")
        store = cloud.open()
        cloud.faults.next(GARBAGE, times=20)
        with pytest.raises(UnknownError):
            keys_of(store, "backups/")
        with pytest.raises(UnknownError):
            list(store.list_directories("backups/"))

    def test_a_web_server_is_no_empty_bucket(self, cloud):
        """A page for every directory, a plain 404 for every file: what a wrong ``s3Url`` may lead to."""
        cloud.put("backups/a/1")
        store = cloud.open()
        cloud.faults.next(GARBAGE, when=cloud.lists, times=20)
        cloud.faults.next(PLAIN_404, times=20)
        with pytest.raises(UnknownError):
            keys_of(store, "backups/")
        with pytest.raises(UnknownError):
            list(store.list_directories("backups/"))

    def test_a_throttled_store_is_left_alone(self, cloud):
        """Thousands of calls more would only keep it throttled; what was not asked for is retried like the rest."""
        for key in names():
            cloud.put(key)
        cloud.faults.next(cloud.answers["throttled"], when=cloud.deletes, times=9999)
        outcomes = cloud.open().delete(names())
        assert {type(o) for o in outcomes.values()} == {Retryable}
        assert len(cloud.writes()) < 100

    def test_garbage_on_a_later_page_is_no_end_of_the_list(self, cloud):
        for key in names(1200):
            cloud.put(key)
        cloud.faults.next(GARBAGE, when=lambda r: "token" in str(r.query) or "marker" in r.query)
        store = cloud.open()
        try:
            listed = keys_of(store, "backups/many/")
        except ReprieveError:
            listed = names(1200)  # refused: as good as complete, nobody is misled
        assert listed == names(1200)

    def test_garbage_is_no_deletion(self, cloud):
        cloud.put("backups/a/1")
        store = cloud.open()
        cloud.faults.next(GARBAGE, times=200)
        outcomes = store.delete(["backups/a/1", "backups/a/2"])
        assert {type(o) for o in outcomes.values()} == {Unknown}
        assert cloud.keys() == {"backups/a/1"}

    def test_a_deletion_that_was_only_said_to_be_one_is_unknown(self, cloud):
        cloud.put("k")
        cloud.put("l")
        store = cloud.open()
        cloud.faults.next(GARBAGE, when=cloud.deletes, times=20)
        outcomes = store.delete(["k", "l"])
        assert {type(o) for o in outcomes.values()} == {Unknown}

    def test_an_error_inside_of_a_200_is_no_answer(self, cloud):
        cloud.put("backups/a/1")
        store = cloud.open()
        refused = Answer(200, cloud.answers["broken"].body, {"Content-Type": "application/xml"})
        cloud.faults.next(refused, times=200)
        with pytest.raises((UnknownError, UnavailableError)):
            keys_of(store, "backups/a/")
        assert not is_gone(store.delete(["backups/a/1"])["backups/a/1"])
        assert cloud.keys() == {"backups/a/1"}

    def test_a_server_that_is_down_is_unavailable(self, cloud):
        cloud.put("k")
        store = cloud.open()
        cloud.server.close()
        with pytest.raises(UnavailableError):
            store.read("k", limit=1)
        with pytest.raises(UnavailableError):
            keys_of(store, "")
        with pytest.raises(UnavailableError):
            store.write("k", b"")
        assert {type(o) for o in store.delete(["k", "l"]).values()} == {Retryable}

    def test_a_server_that_hangs_is_unavailable(self, cloud):
        cloud.put("k")
        store = cloud.open(timeout=IMPATIENCE)
        cloud.faults.hanging.set()
        with pytest.raises(UnavailableError):
            store.read("k", limit=1)
        assert {type(o) for o in store.delete(["k"]).values()} == {Retryable}

    def test_a_bulk_delete_that_was_cut_off_is_taken_up_where_it_stands(self, cloud):
        """The keys were deleted, the answer got lost: what is gone is gone, and nothing is asked for twice."""
        cloud.put("a")
        cloud.put("b")
        store = cloud.open()

        def lose(request):
            if not cloud.deletes(request):
                return False
            cloud.answer(request)
            return True

        cloud.faults.next(cloud.answers["broken"], when=lose)
        outcomes = store.delete(["a", "b"])
        assert all(is_gone(o) or isinstance(o, Retryable) for o in outcomes.values())
        assert {key for key, o in outcomes.items() if is_gone(o)} & cloud.keys() == set()
        assert len(cloud.keys()) < 2  # one by one, the second key may not have been asked for after the first failure
        assert store.delete(["a", "b"]) == {"a": Done(), "b": Done()}
        assert cloud.keys() == set()

    def test_messages_name_the_place_and_the_key_and_no_secret(self, cloud):
        cloud.put("k")
        store = cloud.open(prefix="team")
        cloud.faults.next(cloud.answers["denied"])
        with pytest.raises(DeniedError) as caught:
            store.read("backups/a/x", limit=10)
        assert str(caught.value).startswith("bucket backups/team: reading backups/a/x: ")
        assert "Debug source" not in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_directory_s_marker_is_no_file(self, cloud):
        """Consoles write empty objects ``a/`` to show a directory; obstore lists them as ``a``: another key."""
        cloud.put("backups/a/", b"")
        cloud.put("backups/a/deep/", b"")
        cloud.put("backups/a/file", b"")
        assert keys_of(cloud.open(), "backups/a/") == ["backups/a/file"]

    @pytest.mark.parametrize("key", ["backups/a//b", "backups/a/../b", "backups/a/x\ny", "backups/a/\x7f"])
    def test_a_key_that_cannot_be_named_stops_the_listing_of_its_directory(self, cloud, key):
        cloud.put(key)
        cloud.put("backups/c/1")
        store = cloud.open()
        with pytest.raises(InvalidError):
            keys_of(store, "backups/a/")
        assert keys_of(store, "backups/c/") == ["backups/c/1"]
        assert list(store.list_directories("backups/")) == ["a", "c"]
