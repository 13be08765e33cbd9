"""Credentials that locations name: keys of Secrets, read live at each use, so that a rotated one is taken up at once.

Guarantee: a Secret or a key that is missing is a matter of credentials (``DeniedError``), never "not found", which a
delete would take for success. Not guaranteed: that the bytes are a credential; the adapter says so when it reads
them.
"""

from __future__ import annotations

import base64
import binascii

from attrs import frozen

from reprieve.core.backups import NoSecret, SecretKey
from reprieve.core.errors import ContainerMissingError, DeniedError, NotFoundError
from reprieve.core.objects import ObjectRef, is_object_name, text
from reprieve.core.ports import Cluster


@frozen
class Secrets:
    """Reads credentials from one namespace."""

    cluster: Cluster
    namespace: str

    def read(self, credential: SecretKey | NoSecret) -> bytes | None:
        """The bytes of a Secret's key; None where the default chain applies. Raises core errors."""
        match credential:
            case NoSecret():
                return None
            case SecretKey(name, key):
                return self._key(name, key)

    def _key(self, name: str, key: str) -> bytes:
        if not is_object_name(name) or not key:
            raise DeniedError(f"a location's credential must name a Secret and a key, it names {name!r} and {key!r}")
        where = f"Secret {self.namespace}/{name}"
        try:
            secret = self.cluster.get(ObjectRef("v1", "Secret", name, self.namespace))
        except (NotFoundError, ContainerMissingError) as fault:
            raise DeniedError(f"{where} is not there, but a location names it as its credential: create it") from fault
        plain = text(secret.section("stringData").get(key))
        encoded = secret.section("data").get(key)
        if plain or not isinstance(encoded, str) or not encoded.strip():
            return self._plain(plain, where, key)
        try:
            return base64.b64decode("".join(encoded.split()), validate=True)
        except (binascii.Error, ValueError) as fault:
            raise DeniedError(f"{where}: key {key} is not base64: {fault}") from fault

    @staticmethod
    def _plain(plain: str, where: str, key: str) -> bytes:
        if not plain:
            raise DeniedError(f"{where} has no key {key!r}, but a location names it as its credential: add the key")
        return plain.encode()
