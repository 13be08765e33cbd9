"""The configuration: every wrong key and value is named with its path and what is allowed."""

from datetime import timedelta

import pytest

from reprieve.core.objects import ObjectKind
from reprieve.entrypoints.configuration import (
    ArkPlace,
    BackupSettings,
    BackupsOff,
    ConfigurationError,
    load_configuration,
    read_configuration,
)

HEAD = {"apiVersion": "reprieve.dev/v1alpha1", "kind": "Configuration"}


def deletion(**settings):
    """A configuration with these settings of the deletion."""
    return {**HEAD, "backups": {"deletion": settings}}


def sync(**settings):
    """A configuration with these settings of sync."""
    return {**HEAD, "backups": {"sync": settings}}


ENTRY = {"owner": "example.com/v1/Database", "dependents": ["v1/Secret"], "onRequest": "Delete", "otherwise": "Orphan"}


def test_an_empty_configuration_has_the_documented_defaults():
    """Absent sections and keys have the values that the design shows; protection has no default entries."""
    read = read_configuration(HEAD)
    assert read.backups == BackupSettings()
    assert read.protection == ()
    assert (read.providers, read.untagged) == (None, frozenset())
    assert (read.endpoints.endpoints, read.endpoints.pod_identity) == ((), ())
    backups = read.backups
    assert (backups.namespace, backups.dialect) == ("velero", "velero")
    assert (backups.deletion.workers, backups.deletion.snapshot_parallelism) == (4, 32)
    assert (backups.deletion.limits.attempts, backups.deletion.limits.deadline) == (5, timedelta(hours=1))
    assert backups.deletion.request_max_age == timedelta(hours=24)
    assert (backups.retention.keep_last, backups.retention.max_requests) == (1, 50)
    assert backups.retention.grace_after_sync == timedelta(hours=24)
    assert (backups.sync.interval, backups.sync.max_removals) == (timedelta(minutes=1), "20%")


def test_every_value_that_is_written_counts():
    """A full file comes back as written."""
    read = read_configuration(
        {
            **HEAD,
            "backups": {
                "namespace": "backup",
                "dialect": "ark",
                "ark": {"bucket": "b", "provider": "aws"},
                "deletion": {
                    "workers": 2,
                    "snapshotParallelism": 8,
                    "attempts": 3,
                    "deadline": "30m",
                    "requestMaxAge": "1h30m",
                },
                "retention": {"interval": "2h", "keepLast": 0, "graceAfterSync": 0, "maxRequests": 7},
                "sync": {"interval": "0s", "maxRemovals": 3},
            },
            "protection": [ENTRY | {"allowDeleteByAnnotation": True, "maxPruned": 5, "shield": {"namespaces": True}}],
            "cloud": {
                "providers": ["aws"],
                "endpoints": ["http://minio:9000", "https://*.ceph.example.com"],
                "podIdentity": ["http://minio:9000"],
                "aws": {"requireTags": False},
                "gcp": {"requireTags": True},
            },
        }
    )
    assert read.backups.ark == ArkPlace("b", "aws")
    assert read.backups.deletion.limits.deadline == timedelta(minutes=30)
    assert read.backups.deletion.request_max_age == timedelta(minutes=90)
    assert (read.backups.retention.keep_last, read.backups.retention.grace_after_sync) == (0, timedelta(0))
    assert (read.backups.sync.interval, read.backups.sync.max_removals) == (timedelta(0), "3")
    entry = read.protection[0]
    assert (entry.owner, entry.dependents) == (
        ObjectKind("example.com/v1", "Database"),
        (ObjectKind("v1", "Secret"),),
    )
    assert (entry.allow_delete_by_annotation, entry.max_pruned) == (True, "5")
    assert (entry.shield.collector, entry.shield.namespaces) == (True, True)
    assert (read.providers, read.untagged) == (("aws",), {"aws"})
    assert [*map(str, read.endpoints.endpoints)] == ["http://minio:9000", "https://*.ceph.example.com"]
    assert [*map(str, read.endpoints.pod_identity)] == ["http://minio:9000"]


def test_backups_can_be_switched_off():
    """``backups: false`` is no settings, not the default ones."""
    assert read_configuration({**HEAD, "backups": False}).backups == BackupsOff()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(None, ["the document", "must be object", "NoneType"], id="empty-file"),
        pytest.param([], ["the document", "must be object"], id="a-list"),
        pytest.param({"kind": "Configuration"}, ["'apiVersion' is missing"], id="no-api-version"),
        pytest.param({**HEAD, "apiVersion": "v2"}, ["apiVersion", "reprieve.dev/v1alpha1"], id="another-version"),
        pytest.param({**HEAD, "backup": {}}, ["unknown key backup", "allowed are", "backups"], id="unknown-key"),
        pytest.param({**HEAD, 3: {}}, ["unknown key 3"], id="a-number-for-a-key"),
        pytest.param({**HEAD, "backups": True}, ["backups", "write False"], id="backups-true"),
        pytest.param(
            {**HEAD, "cloud": {"endpoints": ["https://a", "minio:9000"]}},
            ["cloud.endpoints[1]", "'minio:9000'", "http(s)://host[:port]"],
            id="no-endpoint",
        ),
        pytest.param(
            {**HEAD, "cloud": {"podIdentity": ["http://169.254.169.254"]}},
            ["cloud.podIdentity[0]", "no location may name"],
            id="metadata-service",
        ),
        pytest.param({**HEAD, "cloud": {"endpoints": [1]}}, ["cloud.endpoints[0]", "string"], id="a-number"),
        pytest.param(deletion(attempts=0), ["backups.deletion.attempts"], id="zero-attempts"),
        pytest.param(deletion(attempts=True), ["backups.deletion.attempts", "integer"], id="bool-number"),
        pytest.param(deletion(deadline="soon"), ["deadline", "such as 1h"], id="no-duration"),
        pytest.param(deletion(deadline="0"), ["deadline", "above zero"], id="no-deadline"),
        pytest.param(sync(maxRemovals="120%"), ["maxRemovals", "100%"], id="over-all"),
        pytest.param(sync(maxRemovals=0), ["maxRemovals"], id="no-removals"),
        pytest.param(
            {**HEAD, "backups": {"dialect": "ark"}}, ["backups.ark", "bucket", "provider"], id="ark-without-place"
        ),
        pytest.param(
            {**HEAD, "protection": [{k: v for k, v in ENTRY.items() if k != "otherwise"}]},
            ["protection[0]", "'otherwise' is missing"],
            id="a-verb-is-missing",
        ),
        pytest.param(
            {**HEAD, "protection": [ENTRY | {"onRequest": "delete"}]}, ["onRequest", "'Delete'"], id="wrong-verb"
        ),
        pytest.param(
            {**HEAD, "protection": [ENTRY | {"owner": "Database"}]}, ["owner", "group/version/Kind"], id="no-kind"
        ),
        pytest.param(
            {**HEAD, "protection": [{k: v for k, v in ENTRY.items() if k != "dependents"}]},
            ["protection[0]", "dialect: faros", "dependents"],
            id="no-way-to-find-dependents",
        ),
        pytest.param({**HEAD, "protection": [ENTRY, ENTRY]}, ["2 entries", "Database"], id="an-owner-twice"),
        pytest.param(
            {**HEAD, "cloud": {"aws": {"requireTags": "no"}}}, ["cloud.aws.requireTags", "boolean"], id="tags-a-text"
        ),
        pytest.param({**HEAD, "cloud": {"ibm": {"requireTags": False}}}, ["unknown key ibm"], id="a-cloud-unknown"),
        pytest.param({**HEAD, "cloud": {"providers": ["ibm"]}}, ["cloud.providers[0]", "'aws'"], id="unknown-provider"),
    ],
)
def test_what_is_wrong_is_named_with_its_path_and_what_is_allowed(document, said):
    """An error says where and the way out."""
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(document, source="reprieve.yaml")
    assert "reprieve.yaml: " in str(caught.value)
    for part in said:
        assert part in str(caught.value)


def test_every_fault_of_a_file_is_named_at_once():
    """One round of mending is enough."""
    with pytest.raises(ConfigurationError) as caught:
        read_configuration({**HEAD, "x": 1, "backups": {"y": 2}})
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"a: [1", id="broken-yaml"),
        pytest.param(b"\xff\xfe\x00", id="not-text"),
        pytest.param(b"a: !!python/object:os.system {}", id="a-tag-that-would-run-code"),
        pytest.param(b"[" * 5000, id="deep-nesting"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path, content):
    """Whatever the bytes, the error names the file."""
    path = tmp_path / "reprieve.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"reprieve\.yaml"):
        load_configuration(path)
