"""Streams and a working folder that are not as usual, made in a child before its command begins."""

from __future__ import annotations

import os
import tempfile


def closed(*descriptors: int) -> None:
    """It has none of these."""
    for one in descriptors:
        os.close(one)


def unread(*descriptors: int) -> None:
    """They are a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    for one in descriptors:
        os.dup2(writing, one)


def full(*descriptors: int) -> None:
    """They take nothing."""
    for one in descriptors:
        os.dup2(os.open("/dev/full", os.O_WRONLY), one)


def removed() -> None:
    """Its working folder is gone."""
    os.chdir(tempfile.mkdtemp())
    os.rmdir(os.getcwd())
