"""Decoders: generators of passes over one session protocol. Torch only; no file, tokenizer, clock, meter or hardware."""
