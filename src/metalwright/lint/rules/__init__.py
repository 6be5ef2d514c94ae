"""The rules, a module for each group; :mod:`metalwright.lint.registry` finds them."""
