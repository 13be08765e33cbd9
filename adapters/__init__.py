"""The ports of core, bound to what is outside: Kubernetes, the clouds' snapshots and object storage, a local folder.

Guarantee: an adapter translates and never decides. No exception of an SDK passes it: reads raise
``reprieve.core.errors``, effects return ``reprieve.core.outcomes``. Its SDK is imported inside it alone, and only when
used. ``k8s``, ``cloud`` and ``local`` do not know each other. Not guaranteed: that every provider has all that a port
offers.
"""
