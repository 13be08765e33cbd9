"""JSON in and out of the store: plain copies with a depth limit, merge patches (RFC 7386), JSON patches (RFC 6902).

Guarantee: a copy shares nothing with its original and holds only what JSON has.
Not guaranteed: strategic merge patches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reprieve.adapters.local.status import Json, StatusError, bad_request

DEPTH_LIMIT = 128
"""Far above any Kubernetes object, far below Python's recursion limit."""


def clone(value: Any, depth: int = 0) -> Any:
    """Copy JSON data; any mapping becomes a dict, any tuple a list.

    Raises 400 for what JSON has not, and for absurd nesting.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool or kind is int or kind is float:
        return value
    if depth > DEPTH_LIMIT:
        raise bad_request(f"nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, dict | Mapping):  # dict first: an abstract class asks slowly
        return {_key(key): clone(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clone(item, depth + 1) for item in value]
    if isinstance(value, str | int | float):
        return value
    raise bad_request(f"{kind.__name__} is not JSON")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise bad_request(f"{key!r} is not a string, as the keys of JSON are")
    return key


def merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch: mappings are merged, null removes, everything else replaces. Nothing is changed in place."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), item)
    return result


def json_patch(operations: object) -> Callable[[Json], Json]:
    """Make a patch for ``ClusterStore.patch`` of RFC 6902 operations; needs the jsonpatch library (400 without it).

    A failed test or a path that is not there gives 422, operations that are none 400.
    """
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise bad_request("error decoding patch: it is not a list of operations")

    def apply(obj: Json) -> Json:
        try:
            import jsonpatch
        except ImportError as error:
            raise bad_request("JSON patches need the library jsonpatch: pip install jsonpatch") from error
        try:
            result: Json = jsonpatch.apply_patch(obj, operations)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError) as error:
            raise StatusError("Invalid", "the server rejected our request due to an error in our request") from error
        return result

    return apply
