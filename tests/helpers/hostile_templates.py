"""Chat templates of model folders that write, compute or recurse without end, or hold what is no text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from tests.helpers.hostile_files import Plant, in_places_of
from tests.helpers.hostile_tokenizers import SETTINGS, edited, long, with_

TEMPLATE = "chat_template.jinja"
TEMPLATES = (
    "{% for i in range(99999) %}{{ 'x' * 1100 }}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% set n = namespace(s='x') %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s|length }}",
    "{% set n = namespace(s=[1]) %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s|length }}",
    "{{ ('x' * 1000000)|indent(1000000) }}",
    "{{ ('x ' * 1000000)|wordwrap(1) }}",
    "{{ ('x' * 99999)|replace('x', 'x' * 99999) }}",
    "{{ (messages * 10000000)|length }}",
    "{{ (messages * 100000)|tojson }}",
    "{{ 10 ** 10 ** 8 }}",
    "{{ (10 ** 5000)|string }}",
    "{{ 2 ** 200000000 > 1 }}",
    "{{ ('(' * 100000)|urlize }}",
    "{{ ('a' * 1000000 ~ 'b')|title|length }}",
    "{{ '%*d'|format(1000000000, 1) }}",
    "{{ '{:>9999999999}'.format(1) }}",
    "{{ ('x' * 10000)|list|batch(99999999, 'x')|list|length }}",
    "{{ (range(99999)|list * 10000)|sum }}",
    "{{ range(99999)|map('string')|join('x' * 100000) }}",
    "{{ (range(99999)|list * 999)|sort|length }}",
    "{{ dict(a=messages)|pprint * 9999999 }}",
    "{{ lipsum(n=100000, max=100) }}",
    "{{ cycler(*range(99999)).next() }}",
    "{% macro f(n) %}{{ f(n + 1) ~ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{% call(x) f() %}{% endcall %}",
    "{{ \ud800 }}",
    "{{ '\ud800' }}",
    "{{ '\\ud800' }}",
    "\ud800",
    "{{ '\\ud800' * 1000000 }}",
    "{{ messages[0]['content'].encode('utf-16') }}",
    "{{ '\x00' }}",
    "(" * 3000,
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "{{ " + "not " * 20000 + "1 }}",
    "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "{{ 1" + " + 1" * 20000 + " }}",
    "{{ [" * 500 + "]" * 500 + " }}",
    "{{ x" + ".a" * 50000 + " }}",
    "{% filter upper %}" * 500 + "{% endfilter %}" * 500,
    "@{% set x = 1 %}*100000@",
    "@x*30000000@",
    "{# @x*30000000@ #}",
    "{{ messages|map('tojson')|join|length / 0 }}",
    "{% extends 'x' %}",
    "{% import 'x' as y %}",
    "{{ undefined_function() }}",
    "{{ messages.append(messages) }}{{ messages }}",
    "{{ messages.clear() }}",
    "{% break %}",
    "{% while true %}{% endwhile %}",
    "{{ loop }}",
    "{{ self }}",
    "{{ None.x }}",
    "{{ raise_exception('x' * 100000000) }}",
    "{{ raise_exception('\x1b[31mhstl7\n::error::hstl7') }}",
    "{{ strftime_now('%9999999d') }}",
    "{{ strftime_now('\ud800') }}",
    "{{ (messages|string|list|groupby('x')|list * 99999)|length }}",
    "{{ 'x'.join(range(99)) }}",
)


def _template(text: str, where: str, folder: Path, chance: Random) -> None:
    if where == TEMPLATE:
        (folder / TEMPLATE).write_bytes(long(text).encode("utf-8", "surrogatepass"))
        return
    named = [{"name": "default", "template": text}, {"name": "\ud800", "template": text}] if where == "named" else text
    edited(with_("chat_template", named), SETTINGS)(folder, chance)


def templates() -> Iterator[tuple[str, Plant]]:
    for number, text in enumerate(TEMPLATES):
        where = (TEMPLATE, SETTINGS, "named")[number % 3]
        yield f"{where}: {text[:60]!r}", partial(_template, text, where)
    yield from in_places_of(
        TEMPLATE,
        "a pipe",
        "a folder",
        "a link to /dev/zero",
        "noise",
        "0xff",
        "UTF-16",
        "240 MB of zeros",
        "10 GB of zeros",
        "200 MB of spaces",
    )
