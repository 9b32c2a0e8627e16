"""A catalogue of hostile input, generated and seeded: does the program lose nothing, let nothing in and always end?

    python -m benchmarks.hostile [--seed 1] [--share 1.0] [--workers 2] [--only KIND[/NUMBER]] [--keep FOLDER]

Each case has a folder of its own and calls the command line in a forked child, with limits on memory, time and files. A kind
is a module with a function ``case(world, number, chance)`` and a ``COUNT``; ``chance`` follows from seed, kind and number.

cases           cases that ran, and `cases_<kind>` of each kind
lost            a measured sample or a file of the user's was changed or removed, or something was written outside the folder
tracebacks      a traceback or "a fault in sbd" was shown, or the exit code is not a documented one
hangs           a command took longer than its limit (30 s by the clock; 90 s where a model is loaded)
wrong_verdicts  a damaged record was confirmed where the honest one is refuted, or the reverse
code_run        planted code ran (a canary file is there), or a connection was opened that nobody asked for
injected        a planted text became an element, an attribute, a control sequence, a CI command or a formula
untold          the exit code is not one that fits the case, or a refusal does not name the file or the server
memory          a case took more than 1 GB (10^9 bytes)
peak_memory_gb  the largest resident memory of a process in any case

Memory is the kernel's peak of a command's process or of one that it waited for, the largest of them, not their sum. A command
is a forked child, so it begins with the libraries that its worker holds; an interpreter of its own would import them too.
Before the walk, a child that touches 700 MB, and one whose own child does, are read within 10 %, or nothing is walked.
"""
