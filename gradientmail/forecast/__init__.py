"""Forecasts: what a run will take on a fleet, before anything is rented.

The protocol's own decisions (schedule, publishing, polling, closing, liveness, judging, sweeping)
run on a heap of events in virtual time, with sizes in place of tensors and rates in place of
machines. Nothing is trained and nothing is stored: a thousand learners fit in minutes.

    FLEET.toml -> reading -> fleet -> world (learners, closer, ledger) -> results -> table, picture
"""
