"""Where locations may point, and with whose identity: one reading of an address, closed lists, the operator's word."""

import pytest

from reprieve.adapters.cloud.endpoints import (
    EndpointPolicy,
    Place,
    PlaceRefusedError,
    Standing,
    admit,
    aws_domain,
    may_connect,
    read_pattern,
    read_url,
)
from reprieve.core.errors import InvalidError


def authority(url):
    return read_url(url).authority


def policy(*endpoints, pods=(), **more):
    return EndpointPolicy([*map(read_pattern, endpoints)], [*map(read_pattern, pods)], **more)


def place(url, provider="aws", **more):
    return Place("storage location x", provider, authority(url), **more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("https://MinIO.Velero.svc:9000/", "https://minio.velero.svc:9000", id="case-and-slash"),
        pytest.param("HTTP://a", "http://a", id="scheme-in-capitals"),
        pytest.param("https://a:443/x/y/", "https://a/x/y", id="the-scheme-s-own-port"),
        pytest.param("http://a:443", "http://a:443", id="another-scheme-s-port"),
        pytest.param("http://[::1]:9000", "http://[::1]:9000", id="ipv6"),
        pytest.param("http://[0:0:0:0:0:0:0:1]", "http://[::1]", id="ipv6-in-one-form"),
        pytest.param("http://10.0.0.1", "http://10.0.0.1", id="ipv4"),
        pytest.param("https://my_minio", "https://my_minio", id="underscore"),
    ],
)
def test_an_address_has_one_form(text, expected):
    assert str(read_url(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a:9000",
        "//a",
        "ftp://a",
        "https://",
        "https://:443",
        "https://a:",
        "https://a:0",
        "https://a:65536",
        "https://a:٤٤٣",
        "https://u@a",
        "https://u:p@a",
        "https://a@b",
        "https://a\\@b",
        "https://a\\b",
        "https://a?b",
        "https://a#b",
        "https://a/%2e%2e",
        "https://a//b",
        "https://a.",
        "https://.a",
        "https://a..b",
        "https://-a",
        "https://a-",
        "https://*.a.b",
        "https://a b",
        "https://a\nb",
        "https://a\n",
        " https://a",
        "https://a\t",
        "https://ä.example",
        "https://\uff41.example",
        "https://\u212a.example",
        "https://a/../b",
        "https://a/.",
        "https://2130706433",
        "https://0x7f000001",
        "https://0x7f.0.0.1",
        "https://0177.0.0.1",
        "https://127.1",
        "https://1.2.3.4.5",
        "https://1.2.3.256",
        "https://a.1",
        "https://[::1",
        "https://[fe80::1%25eth0]",
        "https://[::g]",
        "https://[1.2.3.4]",
        "https://" + "a" * 300,
    ],
)
def test_what_two_readers_could_take_for_two_hosts_is_no_address(text):
    with pytest.raises(InvalidError):
        read_url(text)


@pytest.mark.parametrize(
    ("entry", "url", "fits"),
    [
        pytest.param("https://minio.velero.svc:9000", "https://minio.velero.svc:9000/x", True, id="itself"),
        pytest.param("https://a.b", "https://a.b:443", True, id="the-default-port-written"),
        pytest.param("https://a.b", "https://a.b:8443", False, id="another-port"),
        pytest.param("https://a.b", "http://a.b", False, id="another-scheme"),
        pytest.param("https://a.b", "https://c.a.b", False, id="a-name-below"),
        pytest.param("https://*.a.b", "https://c.a.b", True, id="below"),
        pytest.param("https://*.a.b", "https://d.c.a.b", True, id="far-below"),
        pytest.param("https://*.a.b", "https://a.b", False, id="not-the-domain-itself"),
        pytest.param("https://*.a.b", "https://xa.b", False, id="a-name-that-ends-alike"),
        pytest.param("https://*.a.b", "http://c.a.b", False, id="below-with-another-scheme"),
        pytest.param("https://*.a.b:9000", "https://c.a.b:9000", True, id="below-with-a-port"),
        pytest.param("http://[::1]:9000", "http://[0::1]:9000", True, id="ipv6-in-another-form"),
        pytest.param("http://10.0.0.1", "http://10.0.0.2", False, id="another-address"),
    ],
)
def test_an_entry_means_scheme_host_and_port(entry, url, fits):
    assert read_pattern(entry).fits(authority(url)) is fits
    assert read_pattern(str(read_pattern(entry))) == read_pattern(entry)


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        pytest.param("minio:9000", "is allowed", id="no-scheme"),
        pytest.param("*", "is allowed", id="everything"),
        pytest.param("https://*", "is allowed", id="every-host"),
        pytest.param("https://*.com", "two labels", id="a-whole-top-level-domain"),
        pytest.param("https://*.1.2.3.4", "two labels", id="below-an-address"),
        pytest.param("https://a.*.b", "is allowed", id="a-star-inside"),
        pytest.param("https://a/b", "path", id="a-path"),
        pytest.param("http://169.254.169.254", "metadata", id="metadata"),
        pytest.param("http://[fd00:ec2::254]", "metadata", id="metadata-by-ipv6"),
        pytest.param("http://[::ffff:169.254.169.254]", "metadata", id="metadata-mapped"),
    ],
)
def test_an_entry_that_means_too_much_or_nothing_is_refused(entry, match):
    with pytest.raises(InvalidError, match=match):
        read_pattern(entry)


@pytest.mark.parametrize(
    ("provider", "host"),
    [
        *(
            pytest.param("aws", host, id=host)
            for host in (
                "s3.amazonaws.com",
                "backups.s3.amazonaws.com",
                "s3.eu-west-1.amazonaws.com",
                "backups.s3.eu-west-1.amazonaws.com",
                "s3-us-west-2.amazonaws.com",
                "backups.s3-us-west-2.amazonaws.com",
                "s3.dualstack.us-east-1.amazonaws.com",
                "s3-fips.us-gov-west-1.amazonaws.com",
                "backups.s3-fips.dualstack.us-east-1.amazonaws.com",
                "backups.s3-accelerate.amazonaws.com",
                "s3.cn-north-1.amazonaws.com.cn",
                "s3.us-iso-east-1.c2s.ic.gov",
                "velero-123456789012.s3-accesspoint.eu-west-1.amazonaws.com",
            )
        ),
        *(
            pytest.param("gcp", host, id=host)
            for host in (
                "storage.googleapis.com",
                "backups.storage.googleapis.com",
                "storage.europe-west3.rep.googleapis.com",
                "storage-xyz.p.googleapis.com",
            )
        ),
        *(
            pytest.param("azure", host, id=host)
            for host in (
                "velero.blob.core.windows.net",
                "velero-secondary.blob.core.windows.net",
                "velero.blob.core.usgovcloudapi.net",
                "velero.blob.core.chinacloudapi.cn",
                "velero.z12.blob.storage.azure.net",
            )
        ),
    ],
)
def test_a_provider_s_own_host_needs_no_permission_over_https(provider, host):
    assert admit(place(f"https://{host}", provider, as_pod=True, bearer=True), policy()) is Standing.OWN
    for other in (f"http://{host}", f"https://{host}:8443"):
        with pytest.raises(PlaceRefusedError):
            admit(place(other, provider), policy())


@pytest.mark.parametrize(
    ("provider", "host"),
    [
        pytest.param("aws", "amazonaws.com.evil.example", id="the-domain-inside"),
        pytest.param("aws", "s3.amazonaws.com.evil.example", id="the-host-inside"),
        pytest.param("aws", "evil-s3.amazonaws.com", id="a-host-that-ends-alike"),
        pytest.param("aws", "xs3.eu-west-1.amazonaws.com", id="a-label-that-ends-alike"),
        pytest.param("aws", "ec2-203-0-113-1.compute-1.amazonaws.com", id="a-customer-s-machine"),
        pytest.param("aws", "evil-1234.eu-west-1.elb.amazonaws.com", id="a-customer-s-load-balancer"),
        pytest.param("aws", "x.execute-api.eu-west-1.amazonaws.com", id="a-customer-s-api"),
        pytest.param("aws", "b.vpce-1.s3.eu-west-1.vpce.amazonaws.com", id="a-private-endpoint-of-anybody"),
        pytest.param("aws", "s3-website-eu-west-1.amazonaws.com", id="a-web-site"),
        pytest.param("aws", "storage.googleapis.com", id="another-provider-s"),
        pytest.param("gcp", "evil.appspot.com", id="an-app"),
        pytest.param("gcp", "storage.googleapis.com.evil.example", id="google-s-inside"),
        pytest.param("gcp", "storage.evil.example", id="another-universe"),
        pytest.param("azure", "evil.example", id="no-azure"),
        pytest.param("azure", "velero.blob.core.windows.net.evil.example", id="azure-s-inside"),
        pytest.param("azure", "evil.cloudapp.azure.com", id="a-virtual-machine"),
        pytest.param("azure", "velero.z6.web.core.windows.net", id="azure-web-site"),
        pytest.param("other", "s3.amazonaws.com", id="no-provider"),
    ],
)
def test_no_other_host_is_a_provider_s_own(provider, host):
    with pytest.raises(PlaceRefusedError, match=r"cloud: \{endpoints"):
        admit(place(f"https://{host}", provider), policy())


MINIO = "http://minio.velero.svc:9000"


def test_a_refusal_prints_the_line_that_allows_it():
    """The line is valid configuration, and with it the place is allowed."""
    with pytest.raises(PlaceRefusedError) as caught:
        admit(place(MINIO, as_pod=True), policy("https://old.example", section={"providers": ["aws"]}))
    said = str(caught.value)
    line = (
        'cloud: {providers: ["aws"], endpoints: ["https://old.example", "http://minio.velero.svc:9000"], '
        'podIdentity: ["http://minio.velero.svc:9000"]}'
    )
    assert said.startswith("storage location x: ")
    assert line in said
    assert (caught.value.endpoints, caught.value.pod_identity) == ((MINIO,), (MINIO,))
    allowed = policy("https://old.example", *caught.value.endpoints, pods=caught.value.pod_identity)
    assert admit(place(MINIO, as_pod=True), allowed) is Standing.LISTED


def test_an_allowed_endpoint_gets_the_pod_s_identity_only_where_it_is_named():
    with pytest.raises(PlaceRefusedError, match="names no Secret") as caught:
        admit(place(MINIO, as_pod=True), policy(MINIO))
    assert (caught.value.endpoints, caught.value.pod_identity) == ((), (MINIO,))
    assert admit(place(MINIO), policy(MINIO)) is Standing.LISTED


def test_being_named_for_the_identity_alone_allows_nothing():
    with pytest.raises(PlaceRefusedError) as caught:
        admit(place(MINIO, as_pod=True), policy(pods=[MINIO]))
    assert caught.value.endpoints == (MINIO,)


def test_what_the_environment_says_is_the_operator_s():
    assert admit(place(MINIO, operators=True, as_pod=True), policy()) is Standing.LISTED


def test_a_bearer_token_goes_out_over_https_only():
    for allowed in (policy(MINIO, pods=[MINIO]), policy()):
        with pytest.raises(InvalidError, match="https only") as caught:
            admit(place(MINIO, "gcp", bearer=True), allowed)
        assert not isinstance(caught.value, PlaceRefusedError)
    assert admit(place(MINIO, "gcp", bearer=True), policy(MINIO, bearer_over_http=True)) is Standing.LISTED


def test_a_name_below_a_domain_is_allowed_as_such():
    assert admit(place("https://a.b.c"), policy("https://*.b.c")) is Standing.BELOW
    assert admit(place("https://a.b.c"), policy("https://*.b.c", "https://a.b.c")) is Standing.LISTED


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254",
        "http://169.254.170.2",
        "http://[fd00:ec2::254]",
        "http://[::ffff:169.254.169.254]",
        "http://[64:ff9b::a9fe:a9fe]",
        "http://[2002:a9fe:a9fe::]",
        "http://[fe80::a9fe:a9fe]",
        "http://168.63.129.16",
        "http://0.0.0.0",
        "http://[::]",
    ],
)
def test_nobody_s_word_leads_to_a_metadata_service(url, operators):
    with pytest.raises(InvalidError, match="no location may name") as caught:
        admit(place(url, operators=operators), policy())
    assert not isinstance(caught.value, PlaceRefusedError)


ALLOWED = (Standing.OWN, Standing.LISTED, Standing.BELOW)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param("203.0.113.7", ALLOWED, id="public"),
        pytest.param("10.1.2.3", ALLOWED, id="private-as-a-cluster-s-service"),
        pytest.param("fd12:3456::1", ALLOWED, id="private-ipv6"),
        pytest.param("127.0.0.1", (Standing.LISTED,), id="loopback"),
        pytest.param("127.8.8.8", (Standing.LISTED,), id="more-loopback"),
        pytest.param("::1", (Standing.LISTED,), id="loopback-ipv6"),
        pytest.param("::ffff:127.0.0.1", (Standing.LISTED,), id="loopback-mapped"),
        pytest.param("64:ff9b::7f00:1", (Standing.LISTED,), id="loopback-translated"),
        pytest.param("169.254.169.254", (), id="metadata"),
        pytest.param("fe80::1%eth0", (), id="link-local"),
        pytest.param("::ffff:169.254.169.254", (), id="metadata-mapped"),
        pytest.param("::169.254.169.254", (), id="metadata-compatible"),
        pytest.param("64:ff9b::a9fe:a9fe", (), id="metadata-translated"),
        pytest.param("2001:0:a9fe:a9fe::1", (), id="metadata-in-a-tunnel"),
        pytest.param("fd00:ec2::254", (), id="metadata-ipv6"),
        pytest.param("100.100.100.200", (), id="another-cloud-s-metadata"),
        pytest.param("0.0.0.0", (), id="unspecified"),
        pytest.param("224.0.0.1", (), id="multicast"),
        pytest.param("nonsense", (), id="no-address"),
    ],
)
def test_what_a_name_resolves_to_is_looked_at_too(address, expected):
    assert tuple(each for each in Standing if may_connect(address, each)) == expected


def test_a_region_s_partition_has_its_own_domain():
    regions = ("eu-west-1", "us-gov-west-1", "cn-north-1", "us-isob-east-1", "us-iso-east-1", "eusc-de-east-1")
    assert [aws_domain(region) for region in regions] == [
        "amazonaws.com",
        "amazonaws.com",
        "amazonaws.com.cn",
        "sc2s.sgov.gov",
        "c2s.ic.gov",
        "amazonaws.eu",
    ]
