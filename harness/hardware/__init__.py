"""Devices as values: the figures of a data sheet with their sources, and what one machine was measured to reach.

In: the YAML files of hardware_profiles/, a profile kept by this machine, a calibration. Out: a HardwareProfile with bounds and
contradictions checked. Read ``profile`` first.
"""
