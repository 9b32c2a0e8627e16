"""Model folders with damaged or planted files: weights, tokenizer, chat template, code. Their code never runs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.hostile.cases import MODEL_LIMIT_S, Case, Place
from benchmarks.hostile.world import MODEL, TINY, World, at, copied, written
from tests.helpers.fuzzed_files import damage, mutate

Planted = Callable[[Path, Place, Random], None]
CODE = "open({canary!r}, 'w').write('ran')\nclass Evil:\n    pass\n"
TEMPLATES = (
    "{{ cycler.__init__.__globals__.os.system('touch CANARY') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self.__init__.__globals__.__builtins__.open('CANARY', 'w') }}",
    "{{ lipsum.__globals__['os'].popen('touch CANARY').read() }}",
    "{% for a in range(10**9) %}{% for b in range(10**9) %}x{% endfor %}{% endfor %}",
    "{{ 'x' * 10**10 }}",
    "{{ range(10**9)|list }}",
    "{{ namespace.__init__.__globals__ }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os.system('touch CANARY') }}",
    "{{ (1).__class__.__base__ }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ 9**9**9 }}",
    "{% set x = [] %}{% for i in range(10**8) %}{% set _ = x.append(x) %}{% endfor %}",
    "{% raise %}",
    "{{",
    "",
    "\x00",
    "{{ raise_exception('hstl') }}",
    "{{ strftime_now('%s'*100000) }}",
    "{{ messages|map(attribute='__class__')|list }}",
    "{{ 'a'|attr('__class__') }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ ('x'*1000000)|center(10**10) }}",
)
AUTO = ("AutoConfig", "AutoModelForCausalLM", "AutoModel", "AutoTokenizer")
ATTENTION = (
    "evil/kernel",
    "kernels-community/evil",
    "flash_attention_2",
    "../evil",
    "evil/kernel:evil",
    "x" * 3000,
    7,
    ["evil/kernel"],
    {"": "evil/kernel"},
)


class _Touches:
    """Makes the canary where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def _cut(name: str, share: float, model: Path, place: Place, chance: Random) -> None:
    data = (model / name).read_bytes()
    (model / name).write_bytes(data[: int(len(data) * share)])


def _removed(name: str, model: Path, place: Place, chance: Random) -> None:
    (model / name).unlink()


def _bytes(name: str, model: Path, place: Place, chance: Random) -> None:
    (model / name).write_bytes(damage(chance, (model / name).read_bytes()))


def _json(name: str, model: Path, place: Place, chance: Random) -> None:
    tree = json.loads((model / name).read_text())
    if name == "tokenizer.json":  # most of it is the vocabulary
        key = chance.choice([one for one in tree if one != "model"] + ["model"])
        tree = tree | {key: mutate(chance, [tree[key]])}
    else:
        tree = mutate(chance, tree)
    (model / name).write_text(json.dumps(tree))


def _config(key: str, value: Any, model: Path, place: Place, chance: Random) -> None:
    (model / "config.json").write_text(json.dumps(json.loads((model / "config.json").read_text()) | {key: value}))


def _auto(name: str, kind: str | None, model: Path, place: Place, chance: Random) -> None:
    """Code of the folder, named where transformers looks for it."""
    for file in ("evil.py", "modeling_evil.py", "configuration_evil.py", "tokenization_evil.py"):
        (model / file).write_text(CODE.format(canary=str(place.canary)))
    target = "tokenizer_config.json" if name == "AutoTokenizer" else "config.json"
    tree = json.loads((model / target).read_text())
    value: Any = ["evil.Evil", None] if name == "AutoTokenizer" else "evil.Evil"
    tree |= {"auto_map": {name: value}} | ({} if kind is None else {"model_type": kind, "architectures": ["Evil"]})
    if name == "AutoTokenizer":
        tree["tokenizer_class"] = "Evil"
    (model / target).write_text(json.dumps(tree))


def _pickled(name: str, model: Path, place: Place, chance: Random) -> None:
    (model / "model.safetensors").unlink()
    (model / name).write_bytes(pickle.dumps(_Touches(str(place.canary))))


def _template(text: str, where: str, model: Path, place: Place, chance: Random) -> None:
    if where == "jinja":
        written(place, "model/chat_template.jinja", text)
        return
    settings = json.loads((model / "tokenizer_config.json").read_text())
    written(place, "model/tokenizer_config.json", json.dumps(settings | {"chat_template": text}))


def _index(model: Path, place: Place, chance: Random) -> None:
    """Weights in shards that lie elsewhere."""
    (model / "model.safetensors").unlink()
    shards = {"weight_map": {"model.embed_tokens.weight": "../../mine.txt"}, "metadata": {}}
    (model / "model.safetensors.index.json").write_text(json.dumps(shards))


def _listed() -> list[tuple[str, Planted]]:
    found: list[tuple[str, Planted]] = [
        (f"auto_map {name}, {kind}", partial(_auto, name, kind)) for name in AUTO for kind in (None, "evil", "llama")
    ]
    found += [
        (f"template {text[:40]!r}", partial(_template, text, where)) for where in ("jinja", "config") for text in TEMPLATES
    ]
    found += [
        (f"a pickle as {name}", partial(_pickled, name))
        for name in ("pytorch_model.bin", "model.safetensors", "adapter_model.bin")
    ]
    found += [(f"attention {str(value)[:30]}", partial(_config, "_attn_implementation", value)) for value in ATTENTION]
    found += [
        (f"attn_implementation {str(value)[:30]}", partial(_config, "attn_implementation", value)) for value in ATTENTION[:3]
    ]
    found.append(("shards elsewhere", _index))
    files = ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json")
    found += [(f"{name} is cut at {share}", partial(_cut, name, share)) for name in files for share in (0.0, 0.5, 0.999)]
    found += [(f"no {name}", partial(_removed, name)) for name in files]
    settings = (
        ("vocab_size", 10),
        ("vocab_size", 10**6),
        ("num_hidden_layers", 1),
        ("hidden_size", 8),
        ("eos_token_id", 10**9),
        ("torch_dtype", "evil"),
        ("rope_scaling", {"type": "evil"}),
        ("quantization_config", {"quant_method": "evil"}),
        ("mask_token_id", 10**9),
        ("hidden_act", "evil"),
    )
    return found + [(f"config: {key} is {value}", partial(_config, key, value)) for key, value in settings]


COUNT = 183


def case(world: World, number: int, chance: Random) -> Case:
    """Listed ones, then bytes and places at random."""
    listed = _listed()
    if number < len(listed):
        what, plant = listed[number]
    else:
        name = ("tokenizer.json", "tokenizer_config.json", "config.json", "model.safetensors", "generation_config.json")[
            number % 5
        ]
        how = _bytes if name == "model.safetensors" or number % 3 == 0 else _json
        what, plant = f"{name} changed", partial(how, name)
    return Case(what, partial(_loaded, plant, chance))


def _loaded(plant: Planted, chance: Random, place: Place) -> None:
    model = Path(copied(place, MODEL / "sbd", "model"))
    plant(model, place, chance)
    scenario = at(TINY, "parts.0.model", {"huggingface": str(model)})
    workload = {"tasks": ["word_problems"], "split": "test", "prompts": 1, "max_new_tokens": 8}
    settings = model / "tokenizer_config.json"
    if (model / "chat_template.jinja").exists() or (settings.exists() and b"chat_template" in settings.read_bytes()):
        workload = {"prompts_file": "prompts.jsonl", "prompts": 1, "max_new_tokens": 8, "chat_template": True}
        written(place, "prompts.jsonl", '{"prompt": "hi"}\n')
    file = written(place, "s.yaml", at(scenario, "parts.0.workload", workload))
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    place.sbd("run", file, "--out", "out", "--no-report", limit_s=MODEL_LIMIT_S, variables=offline, setup=_one_thread)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
