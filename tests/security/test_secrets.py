"""A Secret runs nothing, has nothing read, and chooses nobody to be asked.

Whoever may write a Secret that a location names had commands run by this process, as root, in ``reprieve plan`` on a
workstation too: a lone carriage return hid them from the check and not from the SDK. Here Secrets are written to a
cluster over HTTP, controllers run and the real command plans; a canary tells whether anything ran, a catcher whether
anybody was asked, and an honest neighbour is served meanwhile.
"""

import json

import pytest
import yaml

from reprieve.entrypoints.cli.root import run
from tests.integration.cloud_http import Answer, Server, closing
from tests.integration.gcp_compute import private_key
from tests.integration.test_cli_wait_http import kubeconfig
from tests.security.at_work import running


@pytest.fixture
def catcher():
    """Somebody who would like to be asked."""
    with closing(Server(lambda _: Answer.of_json({"access_token": "x", "expires_in": 3600}))) as server:
        yield server


def planned(strangers, api, folder, capsys):
    """What ``reprieve plan`` says of each request."""
    config = {
        "apiVersion": "reprieve.dev/v1alpha1",
        "kind": "Configuration",
        "cloud": {"endpoints": [strangers.files.url]},
    }
    (folder / "reprieve.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    options = ["--controllers", "deletion", "-o", "json", "--config", str(folder / "reprieve.yaml")]
    run(["plan", *options, "--kubeconfig", kubeconfig(api, folder)])
    return {each["object"]["name"]: each["message"] for each in json.loads(capsys.readouterr().out)}


def attacked(strangers, api, folder, capsys):
    """Plan, let the controllers run until the honest backup is gone; gives what each of the others was told."""
    before = planned(strangers, api, folder, capsys)
    with running(strangers, "deletion") as cluster:
        assert cluster.until(strangers.served)
    assert {*strangers.names} <= {*strangers.listed("Backup")}
    told = strangers.run()
    assert {*told} == {*strangers.names}
    assert before == told
    return told


# Another reader's ends of lines, and other ways to hide a key from one reader that another one sees.
SEPARATORS = ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r\r\n", "\x00", "\ufeff"]
ROLE = """[default]
role_arn = arn:aws:iam::123456789012:role/velero
source_profile = x
[x]
"""


def commands(canary):
    command = f"credential_process = touch {canary}\n"
    keys = "aws_access_key_id = A\naws_secret_access_key = B\n"
    return [
        *[f"{ROLE}region = us-east-1{mark}{command}" for mark in SEPARATORS],
        f"{ROLE}# a comment\r{command}",
        f"{ROLE}{command}",
        f"{ROLE}  {command}",
        f"{ROLE}CREDENTIAL_PROCESS: touch {canary}\n",
        f"[DEFAULT]\n{command}{ROLE}region = us-east-1\n",
        f"{ROLE}region = us-east-1\n[x ]\n{command}",
        f"{ROLE}{keys}[profile x]\n{command}",
        f"{ROLE}{keys}[other]\n{command}",
        f"[default]\n{command}",
        f"[default]\n{keys}{command}",
        f"{ROLE}{command}".encode("utf-16"),
        f"\ufeff{ROLE}{command}",
        f"{ROLE}credential_process =\n  touch {canary}\n",
        ROLE.replace("source_profile = x", "credential_source = Environment"),
    ]


def test_no_secret_runs_a_command(strangers, api, tmp_path, capsys):
    """A lone carriage return hid ``credential_process`` from the check and not from botocore, which ran it."""
    canary = tmp_path / "it-ran"
    for text in commands(canary):
        strangers.attack("aws", text)
    google = {"type": "external_account", "audience": "a", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt"}
    source = {"executable": {"command": f"touch {canary}", "timeout_millis": 5000}}
    strangers.attack(
        "gcp", json.dumps({**google, "token_url": STS, "credential_source": source}), {"project": "p-123456"}
    )

    told = attacked(strangers, api, tmp_path, capsys)

    assert not canary.exists()
    assert all("credential's Secret" in text for text in told.values())
    assert not any(str(canary) in text for text in told.values())


STS = "https://sts.googleapis.com/v1/token"
TOKEN = "/var/run/secrets/tokens/gcp-ksa/token"
IMPERSONATION = "/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com:generateAccessToken"


def google(url, file):
    """Credentials of Google's that have somebody else asked, or a file read."""
    account = {"type": "service_account", "client_email": "a@b", "private_key": private_key(), "private_key_id": "1"}
    user = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}
    federation = {
        "type": "external_account",
        "audience": "a",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": STS,
        "credential_source": {"file": TOKEN},
    }
    own = {**federation, "credential_source": {"file": file}}
    return [
        {**account, "token_uri": url},
        {**account, "gcs_base_url": url},
        {**account, "universe_domain": url.removeprefix("http://")},
        {**user, "token_uri": url},
        {**federation, "token_url": url},
        {**federation, "token_info_url": url},
        {**federation, "service_account_impersonation_url": url + IMPERSONATION},
        {
            **federation,
            "service_account_impersonation_url": f"https://iamcredentials.googleapis.com@{url}{IMPERSONATION}",
        },
        {**federation, "credential_source": {"url": url, "headers": {"Metadata-Flavor": "Google"}}},
        {**federation, "credential_source": {"file": TOKEN, "url": url}},
        {**federation, "credential_source": {"environment_id": "aws1", "region_url": url, "url": url}},
        {"type": "impersonated_service_account", "service_account_impersonation_url": url, "source_credentials": user},
        {"type": "external_account_authorized_user", "token_url": url, "refresh_token": "a", "client_id": "b"},
        {"type": "gdch_service_account", "token_uri": url},
        own,
        {**own, "token_url": url},
        {**own, "credential_source": {"file": f"/var/run/secrets/../../{file}"}},
    ]


def test_no_secret_of_google_s_has_somebody_asked_or_a_file_read(strangers, api, tmp_path, capsys, catcher):
    """Google's own library warns that it asks whatever address such a document names, with whatever file it names."""
    (tmp_path / "token").write_text("THE-TEXT-OF-A-FILE", encoding="utf-8")
    for document in google(catcher.url, tmp_path / "token"):
        strangers.attack("gcp", json.dumps(document, default=str), {"project": "p-123456"})

    told = attacked(strangers, api, tmp_path, capsys)

    assert catcher.requests == []
    assert all("credential's Secret" in text for text in told.values())
    assert not any("THE-TEXT" in text or private_key()[40:80] in text for text in told.values())


def test_no_secret_of_azure_s_or_aws_s_has_somebody_asked_or_a_file_read(strangers, api, tmp_path, capsys, catcher):
    file = tmp_path / "token"
    file.write_text("THE-TEXT-OF-A-FILE", encoding="utf-8")
    who = "AZURE_TENANT_ID=t\nAZURE_CLIENT_ID=c\n"
    for text in [
        f"{who}AZURE_CLIENT_SECRET=s\nAZURE_AUTHORITY_HOST={catcher.url}\n",
        f"{who}AZURE_CLIENT_SECRET=s\x0bAZURE_AUTHORITY_HOST={catcher.url}\n",
        f"{who}AZURE_CLIENT_CERTIFICATE_PATH={file}\n",
        f"{who}AZURE_FEDERATED_TOKEN_FILE={file}\n",
        f"{who}AZURE_CLIENT_SECRET=s\nAZURE_CLOUD_NAME={catcher.url}\n",
        "AZURE_TENANT_ID=t/../..\nAZURE_CLIENT_ID=c\nAZURE_CLIENT_SECRET=s\n",
    ]:
        strangers.attack("azure", text)
    keys = "aws_access_key_id = A\naws_secret_access_key = B\n"
    for text in [
        f"[default]\n{keys}endpoint_url = {catcher.url}\n",
        f"[default]\n{keys}services = s\n[services s]\nec2 =\n  endpoint_url = {catcher.url}\n",
        f"[default]\nrole_arn = arn:aws:iam::123456789012:role/x\nweb_identity_token_file = {file}\n",
        f"[default]\nsso_start_url = {catcher.url}\nsso_region = us-east-1\nsso_account_id = 1\nsso_role_name = r\n",
    ]:
        strangers.attack("aws", text)

    told = attacked(strangers, api, tmp_path, capsys)

    assert catcher.requests == []
    assert all("credential's Secret" in text or "AZURE_CLOUD_NAME" in text for text in told.values())
    assert not any("THE-TEXT" in text for text in told.values())


def test_a_location_does_not_choose_among_the_profiles_of_this_machine(strangers, api, tmp_path, capsys, monkeypatch):
    """A profile of the operator's own file may run a command, or be another account: no location names it."""
    canary = tmp_path / "it-ran"
    config = tmp_path / "config"
    config.write_text(f"[profile other]\ncredential_process = touch {canary}\nregion = us-east-1\n", encoding="utf-8")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    strangers.attack("aws", "", {"profile": "other"}, credential=False)
    strangers.attack("aws", "[default]\naws_access_key_id = A\naws_secret_access_key = B\n", {"profile": "other"})
    strangers.attack("aws", f"{ROLE}{ROLE}".replace("= x", "= other"))

    told = attacked(strangers, api, tmp_path, capsys)

    assert not canary.exists()
    assert all("Secret" in text for text in told.values())
