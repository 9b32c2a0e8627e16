"""Decoders: generators of passes over one session protocol, and the solvers that decide which tokens to keep.

In: a session, a request, a rule of acceptance. Out: passes in counts, then a generation. Torch only; no file, tokenizer, clock,
meter or hardware. Open ``session`` first, then ``next_token`` and ``set_block``.
"""
