"""A bucket's endpoint that sends without an end: the process that reads it stays within what the Deployment grants it.

obstore reads in native code, where no limit of ours is asked, so memory is measured as the system sees it: by the peak
of a process of its own, which opens the bucket as the controller does.
"""

import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reprieve.adapters.cloud.egress import _Answers
from reprieve.adapters.sizes import BUCKET_ANSWER, BUCKET_CONNECTION, ERROR_BODY, MIB

GRANTED = 512  # MiB, by the Deployment
READER = """
import resource, sys, threading
from datetime import timedelta
from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.core.backups import StorageLocation
from reprieve.core.errors import ReprieveError
from tests.integration.cloud_http import stand_ins

from reprieve.entrypoints.controller.gathering import BackupReader

url, what, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
keys = b"[default]\\naws_access_key_id = a\\naws_secret_access_key = b\\n"
config = {"region": "x", "s3Url": url, "s3ForcePathStyle": "true"}
stores = CloudObjectStores(policy=stand_ins(url), timeout=timedelta(seconds=20))
store = stores.open(StorageLocation("x", "aws", "bucket", config=config), credential=keys)

reader = BackupReader(None, stores, None, "velero", frozenset())

def work():
    try:
        if what == "directory":
            said.append(type(reader._read_directory(store, "b").metadata).__name__)
            return
        if what == "read":
            store.read("backups/b/velero-backup.json", limit=10**6)
        else:
            list(store.list_directories("backups/"))
        said.append("nothing was refused")
    except ReprieveError as error:
        said.append(type(error).__name__)

said = []
threads = [threading.Thread(target=work) for _ in range(times)]
[each.start() for each in threads]
[each.join() for each in threads]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(peak, *sorted(set(said)))
"""


@contextmanager
def endpoint(answer):
    """A server that answers every request by that function of its handler."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            try:
                answer(self)
            except OSError:  # it was cut off
                self.close_connection = True

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def read_by_a_process(url, what, *, times):
    """The peak of a process that does it so many times at once, in MiB, and what it was told."""
    done = subprocess.run(
        [sys.executable, "-c", READER, url, what, str(times)], capture_output=True, text=True, timeout=200, check=True
    )
    peak, *said = done.stdout.split()
    return int(peak), said


@pytest.mark.parametrize("status", [200, 500], ids=["an-answer", "an-error-page"])
def test_an_answer_of_a_bucket_without_an_end_costs_what_passes(status):
    """20 MB of an error page that is no text took 1.3 GB, each time it was read; here eight of a gigabyte at once."""

    def answer(handler):
        handler.send_response(status)
        handler.send_header("Content-Length", str(1024 * MIB))
        handler.end_headers()
        for _ in range(1024):
            handler.wfile.write(b"\xff\xfe\x00\x80" * (MIB // 4))

    with endpoint(answer) as url:
        peak, said = read_by_a_process(url, "read", times=8)
    assert "nothing" not in said
    assert peak < GRANTED


def test_pages_of_directories_without_an_end_end():
    """A listing whose every page names another one was gathered whole, out of our sight: 2 GiB in 32 s."""
    names = "".join(f"<CommonPrefixes><Prefix>backups/{'x' * 40}%d-{n}/</Prefix></CommonPrefixes>" for n in range(1000))
    page = (
        '<?xml version="1.0"?><ListBucketResult><IsTruncated>true</IsTruncated>'
        "<NextContinuationToken>%d</NextContinuationToken>" + names + "</ListBucketResult>"
    )
    count = iter(range(10**9))

    def answer(handler):
        number = next(count)
        body = page.replace("%d", str(number)).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with endpoint(answer) as url:
        peak, said = read_by_a_process(url, "list", times=2)
    assert "nothing" not in said
    assert peak < GRANTED


@pytest.mark.parametrize(
    ("filling", "said"),
    [
        pytest.param(b'"' + b"x" * (4 * MIB - 200) + b'",', "MetadataPresent", id="one-long-text"),
        pytest.param(b"[]," * (MIB + MIB // 4), "MetadataCorrupt", id="values-without-number"),
        pytest.param(b"[]," * (2 * MIB), "MetadataCorrupt", id="larger-than-may-be"),
    ],
)
def test_sixteen_metadata_files_at_once_share_one_budget(filling, said):
    """5.7 MB of nested lists are a hundred times as much once they are objects: sixteen at once took 2.2 GiB."""
    document = b'{"status":{"startTimestamp":"2026-03-01T12:00:00Z"},"a":[' + filling + b"[]]}"

    def answer(handler):
        there = handler.path.partition("?")[0].endswith("velero-backup.json")
        body = document if there else b"<Error><Code>NoSuchKey</Code></Error>"
        handler.send_response(200 if there else 404)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", '"1"')
        handler.send_header("Last-Modified", "Sun, 01 Mar 2026 12:00:00 GMT")
        handler.end_headers()
        handler.wfile.write(body)

    with endpoint(answer) as url:
        peak, told = read_by_a_process(url, "directory", times=16)
    assert peak < GRANTED
    assert told == [said]


def passed(answers, chunk, times):
    return sum(len(answers.passes(chunk)) for _ in range(times))


def test_what_cannot_be_read_is_counted_all_the_same():
    """Of TLS nothing can be told apart: an answer has its limit, and so has a connection."""
    answers, piece = _Answers(), b"x" * MIB
    assert passed(answers, piece, 20) == BUCKET_ANSWER
    for _ in range(9):
        answers.asked()
        passed(answers, piece, 4)
    answers.asked()
    assert passed(answers, piece, 4) == 0
    assert BUCKET_ANSWER < BUCKET_CONNECTION


@pytest.mark.parametrize(
    ("head", "limit"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n", BUCKET_ANSWER, id="an-answer"),
        pytest.param(b"HTTP/1.1 206 Partial Content\r\n", BUCKET_ANSWER, id="a-part"),
        pytest.param(b"HTTP/1.1 404 Not Found\r\n", 2 * ERROR_BODY, id="a-refusal"),
        pytest.param(b"HTTP/1.1 503 Slow Down\r\n", 2 * ERROR_BODY, id="busy"),
        pytest.param(b"no answer at all", 2 * ERROR_BODY, id="anything"),
    ],
)
def test_of_a_refusal_no_more_passes_than_an_error_document_has(head, limit):
    answers = _Answers(read=True)
    first = len(answers.passes(head))
    assert first + passed(answers, b"x" * 4096, 5000) == limit
