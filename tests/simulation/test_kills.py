from gradientmail.simulation.kills import every_death

WRITING = ("create", "put", "delete")


def test_a_death_at_any_writing_operation_does_no_harm(quiet):
    """All operations: ``scripts/simulate --kills``."""
    deaths = list(every_death(operations=WRITING))
    assert not [(death, verdict.wrong) for death, verdict in deaths if verdict.wrong]
    assert {death.slot for death, _ in deaths} == {"init", "closer", "learner"}
