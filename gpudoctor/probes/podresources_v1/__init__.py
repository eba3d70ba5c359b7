"""The messages of the kubelet's PodResources API: podresources.proto, and what `make podresources` makes of it.

podresources_pb2.py is imported by the worker alone, in a process of its own.
"""
