"""Inference servers of others as one more engine: started or found, asked over HTTP, their own counters read beside the clock.

In: a part with ``servers`` and its prompts as token ids. Out: what an engine gives, a Decoded per batch. Its passes are
counted from the stream and held against what the server says of itself. Open ``engine`` first.
"""
