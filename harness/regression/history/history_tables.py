"""The tables of a history as they are now; harness.regression.history.history_migrations makes them, and older ones into them.

Plain columns, so that a dashboard or `sqlite3` can read them; no column names a reserved word.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Double, ForeignKey, Index, Integer, MetaData, Table, Text

METADATA = MetaData()

VERSION = Table("schema_version", METADATA, Column("version", Integer, nullable=False))

RECORDS = Table(
    "records",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", Text, nullable=False, unique=True),
    Column("path", Text, nullable=False),
    Column("measured_at", Text, nullable=False),
    Column("added_at", Text, nullable=False),
    Column("revision", Text),
    Column("revision_has_changes", Boolean),
    Column("branch", Text),
    Column("fingerprint", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("scenario_name", Text, nullable=False),
    Column("scenario_digest", Text, nullable=False),
    Column("record_version", Integer, nullable=False),
    Column("comparison_version", Integer, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("committed_at", Text),
    Column("software", Text, nullable=False, server_default="{}"),
)

FIGURES = Table(
    "figures",
    METADATA,
    Column("record_id", Integer, ForeignKey("records.id", ondelete="CASCADE"), primary_key=True),
    Column("cell", Text, primary_key=True),
    Column("arm", Text, primary_key=True),
    Column("metric", Text, primary_key=True),
    Column("value", Double),
    Column("low", Double),
    Column("high", Double),
    Column("n", Integer, nullable=False),
    Column("unit", Text, nullable=False),
    Column("better", Text, nullable=False),
    Column("reason", Text),
)
TREND_INDEX = Index(
    "figures_of_a_metric", FIGURES.c.metric, FIGURES.c.cell, FIGURES.c.arm, FIGURES.c.record_id, FIGURES.c.value
)
"""Holds all that a trend reads of a figure."""
