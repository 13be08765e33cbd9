"""Where a location points is not where this process goes, and what is read there is not told.

Whoever may write a location, a bucket's answer or a redirect had requests of this process sent wherever they liked:
with its own tokens in them, and with the answers of internal services in the status for all to read. Real SDK clients
and obstore, against an evil server and a metadata service on loopback that keep what they are sent.
"""

import base64
import json
import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection

import pytest
import yaml
from azure.core.pipeline.policies import SansIOHTTPPolicy
from kubernetes.client import Configuration as ClientConfiguration
from structlog.testing import capture_logs

from reprieve.adapters.cloud import egress
from reprieve.adapters.cloud.aws import AwsSnapshots
from reprieve.adapters.cloud.azure import AzureSnapshots
from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.adapters.cloud.buckets_credentials import aws_credential
from reprieve.adapters.cloud.endpoints import EndpointPolicy, PlaceRefusedError, Standing, read_pattern, read_url
from reprieve.adapters.cloud.gcp import GcpSnapshots
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.adapters.k8s.client import connect_to
from reprieve.adapters.local import MemoryEvents
from reprieve.core.backups import SnapshotLocation, StorageLocation
from reprieve.core.errors import InvalidError, ReprieveError, UnknownError
from reprieve.core.objects import ObjectKind
from reprieve.entrypoints.cli.root import run
from reprieve.entrypoints.configuration import read_configuration
from reprieve.entrypoints.controller import serve as serving
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.world import World
from tests.integration.apiserver import refusal, times
from tests.integration.azure_compute import PREFIX as AZURE_SNAPSHOTS
from tests.integration.buckets_http import BucketServer
from tests.integration.cloud_http import Answer, closing, stand_ins
from tests.integration.contract_snapshots import AWS_FILE, AZURE_FILE
from tests.integration.gcp_compute import GcpCompute
from tests.integration.gcs_server import Gcs
from tests.integration.s3 import S3
from tests.integration.test_cli_wait_http import kubeconfig

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
VELERO = "velero.io/v1"
HEAD = {"apiVersion": "reprieve.dev/v1alpha1", "kind": "Configuration"}
PATIENCE = 60
ENDED = {"phase": "Completed", "startTimestamp": "2026-02-01T03:00:00Z"}
BRIEF = timedelta(seconds=10)

ROLE = "ROLE-SECRET-KEY"  # what a metadata service gives away
POD = "POD-TOKEN"  # what this process is, in the eyes of its cloud
ROLE_CREDENTIALS = json.dumps(
    {"Code": "Success", "AccessKeyId": f"ASIA{ROLE}", "SecretAccessKey": ROLE, "Token": ROLE}
).encode()
KEY_FILE = b"[default]\naws_access_key_id = AKIASECRET\naws_secret_access_key = s\n"


class Recorder(BucketServer):
    """A server that keeps what it is sent, and answers as it is told."""

    def __init__(self, answer=None):
        self.give = answer or (lambda _: Answer(200, ROLE_CREDENTIALS, {"Content-Type": "application/json"}))
        super().__init__(self._given)

    def _given(self, request):
        return self.give(request)

    def saw(self, word):
        """Whether anything that was sent has the word in it."""
        return any(
            word in text
            for request in self.requests
            for text in (request.path, request.body.decode("latin-1"), *request.headers.values())
        )


@pytest.fixture
def evil():
    with closing(Recorder()) as server:
        yield server


@pytest.fixture
def metadata():
    with closing(Recorder()) as server:
        yield server


@pytest.fixture
def pod(monkeypatch, tmp_path):
    """An identity of this process' own, on every cloud; servers of its tokens that its operator named."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "AZURE_CREDENTIALS_FILE", "AZURE_CLIENT_ID"):
        monkeypatch.delenv(name, raising=False)
    expires = str(int(time.time()) + 3600)
    token = {"access_token": POD, "expires_in": 3600, "token_type": "Bearer", "expires_on": expires}

    def give(request):
        if request.path.endswith("/token") or "resource" in request.query:
            return Answer.of_json({**token, "resource": request.query.get("resource", "")})
        headers = {"Metadata-Flavor": "Google"}
        return Answer.of_json({"aliases": ["default"], "email": "pod@x", "scopes": []}, headers=headers)

    with closing(Recorder(give)) as tokens:
        host = tokens.url.removeprefix("http://")
        for name, value in {
            "AWS_ACCESS_KEY_ID": "AKIAPOD",
            "AWS_SECRET_ACCESS_KEY": "pod",
            "AWS_SESSION_TOKEN": POD,
            "AWS_EC2_METADATA_DISABLED": "true",
            "GCE_METADATA_HOST": host,
            "GCE_METADATA_IP": host,
            "GOOGLE_CLOUD_PROJECT": "p-123456",
            "CLOUDSDK_CONFIG": str(tmp_path),
            "IDENTITY_ENDPOINT": tokens.url,
            "IDENTITY_HEADER": "x",
            "AZURE_TOKEN_CREDENTIALS": "prod",
            "AZURE_POD_KEY": base64.b64encode(POD.encode()).decode(),
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        yield tokens


def made(kind, name, **parts):
    return {"apiVersion": VELERO, "kind": kind, "metadata": {"name": name, "namespace": "velero"}, **parts}


def pointing(provider, config, *, bucket="bucket", secret=""):
    """The spec of a storage location."""
    spec = {"provider": f"velero.io/{provider}", "objectStorage": {"bucket": bucket}, "config": config}
    return spec | ({"credential": {"name": secret, "key": "cloud"}} if secret else {})


class Scene:
    """A namespace with a backup and a request for its deletion in each location, over the API server."""

    def __init__(self, store, cluster, *, endpoints=(), identity=(), policy=None):
        cloud = {"endpoints": [*endpoints], "podIdentity": [*identity]}
        configuration = read_configuration({**HEAD, "cloud": cloud})
        self.store, self.events = store, MemoryEvents()
        files = CloudObjectStores(policy=policy or configuration.endpoints, timeout=BRIEF)
        self.world = World(configuration, cluster, files, CloudSnapshotStores(), self.events)

    def secret(self, name, data):
        encoded = {"cloud": base64.b64encode(data).decode()}
        meta = {"name": name, "namespace": "velero"}
        self.store.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": encoded})

    def locate(self, name, spec):
        """A location, a backup in it, and a request for its deletion, all of one name."""
        self.store.create(made("BackupStorageLocation", name, spec=spec, status={"phase": "Available"}))
        self.store.create(made("Backup", name, spec={"storageLocation": name}, status=ENDED))
        self.store.create(made("DeleteBackupRequest", f"{name}-1", spec={"backupName": name}))

    def names(self, kind="Backup"):
        return {each["metadata"]["name"] for each in self.store.list(ObjectKind(VELERO, kind)).items}

    def run(self):
        """One pass of every controller; all that it decided and said."""
        built = build_controllers(self.world, names=[], stop=threading.Event())
        try:
            with capture_logs() as logs:
                report = run_once(built.reconcilers, now=NOW)
        finally:
            built.close()
        return report, "\n".join([repr(report), repr(logs), self.told()])

    def told(self):
        """All that is to be read in the cluster, and in its events."""
        kinds = ("Backup", "DeleteBackupRequest", "BackupStorageLocation")
        objects = [each for kind in kinds for each in self.store.list(ObjectKind(VELERO, kind)).items]
        return json.dumps(objects, default=str) + repr(self.events.events)


ELSEWHERE = {
    "s3-url": lambda host: pointing("aws", {"region": "minio", "s3Url": f"http://{host}"}),
    "s3-url-with-a-secret": lambda host: pointing("aws", {"region": "x", "s3Url": f"http://{host}"}, secret="keys"),
    "s3-url-of-a-look-alike": lambda host: pointing("aws", {"region": "x", "s3Url": f"http://s3.amazonaws.com.{host}"}),
    "s3-region": lambda host: pointing("aws", {"region": f"{host}/x?"}, bucket="arn"),
    "s3-region-with-a-user": lambda host: pointing("aws", {"region": f"x@{host}#"}),
    "s3-bucket": lambda host: pointing("aws", {"region": "us-east-1"}, bucket=f"{host}#"),
    "s3-access-point": lambda host: pointing(
        "aws", {"region": "us-east-1"}, bucket=f"arn:aws:s3:{host}#:123456789012:accesspoint/abc"
    ),
    "gcs-endpoint": lambda host: pointing("gcp", {"storeEndpointURI": f"http://{host}/storage/v1/"}),
    "gcs-endpoint-over-https": lambda host: pointing("gcp", {"storeEndpointURI": f"https://{host}"}),
    "gcs-universe": lambda host: pointing("gcp", {"universeDomain": f"{host}/#"}),
    "azure-uri": lambda host: pointing("azure", {"storageAccount": "abc", "storageAccountURI": f"http://{host}"}),
    "azure-uri-without-a-scheme": lambda host: pointing("azure", {"storageAccount": "abc", "storageAccountURI": host}),
    "azure-account": lambda host: pointing("azure", {"storageAccount": f"{host}/"}),
    "azure-key-of-the-pod": lambda host: pointing(
        "azure",
        {"storageAccount": "abc", "storageAccountURI": f"http://{host}", "storageAccountKeyEnvVar": "AZURE_POD_KEY"},
    ),
    "metadata": lambda host: pointing("aws", {"region": "x", "s3Url": "http://169.254.169.254"}, secret="keys"),
    "metadata-in-decimal": lambda host: pointing("aws", {"region": "x", "s3Url": "http://2852039166"}, secret="keys"),
    "metadata-mapped": lambda host: pointing(
        "aws", {"region": "x", "s3Url": "http://[::ffff:169.254.169.254]"}, secret="keys"
    ),
}


def test_no_token_goes_where_a_location_says(store, cluster, pod, evil):
    """A location's own words led the pod's token to any host: `s3Url`, `storeEndpointURI`, `region: "evil.example/x?"`.

    The running controller asks none of them, loses nothing, says what to do, and serves the honest neighbour, whose
    store in the cluster the operator allows.
    """
    with closing(S3()) as minio:
        scene = Scene(store, cluster, endpoints=[minio.url])
        scene.secret("keys", KEY_FILE)
        for name, spec in ELSEWHERE.items():
            scene.locate(name, spec(evil.url.removeprefix("http://")))
        minio.put("backups/neighbour/velero-backup.json", json.dumps({"status": ENDED}).encode())
        scene.locate("neighbour", pointing("aws", minio.config(), bucket="backups", secret="keys"))
        stop = threading.Event()
        built = build_controllers(scene.world, names=[], stop=stop)
        arguments = {"stop": stop, "clock": lambda: NOW}
        served = threading.Thread(target=serving.serve, args=(built, scene.world), kwargs=arguments)
        with capture_logs() as logs:
            served.start()
            waiting = {f"{name}-1" for name in ELSEWHERE}
            done = until(
                lambda: (
                    scene.names() == set(ELSEWHERE)
                    and scene.names("DeleteBackupRequest") == waiting
                    and deferred(logs) == set(ELSEWHERE)
                )
            )
            stop.set()
            served.join(PATIENCE)
            built.close()
        assert done, (scene.names(), deferred(logs))
        assert minio.keys() == set()
    assert evil.requests == []
    assert pod.requests == [], "not even asked for"
    assert scene.names("DeleteBackupRequest") == waiting
    at_start = [each for each in logs if "configuration allows nothing" in each["event"]]
    assert len(at_start) == 1
    assert f'"{evil.url}"' in at_start[0]["way_out"]
    assert "metadata" not in at_start[0]["locations"], "nobody is told how to allow that"


def until(condition):
    """Wait until something holds; tells whether it ever did."""
    ends, pause = time.monotonic() + PATIENCE, threading.Event()
    while time.monotonic() < ends:
        if condition():
            return True
        pause.wait(0.05)
    return False


def deferred(logs):
    """The backups whose request waits, as the log says, since their location cannot be read."""
    told = [repr(each) for each in [*logs] if "LocationUnavailable" in repr(each)]
    return {name for name in (*ELSEWHERE, "neighbour") if any(f"velero/{name}-1'" in each for each in told)}


def test_the_pod_s_own_identity_goes_only_where_it_is_named(store, cluster, pod, evil):
    """An allowed store got the pod's session token as soon as a location named no Secret.

    The counter-trial shows that the identity is really there: named in the configuration, it is sent.
    """
    evil.give = lambda _: Answer(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
    spec = pointing("aws", {"region": "minio", "s3Url": evil.url})
    scene = Scene(store, cluster, endpoints=[evil.url])
    scene.locate("store", spec)
    _, told = scene.run()
    assert evil.requests == []
    assert f'cloud: {{endpoints: ["{evil.url}"], podIdentity: ["{evil.url}"]}}' in told.replace('\\\\"', '\\"')
    with_a_secret = CloudObjectStores(policy=scene.world.configuration.endpoints)
    with pytest.raises(ReprieveError):
        with_a_secret.open(location("aws", spec["config"]), credential=KEY_FILE).read("k", limit=1)
    assert evil.saw("AKIASECRET")
    assert not evil.saw("AKIAPOD")
    assert not evil.saw(POD)
    named = read_configuration({**HEAD, "cloud": {"endpoints": [evil.url], "podIdentity": [evil.url]}})
    with pytest.raises(ReprieveError):
        CloudObjectStores(policy=named.endpoints).open(location("aws", spec["config"])).read("k", limit=1)
    assert evil.saw("AKIAPOD")


def location(provider, config, *, bucket="bucket"):
    return StorageLocation("x", provider, bucket, config=config)


BEARERS = {
    "gcp": lambda url: location("gcp", {"storeEndpointURI": url}),
    "azure": lambda url: location("azure", {"storageAccount": "abc", "storageAccountURI": url}),
}


@pytest.mark.parametrize("provider", BEARERS)
def test_no_bearer_token_goes_out_in_the_clear(pod, evil, provider):
    """An endpoint over plain HTTP got the pod's bearer token, for everybody on the way to read."""
    patterns = [read_pattern(evil.url)]
    opened = BEARERS[provider](evil.url)
    with pytest.raises(InvalidError, match="https only"):
        CloudObjectStores(policy=EndpointPolicy(patterns, patterns)).open(opened)
    assert evil.requests == []
    with pytest.raises(ReprieveError):  # for a stand-in, so that it is seen that there is a token
        CloudObjectStores(policy=stand_ins(evil.url)).open(opened).read("k", limit=1)
    assert evil.saw(POD)


def test_no_variable_of_the_pod_is_read_because_a_location_names_it(pod, evil):
    """`storageAccountKeyEnvVar` took any variable of the pod for an account's key, and signed with it."""
    config = {"storageAccount": "abc", "storageAccountURI": evil.url, "storageAccountKeyEnvVar": "AZURE_POD_KEY"}
    with pytest.raises(InvalidError, match="environment is not read") as caught:
        CloudObjectStores(policy=stand_ins(evil.url)).open(location("azure", config))
    assert POD not in str(caught.value)
    assert evil.requests == []


def test_a_plan_prints_one_line_for_all_that_would_stop(store, api, pod, evil, tmp_path, capsys):
    """Stores in the cluster are common: what an upgrade stops is listed once, with one line that allows all of it."""
    with closing(Recorder()) as other:
        scene = Scene(store, None)
        scene.secret("keys", KEY_FILE)
        scene.locate("minio", pointing("aws", {"region": "minio", "s3Url": evil.url}))
        scene.locate("ceph", pointing("aws", {"region": "x", "s3Url": other.url}, secret="keys"))
        scene.locate("fine", pointing("aws", {"region": "us-east-1", "s3Url": "https://s3.us-east-1.amazonaws.com"}))
        config = tmp_path / "reprieve.yaml"
        config.write_text(yaml.safe_dump({**HEAD, "cloud": {"providers": ["aws"]}}))
        command = [
            "plan",
            "--kubeconfig",
            kubeconfig(api, tmp_path),
            "--config",
            str(config),
            "--controllers",
            "migration",
        ]
        run(command)
        said = capsys.readouterr().err
        lines = [line for line in said.splitlines() if "cloud: {" in line]
        assert len(lines) == 1, said
        assert [name for name in ("minio", "ceph", "fine") if f"storage location {name} is not asked" in said] == [
            "minio",
            "ceph",
        ]
        added = yaml.safe_load(lines[0].removeprefix("reprieve: "))
        assert added == {"cloud": {"providers": ["aws"], "endpoints": [other.url, evil.url], "podIdentity": [evil.url]}}
        config.write_text(yaml.safe_dump({**HEAD, **added}))
        run(command)
        assert "is not asked" not in capsys.readouterr().err
        config.write_text(yaml.safe_dump(HEAD))
        run(["audit", *command[1:5]])
        audited = capsys.readouterr().out
        assert "storage location minio" in audited
        assert "missing" not in audited.split("0 missing")[0]
        assert (evil.requests, other.requests) == ([], [])


def test_who_may_not_list_locations_has_a_plan_all_the_same(store, api, tmp_path, capsys):
    """Protection alone needs no right to read locations; what cannot be looked at is told, and is no failure."""
    api.faults.append(times(100, refusal(403, "Forbidden", "no"), part="backupstoragelocations"))
    config = tmp_path / "reprieve.yaml"
    config.write_text(yaml.safe_dump(HEAD))
    command = ["plan", "--kubeconfig", kubeconfig(api, tmp_path), "--config", str(config), "--controllers", "retention"]
    assert run(command) == 0
    assert "may be asked cannot be read" in capsys.readouterr().err


# Redirects

REDIRECTS = (301, 302, 303, 307, 308)
OPENERS = {
    "aws": lambda url: (location("aws", {"region": "x", "s3Url": url}), KEY_FILE),
    "azure": lambda url: (
        location("azure", {"storageAccount": "abc", "storageAccountURI": url, "storageAccountKeyEnvVar": "K"}),
        b"K=a2V5",
    ),
    "gcp": lambda url: (location("gcp", {"storeEndpointURI": url}), gcs_key()),
}
WORK = {
    "read": lambda store: store.read("k", limit=10_000),
    "list": lambda store: list(store.list("")),
    "directories": lambda store: list(store.list_directories("")),
    "write": lambda store: store.write("k", b"x"),
    "delete": lambda store: store.delete(["k", "l"]),
}


def gcs_key():
    with closing(Gcs()) as gcs:
        return gcs.credential


def came_to(work, opened):
    """What an attempt came to, as text."""
    try:
        return repr(work(opened))
    except ReprieveError as error:
        return f"{type(error).__name__}: {error}"


def leads_to(url, status):
    return lambda _: Answer(status, b"", {"Location": f"{url}/latest/meta-data/iam/security-credentials/role"})


@pytest.mark.parametrize("provider", OPENERS)
def test_no_bucket_s_redirect_is_followed(evil, metadata, provider, monkeypatch):
    """An endpoint answered with a redirect to the metadata service; its answer, the role's keys, got into the status.

    Nor does a variable that takes hosts out of proxies open a way around.
    """
    for name in ("NO_PROXY", "AWS_PROXY_EXCLUDES", "GOOGLE_PROXY_EXCLUDES", "AZURE_PROXY_EXCLUDES"):
        monkeypatch.setenv(name, "*,127.0.0.1")
    given, credential = OPENERS[provider](evil.url)
    for status in REDIRECTS:
        evil.give = leads_to(metadata.url, status)
        for doing, work in WORK.items():
            opened = CloudObjectStores(policy=stand_ins(evil.url), timeout=BRIEF).open(given, credential=credential)
            said = came_to(work, opened)
            assert ROLE not in said, (status, doing)
            assert "Done" not in said, (status, doing)
            assert said != "[]", (status, doing)
    assert evil.requests
    assert metadata.requests == []


def test_no_redirect_over_tls_is_followed(evil, metadata, tmp_path):
    """The same over TLS, where nobody in between can see the redirect: there is no way to any other host."""
    for server in (evil, metadata):
        with_tls(server, tmp_path)
    evil.give = leads_to(metadata.url, 307)
    config = {"region": "x", "s3Url": evil.url, "insecureSkipTLSVerify": "true"}
    stores = CloudObjectStores(policy=stand_ins(evil.url), timeout=BRIEF)
    said = came_to(WORK["read"], stores.open(location("aws", config), credential=KEY_FILE))
    assert said.startswith("UnknownError: ")
    assert "redirect" in said
    assert evil.requests
    assert metadata.requests == []


def with_tls(server, folder):
    from tests.integration import test_buckets_s3 as s3

    key = s3.ec.generate_private_key(s3.ec.SECP256R1())
    names = s3.x509.SubjectAlternativeName([s3.x509.DNSName("localhost")])
    signed = s3.issue("server", key.public_key(), key, names)
    written = key.private_bytes(s3.Encoding.PEM, s3.PrivateFormat.PKCS8, s3.NoEncryption())
    (folder / "server").write_bytes(signed.public_bytes(s3.Encoding.PEM) + written)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server")
    server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
    server._http.handle_error = lambda *_: None
    server.url = server.url.replace("http://", "https://")


@pytest.fixture
def snapshots(evil):
    """How to get a store of a provider's snapshots at the evil server, and the id of one."""
    with closing(GcpCompute()) as tokens:

        def opened(provider):
            options = {"endpoint": evil.url, "timeout": BRIEF}
            policy = SansIOHTTPPolicy()
            opener, credential, snapshot = {
                "aws": lambda: (AwsSnapshots(**options), AWS_FILE, "snap-0123456789abcdef0"),
                "gcp": lambda: (GcpSnapshots(**options), tokens.credential(), "disk-1"),
                "azure": lambda: (
                    AzureSnapshots(**options, authentication_policy=policy),
                    AZURE_FILE,
                    f"{AZURE_SNAPSHOTS}/disk-1",
                ),
            }[provider]()
            config = {"region": "eu-west-1"} if provider == "aws" else {}
            return opener.open(SnapshotLocation("x", provider, config), credential=credential), snapshot

        yield opened


SNAPSHOT_WORK = {
    "get": lambda store, snapshot: store.get(snapshot),
    "list": lambda store, _: list(store.list("velero.io/backup")),
    "delete": lambda store, snapshot: (store.delete(snapshot), store.delete(snapshot)),
}


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_no_snapshot_sdk_s_redirect_is_followed(evil, metadata, snapshots, provider):
    """Two of the three SDKs follow redirects when they are left to themselves; a redirect is never a deletion."""
    store, snapshot = snapshots(provider)
    for status in REDIRECTS:
        evil.give = leads_to(metadata.url, status)
        for doing, work in SNAPSHOT_WORK.items():
            said = came_to(lambda store, work=work, snapshot=snapshot: work(store, snapshot), store)
            assert not any(word in said for word in (ROLE, "Done", "Gone", "[]")), (status, doing, said)
    assert len(evil.requests) >= len(REDIRECTS) * len(SNAPSHOT_WORK)
    assert metadata.requests == []


def test_no_url_out_of_an_answer_leads_elsewhere(evil, metadata, snapshots):
    """Azure's pages and operations are followed by URLs out of answers, with the token in hand."""
    link = f"{metadata.url}/latest"

    def give(request):
        if request.path.endswith("/snapshots"):
            return Answer.of_json({"value": [], "nextLink": link})
        if request.method == "GET":
            return Answer.of_json({"id": f"{AZURE_SNAPSHOTS}/disk-1", "name": "disk-1"})
        return Answer(202, b"", {"Azure-AsyncOperation": link, "Location": link})

    evil.give = give
    store, snapshot = snapshots("azure")
    with pytest.raises(UnknownError, match="elsewhere"):
        list(store.list("velero.io/backup"))
    assert "Pending" in repr(store.delete(snapshot))
    assert "elsewhere" in repr(store.delete(snapshot))
    assert metadata.requests == []


def test_no_api_server_s_redirect_is_followed(evil, metadata):
    """Whoever answers for the API server does not get its token sent anywhere else."""
    for status in REDIRECTS:
        evil.give = leads_to(metadata.url, status)
        cluster = connect_to(ClientConfiguration(host=evil.url, api_key={"authorization": f"Bearer {POD}"}))
        said = came_to(lambda cluster: cluster.list(ObjectKind("v1", "Secret")), cluster)
        cluster.close()
        assert said.startswith("UnknownError"), (status, said)
    assert evil.saw(POD)
    assert metadata.requests == []


HOSTILE = (
    *(("aws", {"region": text}) for text in ("evil.example/x?", "x@evil.example#", "a.b", "eu-west-1\n", "ü")),
    *(("gcp", {"project": text}) for text in ("../../x", "p?x=1", "p#", "p/global", "проект")),
    *(("azure", {"subscriptionId": text}) for text in ("../x", "evil.example", "0b1f6471-1bf0-4dda-aec3-11112222333٣")),
    *(("azure", {"resourceGroup": text}) for text in ("../x", "a/b", "a?b", "a#", "größe", "a.")),
)


@pytest.mark.parametrize(("provider", "config"), HOSTILE)
def test_no_word_of_a_snapshot_location_becomes_a_part_of_a_url(pod, monkeypatch, provider, config):
    """Region, project, subscription and group went into addresses as they were; now nothing is even resolved."""
    looked_up = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: looked_up.append(host))
    with pytest.raises(InvalidError, match="snapshot location x"):
        CloudSnapshotStores().open(SnapshotLocation("x", provider, config))
    assert looked_up == []
    assert pod.requests == []


@pytest.mark.parametrize("region", ["s3", "s3-website-us-east-1", "cn-x"])
def test_the_pod_s_token_goes_to_no_host_that_a_bucket_s_region_makes_up(pod, monkeypatch, tmp_path, region):
    """With an address of AWS' own, the region `s3` sent the pod's web identity to the host of a bucket named `sts`."""
    token = tmp_path / "token"
    token.write_text(POD)
    looked_up = []

    def getaddrinfo(host, *_, **__):
        looked_up.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reprieve")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    config = {"region": region, "s3Url": "https://s3.eu-west-1.amazonaws.com"}
    found, signed_for = aws_credential(StorageLocation("x", "aws", "bucket", config=config), None)
    with pytest.raises(ReprieveError):
        found.provider()

    assert set(looked_up) == {"sts.eu-west-1.amazonaws.com"}
    assert signed_for == region


# Bodies

FOREIGN = {
    "credentials": ROLE_CREDENTIALS,
    "an-error-like-document": json.dumps({"error": ROLE, "error_description": ROLE, "code": ROLE}).encode(),
    "an-error-without-a-code": json.dumps({"error": {"message": ROLE, "errors": []}}).encode(),
    "a-list": json.dumps([ROLE]).encode(),
    "a-name": ROLE.encode(),
    "a-page": f"<html><h1>{ROLE}</h1><Code>{ROLE}</Code><Message>{ROLE}</Message></html>".encode(),
    "xml": f"<?xml version='1.0'?><x><Error><Code>{ROLE}</Code><Message>{ROLE}</Message></Error></x>".encode(),
    "half-a-listing": f"<ListBucketResult><Contents><Key>k</Key><Size>{ROLE}</Size>".encode(),
    "a-listing-of-nonsense": (
        f"<ListBucketResult><Contents><Key>k</Key><Size>{ROLE}</Size><LastModified>{ROLE}</LastModified></Contents>"
        "</ListBucketResult>"
    ).encode(),
}
STATUSES = (200, 403, 500)


@pytest.mark.parametrize("provider", OPENERS)
def test_no_word_of_a_foreign_body_is_told_of_a_bucket(evil, provider):
    """The body of whatever answered was quoted in the error: a location was a way to read internal services."""
    given, credential = OPENERS[provider](evil.url)
    for status in STATUSES:
        for name, body in FOREIGN.items():
            evil.give = lambda _, status=status, body=body: Answer(status, body, {"ETag": '"x"', "Last-Modified": AT})
            opened = CloudObjectStores(policy=stand_ins(evil.url), timeout=BRIEF).open(given, credential=credential)
            for doing, work in WORK.items():
                said = came_to(work, opened) if (status, doing) != (200, "read") else ""
                assert ROLE not in said, (status, name, doing)


AT = "Mon, 30 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_no_word_of_a_foreign_body_is_told_of_a_snapshot(evil, snapshots, provider, caplog):
    """The same of the three SDKs, which quote what they do not understand, in errors and in their own logs."""
    store, snapshot = snapshots(provider)
    for status in STATUSES:
        for name, body in FOREIGN.items():
            headers = {"Content-Type": "application/json" if body[:1] in b"{[" else "text/xml"}
            evil.give = lambda _, status=status, body=body, headers=headers: Answer(status, body, headers)
            for doing, work in SNAPSHOT_WORK.items():
                said = came_to(lambda store, work=work: work(store, snapshot), store)
                assert ROLE not in said, (status, name, doing, said)
                assert "Done" not in said, (status, name, doing)
    assert len(evil.requests) >= len(STATUSES) * len(FOREIGN) * len(SNAPSHOT_WORK)
    assert ROLE not in caplog.text


def test_nothing_of_an_internal_service_is_to_be_read_in_the_cluster(store, api, cluster, evil, tmp_path, capfd):
    """An allowed store that turned, or somebody in its place: what it answers is in no status, event, log, plan, audit.

    What is told is that the body is not the provider's, and the backups and their requests stay.
    """
    scene = Scene(store, cluster, endpoints=[evil.url], identity=[evil.url])
    scene.secret("keys", KEY_FILE)
    scene.locate("store", pointing("aws", {"region": "x", "s3Url": evil.url}, secret="keys"))
    config = tmp_path / "reprieve.yaml"
    config.write_text(yaml.safe_dump({**HEAD, "cloud": {"endpoints": [evil.url]}}))
    target = ["--kubeconfig", kubeconfig(api, tmp_path), "--config", str(config)]
    for status in (200, 403, 500):
        evil.give = lambda _, status=status: Answer(status, ROLE_CREDENTIALS, {"ETag": '"x"', "Last-Modified": AT})
        _, told = scene.run()
        assert ROLE not in told
        assert "a body that is not the provider's" in told or status == 200
        for command in (["plan", "-o", "json"], ["plan"], ["audit"], ["backup", "describe", "store"]):
            run([*command, *target])
        shown = capfd.readouterr()
        assert ROLE not in shown.out + shown.err
    assert scene.names() == {"store"}
    assert scene.names("DeleteBackupRequest") == {"store-1"}


# Names that resolve to what no location may name


@pytest.mark.parametrize(
    ("entry", "address", "reached"),
    [
        pytest.param("http://store.a.example", "127.0.0.1", True, id="an-entry-of-its-own-may-mean-a-private-address"),
        pytest.param("http://*.a.example", "127.0.0.1", False, id="a-whole-domain-may-not-mean-loopback"),
        pytest.param("http://store.a.example", "169.254.169.254", False, id="metadata"),
        pytest.param("http://store.a.example", "::ffff:169.254.169.254", False, id="metadata-mapped"),
        pytest.param("http://store.a.example", "fd00:ec2::254", False, id="metadata-ipv6"),
        pytest.param("http://store.a.example", "0.0.0.0", False, id="unspecified"),
    ],
)
def test_a_name_does_not_lead_to_an_internal_address(evil, monkeypatch, entry, address, reached):
    """A name that is allowed resolved to the metadata service: what is connected to is what was looked at."""
    port = evil.url.rpartition(":")[2]
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *a, **k: real(address if host == "store.a.example" else host, *a, **k)
    )
    policy = EndpointPolicy([read_pattern(f"{entry}:{port}")])
    config = {"region": "x", "s3Url": f"http://store.a.example:{port}", "s3ForcePathStyle": "true"}
    said = came_to(WORK["read"], CloudObjectStores(policy=policy).open(location("aws", config), credential=KEY_FILE))
    assert bool(evil.requests) is reached
    assert ("which no location may reach" in said) is not reached


# The gate


def asked(passage_url, target):
    """What the gate says to whoever asks it for a target, with that address of it."""
    user, _, host = passage_url.removeprefix("http://").rpartition("@")
    connection = HTTPConnection(host, timeout=PATIENCE)
    headers = {"Proxy-Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if user else {}
    connection.request("GET", target, headers=headers)
    answer = connection.getresponse()
    said = (answer.status, answer.read())
    connection.close()
    return said


def test_nobody_else_on_the_machine_gets_through_the_gate(evil, metadata):
    """A proxy on loopback is everybody's on the machine: without a passage for the very place, it is shut."""
    passage = egress.Passage(read_url(evil.url).authority, Standing.LISTED)
    url = egress.gate().url(passage)
    host = url.rpartition("@")[2]
    own, _, _ = url.rpartition(":")
    forged = egress.Gate().url(passage).rpartition("@")[0]
    assert asked(url, f"{evil.url}/fine")[0] == 200
    for address, target in (
        (f"http://{host}", f"{metadata.url}/x"),
        (f"http://a:b@{host}", f"{metadata.url}/x"),
        (f"{forged}@{host}", f"{evil.url}/x"),
        (url, f"{metadata.url}/x"),
        (url, f"{evil.url}@{metadata.url.removeprefix('http://')}/x"),
        (url, f"{evil.url}.evil.example/x"),
        (url, "/x"),
    ):
        status, body = asked(address, target)
        assert (status, b"RedirectRefused" in body) == (421, True), target
    assert own
    assert [request.path for request in evil.requests] == ["/fine"]
    assert metadata.requests == []


def test_a_refusal_is_an_error_of_its_own_and_says_what_is_missing():
    """What cannot be asked is never taken for what is not there."""
    with pytest.raises(PlaceRefusedError) as caught:
        CloudObjectStores().open(location("aws", {"region": "x", "s3Url": "https://minio.example"}))
    assert caught.value.endpoints == ("https://bucket.minio.example",)
