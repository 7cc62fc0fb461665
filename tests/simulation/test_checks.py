import json

from gradientmail.simulation.checks import check_history
from gradientmail.simulation.kills import PAIR
from gradientmail.simulation.world import run_world


def test_a_version_of_fewer_contributions_than_its_rule_needs_is_named(quiet):
    mutations = run_world(PAIR).mutations
    assert not check_history(mutations)
    at = next(at for at, change in enumerate(mutations) if change.key == "manifest.json")
    manifest = json.loads(mutations[at].data)
    manifest["settings"]["merge"] = "coordinate-median"
    mutations[at] = mutations[at]._replace(data=json.dumps(manifest).encode())
    assert any(
        "1 contributions, and its rule needs 3" in what for what in check_history(mutations)
    )
