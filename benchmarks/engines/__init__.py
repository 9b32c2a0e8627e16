"""NTP and short passes held against other engines on the same cores, and how soon a run has its first sample.

    SBD_LLAMA_SERVER=build/llama/bin/llama-server python -m benchmarks.engines [--rounds 10] [--only FIGURE] [--baseline RUN]

``make llama-ready`` builds llama-server and llama-bench. Each round starts every measurement in a fresh process on all cores
this process may use, those of the 250M shape twice; every other round takes them in reverse order. ``figures`` says what each
figure is and what it must reach. A figure that cannot be measured here is null, with its reason.
"""
