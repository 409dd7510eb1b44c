"""docs/paper.md, the example's settings and the registry say the same."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from support.fabricated import experiments_of
from topicscope.paper import figure4
from topicscope.paper.claim import PRESETS, Claim
from topicscope.paper.registry import registry
from topicscope.settings.toml import load_settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
QUOTED = set(re.findall(r"`([^`\s]+)`", TEXT))
CLAIMS = {claim.id: claim for preset in PRESETS.values() for claim in registry(preset).claims}


def named(word: str, claim: str) -> bool:
    return claim == word or (word.endswith("/*") and claim.startswith(word[:-1]))


def test_every_claim_is_on_the_map() -> None:
    missing = [claim for claim in CLAIMS if not any(named(word, claim) for word in QUOTED)]
    assert missing == []


def test_every_claim_file_and_test_on_the_map_exists() -> None:
    files = {word for word in QUOTED if word.endswith(".py")}
    for file in files:
        assert (ROOT / file).exists() or (ROOT / "src" / "topicscope" / file).exists(), file
    ids = {word for word in QUOTED if "/" in word and word not in files}
    for word in ids:
        assert any(named(word, claim) for claim in CLAIMS), word
    assert len(files) > 30
    assert len(ids) > 20


def test_the_example_is_the_setting_that_reproduce_trains() -> None:
    experiments = {each.name: each for each in experiments_of(*registry(PRESETS["quick"]).claims)}
    trained = experiments["figure2/squared-adam"].settings
    example = load_settings(ROOT / "examples" / "figure2.toml")
    # What is recorded on the way is the run folder's business.
    recorded = ("log_every", "validate_every", "checkpoint_every", "snapshots", "validation_documents")
    training = replace(example.training, **{name: getattr(trained.training, name) for name in recorded})
    assert replace(example, training=training) == trained
    assert replace(example, training=replace(training, l2=1e-4)) != trained


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_is_one_sentence_with_a_singular_source_and_a_plain_id(claim: Claim) -> None:
    assert re.fullmatch(r"[a-z0-9.\-]+(/[a-z0-9.\-]+)+", claim.id)
    assert re.fullmatch(r"(Figure|Table|Theorem|Lemma|Remark|Assumption) \d+|§[\d.]+|D\.\d", claim.source)
    assert claim.statement.endswith(".")


def test_presets_keep_to_their_size() -> None:
    for preset in PRESETS.values():
        found = registry(preset)
        # Equal settings under two names are trained once.
        trained = {(each.settings, each.topic_words) for each in experiments_of(*found.claims)}
        drawn = {(each.settings, each.topic_words) for each in experiments_of(*found.drawings)}
        assert drawn <= trained
        assert (len(trained) <= 120) == (not preset.full)
        assert (len(figure4.cells(preset)) <= 42) == (not preset.full)


def test_every_diagnosis_names_claims_that_there_are_and_a_setting_in_which_it_holds() -> None:
    for name, claim in CLAIMS.items():
        if known := claim.diagnosis:
            assert set(known.see) <= CLAIMS.keys(), name
            assert known.cause != "unknown", name
            assert known.explanation.endswith("."), name
            # What is undecided for want of structure, or of models, says so instead.
            assert known.holds or known.cause == "power", name
