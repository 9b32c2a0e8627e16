"""Judgements as the texts that other programs read: one module per format, one table of them all.

Pure: values in, text out. Who writes a file, and where, is the command line's business (harness.cli.judged).
"""

from harness.reporting.exports.formats import FORMATS, export

__all__ = ["FORMATS", "export"]
