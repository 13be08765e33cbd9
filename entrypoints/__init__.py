"""What a person or a cluster starts: the ``reprieve`` command, the controller, the bootstrap that joins the adapters.

Guarantee: everything here is thin. Facts are gathered through ports, core decides, the steps go out through ports,
and no other room imports this one. Not guaranteed: stable names; the library is ``reprieve.core``.
"""
