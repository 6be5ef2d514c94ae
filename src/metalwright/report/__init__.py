"""What a check found, for other readers than a terminal: a page for a browser, annotations for GitHub.

>>> import metalwright
>>> from metalwright.report import to_html
>>> page = to_html([metalwright.check(kernel)])  # doctest: +SKIP
"""

from metalwright.report.github import to_github
from metalwright.report.html import to_html

__all__ = ["to_github", "to_html"]
