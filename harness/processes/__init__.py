"""Foreign commands, kept: nothing that one started outlives it or this program, and its output has a bound.

In: a command and the files of its output. Out: its exit status, once everything that it started has ended. Open ``kept`` first.
"""
