"""How often a verdict is wrong, in runs simulated with a known truth and judged by the functions that judge records.

In: nothing. Out: ``benchmarks/results/verdict_errors.json`` and every cell's rates on the terminal.

    python -m benchmarks.verdict_errors [--runs N] [--only SHAPE] [--workers 2] [--partial FOLDER]

Finished pieces are kept in FOLDER and read again, so that the same command continues; those of another program are not read.
Open ``cells`` first: which runs are simulated. ``laboratory`` judges tallies, by the old keys. ``records``, ``shapes``,
``imported`` and ``loads`` judge runs as they are read, by the keys ``new_*``; ``counted`` makes figures of the counts.
"""

import os

# Before numpy is loaded: one core for each worker.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
