"""The same samples taken on the nodes of a cluster; this process alone writes the record.

In: a plan and an address. Out: entries like any worker's. Open ``scheduler`` first; Ray is ``ray_cluster``.
"""
