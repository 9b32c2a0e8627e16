"""`sbd check`: what only a device can show, in one call; tiny shapes run the same code on a CPU.

In: a device. Out: tables of exactness and of cells, and an exit code. It measures by runs. Open ``conduct`` first.
"""
