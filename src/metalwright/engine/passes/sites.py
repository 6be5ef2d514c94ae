"""From debug locations in IR to places in the user's MSL."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from metalwright.columns import original_column
from metalwright.engine.types import Module
from metalwright.errors import Site

_NODE = re.compile(
    r"^!(\d+) = (?:distinct )?!(DILocation|DISubprogram|DILexicalBlock|DILexicalBlockFile|DIFile)\((.*)\)$"
)
_FIELD = re.compile(r"(\w+): (!\d+|\"(?:[^\"\\]|\\.)*\"|[-\w|. ]+)")


@dataclass
class SiteTable:
    """The places that instrumented code speaks of by number."""

    locations: DebugLocations
    module: Module
    sites: list[Site | None] = field(default_factory=list)

    def add(self, debug: str | None) -> int:
        """Return the number of the site of a debug location (the ``N`` of ``!dbg !N``)."""
        site = self.locations.resolve(debug) if debug else None
        self.sites.append(as_written(site, self.module) if site else None)
        return len(self.sites) - 1


def as_written(site: Site, module: Module) -> Site:
    """Return a place of the compiled text as one of the text that the user wrote."""
    compiled = module.compiled_lines.get((site.file, site.line))
    written = module.sources.get(site.file, "").split("\n")
    if compiled is None or not 0 < site.line <= len(written):
        return site
    return Site(site.file, site.line, original_column(compiled, written[site.line - 1], site.column))


class DebugLocations:
    """The debug metadata of a module."""

    def __init__(self, lines: list[str], user_files: Collection[str]) -> None:
        self._user_files = user_files
        self._nodes: dict[str, tuple[str, dict[str, str]]] = {}
        for line in lines:
            if line.startswith("!") and (match := _NODE.match(line)):
                self._nodes[match.group(1)] = (match.group(2), dict(_FIELD.findall(match.group(3))))

    def resolve(self, number: str | None) -> Site | None:
        """Return the innermost place in the user's own files: a fault inside a header is shown where it was called."""
        while number is not None:
            kind, fields = self._nodes.get(number, ("", {}))
            if kind != "DILocation":
                return None
            file = self._file(fields.get("scope", "").lstrip("!"))
            if file in self._user_files:
                return Site(file, int(fields.get("line", "0")), int(fields.get("column", "0")))
            inlined = fields.get("inlinedAt")
            number = inlined.lstrip("!") if inlined else None
        return None

    def _file(self, scope: str) -> str:
        while scope in self._nodes:
            kind, fields = self._nodes[scope]
            if kind == "DIFile":
                return fields.get("filename", "").strip('"')
            file = fields.get("file")
            scope = (file or fields.get("scope", "")).lstrip("!")
        return ""
