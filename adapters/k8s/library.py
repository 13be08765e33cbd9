"""The library that decodes JSON, or a clear word on how to get it."""

from __future__ import annotations

from reprieve.core.errors import MissingExtraError

try:
    import msgspec
except ModuleNotFoundError as fault:
    raise MissingExtraError("msgspec", extra="k8s") from fault

__all__ = ["msgspec"]
