"""Benchmarks of gradientmail, side by side with what limits it: ``scripts/bench``.

One module for each benchmark, named as it is called, with a docstring that says what it measures
and a function ``run(options)`` that yields what it found (``frame.Figure``, ``frame.Skipped``).
"""
