"""Sessions of botocore: the pod's own, or who a Secret says to be, by values.

Guarantee: a session for a Secret reads no file and no profile of this machine, and no text of the Secret reaches
botocore. A role is taken on at AWS's own token service, or at the one that ``AWS_ENDPOINT_URL_STS`` of this process
names; whoever may write a Secret or a location chooses neither.
Not guaranteed: that a role may be taken on; the first call tells.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from reprieve.adapters.cloud.known import remember
from reprieve.adapters.cloud.secret_aws import Keys, Profile, Role
from reprieve.adapters.cloud.tables import not_installed
from reprieve.core.errors import InvalidError

if TYPE_CHECKING:
    import boto3
    import botocore.session
    from botocore.config import Config

TIMEOUT = timedelta(seconds=30)
CONNECT_TIMEOUT = timedelta(seconds=10)
CONNECTIONS = 64  # more than the highest sensible snapshotParallelism, so that no worker waits for a connection
SESSION_NAME = "reprieve"

NOTHING_OF_THIS_MACHINE: Mapping[str, Any] = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
"""botocore's variables (key in a file, variable of the environment, default, conversion): no profile, empty files."""


def check_profile(profile: str, *, secret: bool, what: str) -> None:
    """Raise ``InvalidError`` where a location names a profile and no Secret: it would choose among the pod's own."""
    if profile and not secret:
        raise InvalidError(
            f"{what}: spec.config.profile {profile[:128]!r} is a profile of the Secret that spec.credential names, and "
            "it names none: name the Secret, or leave the profile out for the pod's own identity"
        )


def open_session(profile: Profile | None, *, region: str) -> boto3.Session:
    """A session for a profile of a Secret, or with the default chain. Makes no call.

    ``region`` goes before that of the profile, this before the environment's.
    """
    try:
        import boto3
    except ImportError as error:
        raise not_installed("aws") from error

    if profile is None:
        return boto3.Session(botocore_session=_core({}), region_name=region or None)
    core = _core(NOTHING_OF_THIS_MACHINE)
    session = boto3.Session(botocore_session=core, region_name=region or profile.region or None)
    core.register_component("credential_provider", _Given(_credentials(core, profile.identity, session.region_name)))
    return session


def client_config(timeout: timedelta = TIMEOUT, **more: Any) -> Config:
    """How every client of botocore calls: once, with time-outs."""
    from botocore.config import Config

    seconds = timeout.total_seconds()
    return Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=min(seconds, CONNECT_TIMEOUT.total_seconds()),
        read_timeout=seconds,
        max_pool_connections=CONNECTIONS,
        **more,
    )


def _core(variables: Mapping[str, Any]) -> botocore.session.Session:
    """A session of botocore. All share what they read of EC2's model: half a second for every further location."""
    import botocore.session

    core = botocore.session.Session(session_vars=dict(variables))
    core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
    return core


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)


class _Given:
    """The chain of a session whose credentials are known: there is nothing to look for."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def load_credentials(self) -> Any:
        return self._credentials


def _credentials(core: botocore.session.Session, identity: Keys | Role, region: str | None) -> Any:
    """The SDK's credentials of an identity; nothing is called."""
    from botocore import credentials

    match identity:
        case Keys(access_key_id, secret_access_key, token):
            return credentials.Credentials(access_key_id, secret_access_key, token or None, method="reprieve-secret")
        case Role():
            fetcher = credentials.AssumeRoleCredentialFetcher(
                partial(_token_service, core, region),
                _credentials(core, identity.source, region),
                identity.arn,
                extra_args=_assumption(identity),
                cache={},
            )
            return credentials.DeferredRefreshableCredentials(
                refresh_using=partial(_fetched, fetcher), method="assume-role"
            )


def _fetched(fetcher: Any) -> dict[str, Any]:
    found: dict[str, Any] = fetcher.fetch_credentials()
    remember(found.get("secret_key"), found.get("token"), passing=True)
    return found


def _token_service(core: botocore.session.Session, region: str | None, service: str, **keys: Any) -> Any:
    """A client of AWS's token service. What the environment says of endpoints in general is not meant for it."""
    return core.create_client(
        service,
        region_name=region,
        endpoint_url=os.environ.get("AWS_ENDPOINT_URL_STS") or None,
        config=client_config(ignore_configured_endpoint_urls=True),
        **keys,
    )


def _assumption(role: Role) -> dict[str, Any]:
    said: dict[str, Any] = {"RoleSessionName": role.session_name or SESSION_NAME}
    if role.external_id:
        said["ExternalId"] = role.external_id
    if role.duration is not None:
        said["DurationSeconds"] = int(role.duration.total_seconds())
    return said
