"""How much of what a stranger writes is taken in: every limit on texts, answers, documents and lists, and why.

All of them together keep a process within the 512 MiB that ``deploy/`` grants it, whatever a bucket, an endpoint or an
API server sends. ``BUDGET`` is what documents and lists that are being read may take besides the process itself.

Guarantee: what is beyond a limit is refused by a ``TooMuchError`` or an ``InvalidError`` that names the limit; nothing
is taken for whole of which a part was not read. Not guaranteed: exact bytes; memory is counted as it was measured for
the worst that JSON and XML can be made to cost.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# The process

LARGEST = 40 * MIB
"""What one document may cost while it is read: its bytes, and the objects that are built of them."""

KEPT = 112 * MIB
"""What one list may leave behind in memory, once its entries are reduced to what is used of them: 150,000 objects."""

GIANT = KEPT + LARGEST
"""What one reader may hold at once: a list whose last page is being read. One giant is read at a time."""

BUDGET = GIANT + 40 * MIB
"""What all readers of the process hold at once. Beside a giant the others have as much as one document may cost."""

WAIT = 120.0
"""Seconds to wait for a share of the budget: four times the longest call, so that a queue of slow ones still moves."""

# Answers

CHUNK = 64 * KIB
"""What is read of a connection at a time."""

ERROR_BODY = 64 * KIB
"""Of an answer that refuses. The error documents of the clouds have up to 4 KiB; what comes after this is not read."""

STATUS_BODY = 256 * KIB
"""Of an API server's refusal: a Status that quotes an invalid object is as long as the object's field is."""

MESSAGE = 2 * KIB
"""Characters of one message of another system, as it is searched and told."""

CLOUD_ANSWER = 12 * MIB
"""Of an answer of a cloud's API: a page of 500 snapshots with 50 tags each has 11 MiB."""

BUCKET_ANSWER = 9 * MIB
"""Of one answer of a bucket on its way through: the largest file that is read, and what TLS and a head add to it."""

BUCKET_CONNECTION = 32 * MIB
"""Of all answers on one connection to a bucket: a listing of directories is gathered whole before we see any of it, and
200,000 of them take less."""

OBJECT = 4 * MIB
"""One object of a cluster, and so one line of a watch. etcd takes 1.5 MiB; JSON may write that longer."""

ANSWER_PAGE = 16 * MIB
"""One page of a cluster's list. A longer one is asked for again with fewer objects on it."""

TOKEN = 16 * KIB
"""What says where a list goes on: it is kept to see that it changes, and goes into the next call's address."""

# Documents in buckets

METADATA = 4 * MIB
"""A metadata file: the Backup object as it lay in etcd, which takes 1.5 MiB at most."""

HOLD = 64 * KIB
"""A hold file: two annotations."""

PACKED = 8 * MIB
"""A gzipped list. 30,000 entries of 2 KiB pack to 2 to 4 MiB."""

UNPACKED = 64 * MIB
"""The same, unpacked. It is never held whole: entry by entry."""

ENTRY = 2 * MIB
"""One entry of a list: an object as it lay in etcd."""

ENTRIES = 60_000
"""Entries of one list. The largest that are known of have some 10,000 volumes."""

ITEMS = 60_000
"""What all lists of a backup may name: that much is held while the backup is being deleted."""

# Lists

OBJECTS = 250_000
"""Objects of one kind in a cluster's list: protection is measured with 100,000 owners."""

PAGES = 5_000
"""Pages of a list, as many as ``OBJECTS`` take with a tenth of what was asked for on each."""

SNAPSHOTS_SEEN = 500_000
"""Snapshots that a cloud lists before it is taken to be endless: AWS grants 100,000 a region."""

FILES = 200_000
"""Files below one directory of a bucket, and directories of backups in a location: sync is measured with 10,000."""
