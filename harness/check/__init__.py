"""`sbd check`: what only a device can show, in one call; the same code on a CPU with tiny shapes.

In: a device. Out: tables of exactness and of cells, and an exit code. Composes, and measures by runs. Open ``conduct`` first.
"""
