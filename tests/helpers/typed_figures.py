"""The figures of devices as a person typed them from the published pages, in their units, and the names that drivers give."""

import csv

from tests.helpers import DATA


def typed_figures() -> dict[str, dict[str, str]]:
    """A row per profile; ``7700|8000`` is a figure with another source's value, an empty cell one that is not known."""
    with (DATA / "hardware_figures.csv").open(encoding="utf-8") as file:
        return {row["profile"]: row for row in csv.DictReader(file)}
