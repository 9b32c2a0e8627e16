"""Result files of other benchmarking tools as samples of ours.

In: a JSON or JSON-lines file of `vllm bench serve`, AIPerf, GuideLLM or SGLang's bench_serving. Out: its requests as one
neutral value (``measured``), and samples made of it (``samples``). Nothing in a file is executed. Open ``formats`` first: its
table names every format and its reader.
"""
