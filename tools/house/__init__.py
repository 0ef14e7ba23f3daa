"""``python -m tools.house``: how large and how tangled the packages are, as a table.

The figures are signs to look at, and to compare between two commits; those that must hold are tests (``tests/unit``).
``static`` counts in the sources, ``rooms`` counts the modules that one block of records really passes.
"""
