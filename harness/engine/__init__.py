"""Models and sessions over transformers: everything that holds weights.

In: a part of a scenario. Out: an engine that decodes its cases, timed. Sessions keep KV and make one model call; decoders of
harness.decoding drive them. Open ``engine`` first, then ``static_session``.
"""
