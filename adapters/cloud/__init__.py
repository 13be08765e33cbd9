"""Snapshots and object storage of the clouds: one module an SDK, each with one table of its SDK's errors.

Guarantee: importing this package or any module of it imports no SDK. An SDK loads when a location of its provider is
opened or first called, and only that one. No exception of an SDK gets out. Not guaranteed: that the SDK is installed;
opening says which extra brings it.
"""
