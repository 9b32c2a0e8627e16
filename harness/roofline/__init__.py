"""Pure arithmetic on counts: what a forward pass must cost on given ceilings. Knows no tensor, clock or decoder."""
