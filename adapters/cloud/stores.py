"""Snapshot stores of the clouds by location.

One store for each location and credential, so that pending operations are followed; one limiter for each provider and
account, so that locations of one account share what its provider lets through.

Guarantee: opening makes no call and loads no SDK but that of the location's provider. Equal locations with equal
credentials give the same store, from any thread. Not guaranteed: that a credential works; the first call tells. Nor
that two credentials of one account share a limiter: nobody can tell before a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from reprieve.adapters.cloud.aws import AwsSnapshots
from reprieve.adapters.cloud.azure import AzureSnapshots
from reprieve.adapters.cloud.gcp import GcpSnapshots
from reprieve.adapters.cloud.kept import Kept, fingerprint
from reprieve.adapters.cloud.limited import LimitedSnapshotStore
from reprieve.adapters.cloud.rate import PARALLELISM, Account, Limiter, Limiters
from reprieve.core.backups import SnapshotLocation, plain_provider
from reprieve.core.errors import ContainerMissingError, InvalidError
from reprieve.core.ports import SnapshotStore

PROVIDERS = ("aws", "gcp", "azure")

ACCOUNT_KEYS: Mapping[str, tuple[str, ...]] = {
    "aws": ("profile", "region"),  # EC2 counts calls for each account and region
    "gcp": ("project",),
    "azure": ("subscriptionId",),
}
"""What tells a provider's accounts apart in a location's configuration, besides the credential."""


def account_of(location: SnapshotLocation, credential: bytes | None) -> Account:
    """The provider and account that a location's calls count for."""
    provider = plain_provider(location.provider)
    names = (location.config.get(key, "") for key in ACCOUNT_KEYS.get(provider, ()))
    return (provider, fingerprint(credential), *names)


class Opener(Protocol):
    """Opens the snapshot locations of one provider."""

    def open(self, location: SnapshotLocation, *, credential: bytes | None = None) -> SnapshotStore:
        """Open a location. Makes no call. Raises ``InvalidError`` for a configuration that cannot be used."""
        ...


Key = tuple[SnapshotLocation, str]


class CloudSnapshotStores:
    """The port ``SnapshotStores`` over the configured providers.

    One of these for a process: it holds the limiters that all workers share. ``parallelism`` bounds the calls at a
    time for each account; ``openers`` replaces how a provider is opened and ``limiters`` what is shared, for stand-ins.
    """

    def __init__(
        self,
        *,
        providers: Iterable[str] = PROVIDERS,
        parallelism: int = PARALLELISM,
        openers: Mapping[str, Opener] | None = None,
        limiters: Limiters | None = None,
    ) -> None:
        """Configure providers by name. Raises ``InvalidError`` for one that there is no adapter for."""
        known: dict[str, Opener] = {
            "aws": AwsSnapshots(),
            "gcp": GcpSnapshots(),
            "azure": AzureSnapshots(),
            **(openers or {}),
        }
        names = [plain_provider(name) for name in providers]
        if unknown := sorted(set(names) - set(known)):
            raise InvalidError(f"no adapter for provider {', '.join(unknown)}: there are {', '.join(sorted(known))}")
        self._openers = {name: known[name] for name in names}
        self._limiters = limiters or Limiters(partial(Limiter, parallelism=parallelism))
        self._kept: Kept[Key, LimitedSnapshotStore] = Kept()

    @property
    def providers(self) -> frozenset[str]:
        """The providers that are configured, without Velero's prefix."""
        return frozenset(self._openers)

    def open(self, location: SnapshotLocation, *, credential: bytes | None = None) -> LimitedSnapshotStore:
        """Open a location, or give the store that it was opened as before. Makes no call.

        Raises ``InvalidError`` for a configuration that cannot be used, ``ContainerMissingError`` for a provider that
        is not configured.
        """
        opener = self._openers.get(plain_provider(location.provider))
        if opener is None:
            there = ", ".join(sorted(self._openers)) or "none"
            raise ContainerMissingError(
                f"snapshot location {location.name}: provider {location.provider!r} is not configured, only {there}"
            )
        key = (location, fingerprint(credential))
        limiter = self._limiters.of(account_of(location, credential))
        return self._kept.get(key, lambda: LimitedSnapshotStore(opener.open(location, credential=credential), limiter))
