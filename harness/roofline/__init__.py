"""Pure arithmetic on counts: what a forward pass must cost on given ceilings. Knows no tensor, clock or decoder.

In: the counts of a pass, a model's shape, ceilings. Out: seconds and bytes of a pass or a decode. Open ``pricing`` first, then
``ceilings``. ``methods`` prices published ways of decoding, ``paper`` holds the paper's own model.
"""
