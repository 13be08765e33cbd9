"""Kubernetes: the ports over an API server, and the codecs of the custom resources that reprieve speaks.

Guarantee: the official client is imported by ``client`` alone, when a connection is made; the codecs need no SDK and
work over any cluster. Not guaranteed: that importing ``client`` works without the extra ``k8s``.
"""
