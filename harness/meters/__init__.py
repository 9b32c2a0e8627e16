"""Clocks and counters, read as windows around the work, and the calibration of a machine.

In: work to be timed, or a device. Out: figures with unit and source, or why one is absent. Knows no decoder and no model.
Open ``window`` first, then ``available``.
"""
