"""A run over a pretended cluster: every sample once whatever is lost, each failed try in the record, unlike nodes refused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from harness.errors import DoesNotFitError, ProcessEndedError, StorageError, UserError
from harness.models import KNOWN_SHAPES
from harness.progress import Progress
from harness.record.schema import Sample
from harness.record.store import read_run
from harness.runner.cluster import scheduler
from harness.runner.cluster.protocol import LostError
from harness.runner.identity import identity_of
from harness.runner.job import Job
from harness.runner.options import RunOptions
from harness.runner.runner import run
from tests.helpers.fake_cluster import FakeCluster
from tests.helpers.fake_machine import SCENARIO, FakeEngine, fake_machine

SHAPE = KNOWN_SHAPES["llama-250m"]
SECOND = SCENARIO.partition("parts:\n")[2].replace("name: one", "name: two")
TWO_PARTS = SCENARIO.replace("name: fake", "name: two\nattempts: 2\ndeadline_s: 10") + SECOND


class Once:
    """Does something at the n-th sample, once."""

    def __init__(self, at, act):
        self.at, self.act, self.seen = at, act, 0

    def __call__(self, unit, entry):
        self.seen += isinstance(entry, Sample)
        return self.act(unit, entry) if isinstance(entry, Sample) and self.seen == self.at else False


def lost(unit, entry):
    """A node goes."""
    raise LostError("its node is gone")


@pytest.fixture
def scenario(tmp_path):
    """Two parts of two batch sizes: four units of two cases."""
    file = tmp_path / "two.yaml"
    file.write_text(TWO_PARTS)
    return file


def spread(asked, out, cluster, progress=None):
    """Run it there; the clock is the cluster's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "CLOCK", cluster.clock)
        return read_run(
            scheduler.spread(asked if isinstance(asked, Job) else Job.of(asked), out, cluster, progress or Progress())
        )


def keys(held):
    """Counting samples by key; warm-ups are taken again by whoever goes on."""
    return Counter(sample.key for sample in held.samples if not sample.warmup)


@pytest.fixture
def alone(tmp_path):
    """The same scenario in one process."""
    file = tmp_path / "alone.yaml"
    file.write_text(TWO_PARTS.replace("\ndeadline_s: 10", ""))
    return read_run(run(file, tmp_path / "alone", machine=fake_machine()))


def test_a_spread_run_is_the_run_of_one_process(scenario, alone, tmp_path):
    """The same samples with the same seeds, outputs and traces, every unit on one node, with where that was."""
    cluster = FakeCluster()
    held = spread(scenario, tmp_path / "out", cluster)

    def counted(run):
        return {s.key: (s.seed, s.rows, s.passes) for s in run.samples if not s.warmup}

    assert counted(held) == counted(alone) and len(counted(held)) == 48
    assert [case.case_id for case in held.header.cases] == [case.case_id for case in alone.header.cases]
    assert held.header.scenario_digest == alone.header.scenario_digest, "a deadline is no part of what is measured"
    nodes = {}
    for sample in held.samples:
        nodes.setdefault(sample.case_id.rpartition("/")[0], set()).add(sample.node)
    assert len(nodes) == 4 and all(len(one) == 1 for one in nodes.values())
    assert set.union(*nodes.values()) == {"node0", "node1"}
    assert {one["node"] for one in held.sessions[:-1]} == {"node0", "node1"} and held.sessions[-1] == {"event": "end"}
    assert held.header.calibration is None and "every node has its own" in (held.header.hardware_reason or "")
    assert len(cluster.ended) == 4


@pytest.mark.parametrize("at", [1, 5, 17, 40, 60])
def test_a_lost_unit_is_taken_up_again_where_the_record_ends(scenario, alone, tmp_path, at):
    """Wherever a node goes, in warm-up or later: every sample once, one failed try in the record, on the case it was at."""
    held = spread(scenario, tmp_path / "out", FakeCluster(fault=Once(at, lost)))
    assert keys(held) == keys(alone)
    [attempt] = [one for one in held.sessions if one["event"] == "attempt"]
    assert attempt["reason"] == "decoding: its node is gone" and (attempt["attempt"], attempt["of"]) == (1, 2)
    assert attempt["case_id"] in {case.case_id for case in held.header.cases}
    assert held.outcomes == []


def test_it_goes_on_where_it_was_begun_if_that_is_still_there(scenario, tmp_path):
    """The pairs of a unit stay on one machine, although others are free."""
    held = spread(scenario, tmp_path / "out", FakeCluster(nodes=6, fault=Once(30, lost)))
    nodes = {}
    for sample in held.samples:
        nodes.setdefault(sample.case_id.rpartition("/")[0], set()).add(sample.node)
    assert all(len(one) == 1 for one in nodes.values())


def test_a_case_that_always_kills_is_left_out_after_its_attempts_and_the_others_go_on(scenario, tmp_path):
    """Two tries, both in the record with their reason; its sweep is complete but for it, and no run tries it a third time."""

    def kills(unit, entry):
        if isinstance(entry, Sample) and entry.case_id.startswith("two/synthetic/b2/sbd"):
            raise LostError("its process was killed")
        return False

    out = tmp_path / "out"
    held = spread(scenario, out, FakeCluster(fault=kills))
    [outcome] = held.outcomes
    assert outcome.case_id.startswith("two/synthetic/b2/sbd") and outcome.outcome == "failed"
    assert outcome.reason == "decoding: its process was killed (attempt 2 of 2)"
    assert [one["attempt"] for one in held.sessions if one["event"] == "attempt"] == [1]
    taken = Counter(key[0] for key in keys(held))
    assert len(taken) == 7 and set(keys(held).values()) == {1} and sum(taken.values()) == 48 - 4
    again = FakeCluster()
    spread(scenario, out, again)
    assert again.units == []


def test_what_hangs_is_ended_at_its_deadline(scenario, alone, tmp_path):
    """The clock is pretended; nothing else is waited for, and a unit that waits for a node does not hang."""
    cluster = FakeCluster(nodes=1, fault=Once(20, lambda unit, entry: True))
    held = spread(scenario, tmp_path / "out", cluster)
    assert keys(held) == keys(alone)
    [attempt] = [one for one in held.sessions if one["event"] == "attempt"]
    assert attempt["reason"] == "decoding: nothing came for 10 s (deadline_s), so its process was ended"
    assert 10 < cluster.now_s < 12


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageError("disk full")])
def test_what_ends_the_driver_ends_every_unit_and_the_next_run_takes_the_rest(scenario, alone, tmp_path, error):
    """Nothing keeps a node, nothing is taken twice."""

    def broken(unit, entry):
        raise error

    out, cluster = tmp_path / "out", FakeCluster(fault=Once(33, broken))
    with pytest.raises(type(error)):
        spread(scenario, out, cluster)
    assert {id(unit) for unit in cluster.units} == {id(unit) for unit in cluster.ended}
    before = (out / "samples.jsonl").read_bytes()
    assert len(read_run(out).samples) == 32
    assert keys(spread(scenario, out, FakeCluster())) == keys(alone)
    assert (out / "samples.jsonl").read_bytes().startswith(before)


def test_out_of_memory_is_tried_again_and_says_what_would_fit(tmp_path):
    """Once: it is taken at the second try. Always: an outcome, with the largest batch that the plan finds room for."""
    file = tmp_path / "fake.yaml"
    file.write_text(SCENARIO.replace("batch_sizes: [1, 2]", "batch_sizes: [4]"))
    engine = FakeEngine(fail_at=5, error=DoesNotFitError("out of memory on cpu"))
    held = spread(file, tmp_path / "once", FakeCluster(engine=lambda node: engine))
    assert set(keys(held).values()) == {1} and len(keys(held)) == 4 and held.outcomes == []
    [attempt] = [one for one in held.sessions if one["event"] == "attempt"]
    assert attempt["reason"] == "out of memory on cpu"
    # Two bytes a weight; a row of SBD has 8 logits of 6 bytes for each of the vocabulary, and less than a megabyte of the rest.
    free = 2 * SHAPE.params + 3 * (8 * 6 * SHAPE.vocab + 1_000_000)
    small = replace(fake_machine(FakeEngine(too_big=4)), free_bytes=lambda part: free)
    held = read_run(run(file, tmp_path / "always", machine=small))
    assert {outcome.case_id.split("/")[3][:3]: outcome.reason for outcome in held.outcomes} == {
        "ntp": "batch 4 does not fit; by the plan batch 4 fits into 0.5 GB, so something else takes the memory "
        "(attempt 2 of 2)",
        "sbd": "needs 0.5 GB at least, 0.5 GB are free on cpu; by the plan batch 3 is the largest that fits into 0.5 GB",
    }


def test_a_node_with_other_code_ends_the_run(scenario, tmp_path, monkeypatch):
    """Nothing that was written by another program gets into the record."""
    monkeypatch.setattr("harness.runner.cluster.ray_worker.source_digest", lambda: "0123456789ab")
    with pytest.raises(UserError, match="has the code 0123456789ab, the run was started with"):
        spread(scenario, tmp_path / "out", FakeCluster())
    assert not (tmp_path / "out" / "samples.jsonl").exists()


def test_a_node_with_other_weights_ends_the_run_and_one_with_another_processor_does_not(scenario, tmp_path):
    """Nodes share the model's files and the program. Unlike machines are told apart on reading."""
    changes: dict[str, str] = {}

    def node(name):
        def identity(part, environment):
            return identity_of(part, environment) | {item: f"{value} of {name}" for item, value in changes.items()}

        return replace(fake_machine(), identity=identity)

    changes["cpu"] = "a processor"
    assert len(spread(scenario, tmp_path / "machines", FakeCluster(node=node)).samples) > 0
    changes["weights"] = "those"
    with pytest.raises(UserError, match=r"part (one|two), node node\d: .*\n  weights: was those of node\d, is those of node\d"):
        spread(scenario, tmp_path / "out", FakeCluster(node=node))
    job = Job.of(scenario, RunOptions(allow=("weights",)))
    held = spread(job, tmp_path / "out", FakeCluster(node=node))
    assert {item for one in held.sessions if one["event"] == "allowed" for item in one["items"]} == {"weights"}


def test_prompts_must_be_the_same_on_every_node(tmp_path):
    """A file is pinned by its digest, and looked at again where it is used."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "one"}) + "\n")
    file = tmp_path / "file.yaml"
    old = "workload: {synthetic: {prompt_tokens: 4}, prompts: 4, max_new_tokens: 3}"
    text = SCENARIO.replace(old, "workload: {prompts_file: prompts.jsonl, max_new_tokens: 3}").replace("[1, 2]", "[1]")
    real = text.replace("acceptance: {replay: {nfe_speedup: 2.0}}", "gamma: 0.5")
    file.write_text(real.replace("{random: llama-250m}", "{reference: sbd}"))

    class Elsewhere(FakeCluster):
        """Its nodes have another file at that path."""

        def header(self, order, part):
            """Another disk."""
            prompts.write_text(json.dumps({"prompt": "two"}) + "\n")
            return super().header(order, part)

    with pytest.raises(UserError, match=r"(?s)prompts_sha256.*at the same path on every node"):
        spread(file, tmp_path / "out", Elsewhere())


def test_a_cluster_without_a_node_that_fits_is_given_up(scenario, tmp_path):
    """After two minutes in which nothing ran, with what is lacking."""
    cluster = FakeCluster(nodes=0)
    with pytest.raises(ProcessEndedError, match="waited 120 s for a node; 0 nodes are there"):
        spread(scenario, tmp_path / "out", cluster)
    assert 120 <= cluster.now_s < 122


def test_a_unit_that_cannot_be_begun_blames_no_case(scenario, tmp_path):
    """A node without the program, for example: said after as many tries as a case has, and no case is marked as failed."""

    def never(unit, entry):
        raise LostError("it could not be begun: No module named 'harness'")

    out = tmp_path / "out"
    with pytest.raises(ProcessEndedError, match="it could not be begun: No module named 'harness'; finished samples are kept"):
        spread(scenario, out, FakeCluster(fault=never))
    assert read_run(out).outcomes == [] and not any(one["event"] == "attempt" for one in read_run(out).sessions)


def test_devices_of_a_cluster_are_not_here(tmp_path):
    """Refused with what to do, before anything is made."""
    file = tmp_path / "fake.yaml"
    file.write_text(SCENARIO.replace("repeats: 2", "repeats: 2\n    devices: [H100, A100]"))
    with pytest.raises(UserError, match="part one-H100: devices: H100 are nodes of a cluster; give --on ray"):
        run(file, tmp_path / "out", machine=fake_machine())
    assert not (tmp_path / "out").exists()


def test_a_numbered_gpu_is_the_clusters_own(tmp_path):
    """Ray numbers what a process sees."""
    file = tmp_path / "fake.yaml"
    file.write_text(SCENARIO.replace("repeats: 2", "repeats: 2\n    device: cuda:1"))
    with pytest.raises(UserError, match="a cluster numbers its GPUs itself; give device: cuda"):
        spread(file, tmp_path / "out", FakeCluster(), Progress())
