"""``gradientmail demo``: the whole job in a few minutes on one machine, with kills on the way."""
