"""The library that decodes JSON, or a clear word on how to get it."""

from __future__ import annotations

try:
    import msgspec
except ModuleNotFoundError as fault:
    raise ImportError("msgspec is not installed: pip install 'reprieve[k8s]'", name=fault.name) from fault

__all__ = ["msgspec"]
