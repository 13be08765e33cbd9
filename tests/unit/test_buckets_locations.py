"""Storage locations as Velero writes them: what is honoured, what is refused, and with which words."""

import base64

import pytest
from attrs import evolve

from reprieve.adapters.cloud import buckets_locations as locations
from reprieve.adapters.cloud.buckets_locations import Endpoint
from reprieve.adapters.cloud.endpoints import read_url
from reprieve.core.backups import StorageLocation
from reprieve.core.errors import InvalidError

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def at(url, *, path_style=False, operators=False):
    return Endpoint(read_url(url), path_style=path_style, operators=operators)


def location(bucket="backups", *, prefix="", ca_cert="", **config):
    return StorageLocation("default", provider="aws", bucket=bucket, prefix=prefix, ca_cert=ca_cert, config=config)


@pytest.mark.parametrize(
    ("bucket", "config", "environ", "expected"),
    [
        pytest.param("backups", {}, {}, at("https://backups.s3.us-east-1.amazonaws.com"), id="aws-itself"),
        pytest.param(
            "a.b", {}, {}, at("https://s3.us-east-1.amazonaws.com", path_style=True), id="a-dot-fits-no-certificate"
        ),
        pytest.param(
            "Old_Bucket",
            {},
            {},
            at("https://s3.us-east-1.amazonaws.com", path_style=True),
            id="what-is-no-part-of-a-host-stands-in-the-path",
        ),
        pytest.param(
            "backups",
            {"s3Url": "http://minio:9000/", "s3ForcePathStyle": "true"},
            {},
            at("http://minio:9000", path_style=True),
            id="path-style",
        ),
        pytest.param(
            "backups",
            {"s3Url": "https://s3.example:8443"},
            {},
            at("https://backups.s3.example:8443"),
            id="host-style",
        ),
        pytest.param(
            "backups",
            {"s3Url": "http://127.0.0.1:9000"},
            {},
            at("http://127.0.0.1:9000", path_style=True),
            id="an-address-has-no-subdomain",
        ),
        pytest.param(
            "backups",
            {"s3Url": "https://own.example", "s3ForcePathStyle": "1"},
            {"AWS_ENDPOINT_URL_S3": "https://other.example"},
            at("https://own.example", path_style=True),
            id="the-location-wins-over-the-environment",
        ),
        pytest.param(
            "backups",
            {"s3ForcePathStyle": "true"},
            {"AWS_ENDPOINT_URL": "https://all.example", "AWS_ENDPOINT_URL_S3": "https://s3.example"},
            at("https://s3.example", path_style=True, operators=True),
            id="the-environment-s-own-for-s3",
        ),
        pytest.param(
            "backups",
            {"region": "cn-north-1"},
            {},
            at("https://backups.s3.cn-north-1.amazonaws.com.cn"),
            id="china",
        ),
        pytest.param(
            "arn:aws:s3:eu-west-1:123456789012:accesspoint/velero",
            {},
            {},
            at("https://velero-123456789012.s3-accesspoint.eu-west-1.amazonaws.com"),
            id="access-point",
        ),
    ],
)
def test_where_s3_is_asked(bucket, config, environ, expected):
    given = location(bucket, **config)
    assert locations.s3_endpoint(given, region=config.get("region", "us-east-1"), environ=environ) == expected


@pytest.mark.parametrize(
    "url", ["minio:9000", "ftp://a", "https://", "http://a:port", "http://[::1", "https://u:p@a", "https://a?b"]
)
def test_a_url_that_cannot_be_used_is_named(url):
    with pytest.raises(InvalidError, match=r"storage location default: spec\.config\.s3Url"):
        locations.s3_endpoint(location(s3Url=url), region="us-east-1", environ={})


def test_only_the_url_itself_allows_plain_http():
    assert at("http://a").plain_http
    assert not at("https://a").plain_http


@pytest.mark.parametrize(
    ("bucket", "match"),
    [
        pytest.param("", "bucket is missing", id="none"),
        pytest.param("a/b", "must not hold a slash", id="slash"),
    ],
)
def test_buckets_that_velero_refuses_are_refused(bucket, match):
    with pytest.raises(InvalidError, match=match):
        locations.check_location(location(bucket))


@pytest.mark.parametrize(
    ("provider", "bucket"),
    [
        ("aws", "a?b"),
        ("aws", "a#b"),
        ("aws", "a@b"),
        ("aws", "a:b"),
        ("aws", "a%2fb"),
        ("aws", "a\\b"),
        ("aws", "a\nb"),
        ("aws", "a\n"),
        ("aws", "ä"),
        ("aws", "-a"),
        ("aws", ".."),
        ("gcp", "a b"),
        ("gcp", "arn:aws:s3:eu-west-1:123456789012:accesspoint"),
        ("azure", "a.b"),
        ("azure", "A"),
    ],
)
def test_a_bucket_is_a_name_and_no_part_of_a_url(provider, bucket):
    with pytest.raises(InvalidError, match="is no name of a bucket"):
        locations.check_location(evolve(location(bucket), provider=provider))


@pytest.mark.parametrize("bucket", ["$root", "a-b"])
def test_containers_that_azure_has(bucket):
    assert locations.check_location(evolve(location(bucket), provider="azure"))


@pytest.mark.parametrize(
    "region", ["evil.example/x?", "evil.example#", "a@b", "", "eu-west-1\n", "eu west", "ü-1", "x"]
)
def test_a_region_that_aws_cannot_have_is_put_into_no_host(region):
    with pytest.raises(InvalidError, match="is no region of AWS"):
        locations.s3_endpoint(location(), region=region, environ={})


@pytest.mark.parametrize(
    ("region", "fine"), [("minio", True), ("us-west-002", True), ("a/b", False), ("a\r\nb", False)]
)
def test_another_store_s_region_is_a_plain_word(region, fine):
    given = location(s3Url="https://s3.example")
    if fine:
        assert locations.s3_endpoint(given, region=region, environ={})
        return
    with pytest.raises(InvalidError, match="is no name of a region"):
        locations.s3_endpoint(given, region=region, environ={})


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:s3:evil.example:123456789012:accesspoint/a-b-c",
        "arn:aws:s3:eu-west-1:123456789012:accesspoint/a.evil",
        "arn:aws:s3:eu-west-1:١٢٣٤٥٦٧٨٩٠١٢:accesspoint/abc",
        "arn:aws:s3:eu-west-1:123456789012:accesspoint/abc\n",
    ],
)
def test_no_part_of_an_arn_leads_elsewhere(arn):
    with pytest.raises(InvalidError, match="accesspoint"):
        locations.s3_endpoint(location(arn), region="us-east-1", environ={})


@pytest.mark.parametrize("domain", ["evil.example/x", "evil.example:1", "a@evil.example", "evil", "a..b", "ü.example"])
def test_a_universe_is_a_domain(domain):
    with pytest.raises(InvalidError, match="universeDomain"):
        locations.gcs_endpoint(location(universeDomain=domain))


def test_an_arn_may_hold_a_slash():
    assert locations.check_location(location("arn:aws:s3:eu-west-1:123456789012:accesspoint/a"))


def test_other_arns_say_which_can_be_used():
    with pytest.raises(InvalidError, match="accesspoint"):
        locations.s3_endpoint(location("arn:aws:s3:::bucket/x"), region="us-east-1", environ={})


@pytest.mark.parametrize(("given", "expected"), [("", ""), ("/", ""), ("a", "a"), ("/a/b/", "a/b"), ("//a//", "a")])
def test_a_prefix_is_trimmed(given, expected):
    assert locations.prefix_of(location(prefix=given)) == expected


@pytest.mark.parametrize("prefix", ["a//b", "..", "a/../b", "a\x00"])
def test_a_prefix_below_which_nothing_could_be_asked_for_is_named(prefix):
    with pytest.raises(InvalidError, match=r"spec\.objectStorage\.prefix"):
        locations.prefix_of(location(prefix=prefix))


@pytest.mark.parametrize(
    ("value", "expected"), [("", False), ("true", True), ("1", True), ("T", True), ("false", False), ("0", False)]
)
def test_truth_values_are_go_s(value, expected):
    assert locations.flag(location(s3ForcePathStyle=value), "s3ForcePathStyle") is expected


def test_no_truth_value_is_guessed():
    with pytest.raises(InvalidError, match=r"insecureSkipTLSVerify is 'yes'"):
        locations.flag(location(insecureSkipTLSVerify="yes"), "insecureSkipTLSVerify")


@pytest.mark.parametrize(
    "given", [PEM, base64.b64encode(PEM.encode()).decode(), f" {PEM}"], ids=["pem", "base64", "spaces"]
)
def test_a_certificate_is_read_in_both_forms(given):
    assert locations.ca_certificate(location(ca_cert=given)).strip() == PEM.strip()


@pytest.mark.parametrize("given", ["nonsense", "bm90aGluZw==", "ä"])
def test_what_is_no_certificate_is_named(given):
    with pytest.raises(InvalidError, match="caCert"):
        locations.ca_certificate(location(ca_cert=given))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"serverSideEncryption": "AES256"}, {"server_side_encryption": "AES256"}, id="s3-s-own"),
        pytest.param(
            {"kmsKeyId": "alias/k"}, {"server_side_encryption": "aws:kms", "sse_kms_key_id": "alias/k"}, id="kms"
        ),
        pytest.param({"serverSideEncryption": "something-new"}, {}, id="unknown-is-tolerated"),
        pytest.param(
            {"checksumAlgorithm": "CRC32", "publicUrl": "x", "signatureVersion": "1", "new": "1"}, {}, id="others"
        ),
    ],
)
def test_encryption_is_for_what_is_written(config, expected):
    assert locations.s3_encryption(location(**config)) == expected


def test_a_customer_s_own_key_is_refused_before_anything_is_read():
    with pytest.raises(InvalidError, match="customerKeyEncryptionFile"):
        locations.s3_encryption(location(customerKeyEncryptionFile="/credentials/key"))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, "https://storage.googleapis.com", id="google"),
        pytest.param({"universeDomain": "googleapis.com"}, "https://storage.googleapis.com", id="the-default-universe"),
        pytest.param({"universeDomain": "u.example"}, "https://storage.u.example", id="another-universe"),
        pytest.param({"storeEndpointURI": "https://p.example/storage/v1/"}, "https://p.example", id="json-api-s-path"),
    ],
)
def test_where_gcs_is_asked(config, expected):
    assert str(locations.gcs_endpoint(location(**config)).url) == expected


@pytest.mark.parametrize(
    ("config", "cloud", "expected"),
    [
        pytest.param({}, "", "https://velero.blob.core.windows.net", id="public"),
        pytest.param({}, "AzureUSGovernmentCloud", "https://velero.blob.core.usgovcloudapi.net", id="government"),
        pytest.param({}, "azurechinacloud", "https://velero.blob.core.chinacloudapi.cn", id="china-in-any-case"),
        pytest.param(
            {"storageAccountURI": "velero.example"}, "", "https://velero.example", id="as-velero-s-sample-writes-it"
        ),
        pytest.param(
            {"storageAccountURI": "http://127.0.0.1:1/velero"}, "", "http://127.0.0.1:1/velero", id="with-a-path"
        ),
    ],
)
def test_where_azure_is_asked(config, cloud, expected):
    given = location(**config)
    host = locations.azure_host(given, cloud)
    assert str(locations.azure_endpoint(given, account="velero", host=host).url) == expected


@pytest.mark.parametrize("account", ["", "Velero", "ve", "a/b", "x" * 25])
def test_what_is_no_storage_account_is_named(account):
    with pytest.raises(InvalidError, match="storageAccount"):
        locations.azure_account(location(storageAccount=account))


def test_an_unknown_cloud_says_which_there_are():
    with pytest.raises(InvalidError, match="AzurePublicCloud"):
        locations.azure_host(location(), "AzureMoonCloud")
