"""JUnit XML against the schema that CI systems use: that of the Jenkins xunit plugin, tests/data/junit-10.xsd."""

from __future__ import annotations

import pytest
import xmlschema
from hypothesis import given

from harness.analysis.judge.judgement import GRAVEST_FIRST, Judgements
from harness.reporting.exports import export
from tests.helpers import DATA
from tests.helpers import synthetic_judgements as synthetic
from tests.helpers.synthetic_judgements import answer, of

SCHEMA = xmlschema.XMLSchema(DATA / "junit-10.xsd")
EVERY_STATE = of(*(answer(state, metric=f"m_{state}", remedy="more prompts") for state in GRAVEST_FIRST))


@given(found=synthetic.judgements)
def test_junit_is_valid(found: Judgements) -> None:
    """Whatever the judgements say, none at all included."""
    SCHEMA.validate(export(found, "junit"))


@pytest.mark.parametrize(
    ("valid", "broken"),
    [
        (' tests="4"', ""),
        ("<failure ", "<refuted "),
        ("</failure>", "<b/></failure>"),
        ("classname=", "class="),
        ("<properties>", "<properties><other/>"),
    ],
)
def test_the_schema_refuses_what_it_does_not_know(valid: str, broken: str) -> None:
    """The check can fail: a required attribute left out, an element or attribute that no reader knows."""
    written = export(EVERY_STATE, "junit").replace("<refuted ", "<failure ")
    SCHEMA.validate(written)
    spoilt = written.replace(valid, broken) if broken != "<refuted " else written.replace("failure", "refuted")
    assert spoilt != written and not SCHEMA.is_valid(spoilt)
