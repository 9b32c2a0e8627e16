"""Instructions for a small chat model: seeded prompts in ten domains, whose answers are tens to hundreds of tokens long.

A domain is a grammar in a file beside this module, over pools of names and topics. Training and held-out prompts draw from
separate pools. Two domains have held-out prompts alone, so that a model trained on the others can be measured on them.
``draw`` has the form of the files, and what comes out.
"""
