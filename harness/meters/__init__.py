"""Meters know no decoder and no model; one file per source, a deterministic fake beside each."""
