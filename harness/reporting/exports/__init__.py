"""Judgements as the texts that other programs read: values in, text out.

Who writes a file, and where, is the business of the command line. Open ``formats`` first: one table of all formats.
"""
