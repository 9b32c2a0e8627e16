"""Judgements as the texts that other programs read: values in, text out; the command line writes the files.

Open ``formats`` first: one table of all formats.
"""
