"""Writes the source of the documentation's site: `python -m tools.check_pages DIR`, then `mkdocs build` as mkdocs.yml says (`make docs`).

The site is README.md, docs/, CHANGELOG.md and CONTRIBUTING.md as they are, and a page for each check, made from what `explain` prints.
Links that lead to files outside the site become plain words.
"""

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from gpudoctor.chain import STANDS_ON, Link
from gpudoctor.registry import Check, built_in

REPOSITORY = Path(__file__).resolve().parent.parent
TOP = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_LINK = re.compile(r"(!?)\[([^\]\n]*(?:\n[^\]\n]*)?)\]\(([^)\s]+)\)")


def site() -> dict[str, str]:
    """Each page by its path in the site."""
    pages = {str(path.relative_to(REPOSITORY)): path.read_text("utf-8") for path in (REPOSITORY / "docs").rglob("*.md")}
    pages |= {name: (REPOSITORY / name).read_text("utf-8") for name in TOP}
    places = {source: TOP.get(source, source.removeprefix("docs/")) for source in pages}
    placed = {places[source]: _relinked(source, text, places) for source, text in pages.items()}
    return placed | check_pages()


def _relinked(source: str, text: str, places: dict[str, str]) -> str:
    """The text of a page with its links as they lead from where it lies in the site."""
    depth = len(PurePosixPath(places[source]).parts) - 1

    def replaced(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        where = _normal(PurePosixPath(source).parent / path)
        if where.startswith("docs/images/"):
            return f"{mark}[{words}]({'../' * depth}{where.removeprefix('docs/')})"
        if where not in places:
            return words
        return f"[{words}]({'../' * depth}{places[where]}{'#' + anchor if anchor else ''})"

    return _LINK.sub(replaced, text)


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def check_pages() -> dict[str, str]:
    """A page for each check, one for each link, and one for all."""
    registry = tuple(built_in())
    by_link = {link: [check for check in registry if check.link is link] for link in Link}
    links = {check.id: f"[`{check.id}`](../{check.link.value}/{check.id}.md)" for check in registry}
    pages = {f"checks/{check.link.value}/{check.id}.md": "\n".join(_page(check, links)) for check in registry}
    for link, checks in by_link.items():
        if checks:
            rows = (f"| [`{check.id}`]({check.id}.md) | {_plain(check.title)} |" for check in checks)
            below = ", ".join(sorted(one.value for one in STANDS_ON[link])) or "nothing"
            head = (
                f"# {link.value}",
                "",
                f"This link stands on {below}.",
                "",
                "| check | a healthy node |",
                "| --- | --- |",
            )
            pages[f"checks/{link.value}/index.md"] = "\n".join((*head, *rows)) + "\n"
    listed = (
        f"* [{link.value}]({link.value}/index.md): {len(checks)} checks" for link, checks in by_link.items() if checks
    )
    text = f"# Checks\n\nThe {len(registry)} checks in the order of the chain; `gpudoctor explain ID` prints the same texts.\n\n"
    return pages | {"checks/index.md": text + "\n".join(listed) + "\n"}


def _page(check: Check, links: Mapping[str, str]) -> Iterator[str]:
    needs = ", ".join(sorted(link.value for link in check.needs)) or "nothing"
    marks = [word for word, marked in (("essential", check.essential), ("isolates a GPU", check.isolates)) if marked]
    yield f"# {check.id}\n"
    yield f"**{_plain(check.title)}**\n"
    yield f"Link: [{check.link.value}](index.md). Asked over: {check.over.__name__ if check.over else 'the node'}. Presupposes: {needs}."
    yield f"This check is {' and '.join(marks)}.\n" if marks else ""
    yield f"{_plain(check.doc)}\n"
    if check.explained_by:
        yield "What it finds may be a consequence of: " + ", ".join(links[one] for one in check.explained_by) + ".\n"
    yield f"```sh\ngpudoctor run -v --check {check.id}\n```\n"


def _plain(text: str) -> str:
    """Words in which only code is marked up: brackets, angles and pipes stand for themselves."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\[\]<>|*_])", r"\\\1", part) for part in parts)


def main() -> None:
    """Write it into a new or empty directory."""
    place = Path(sys.argv[1])
    if place.exists() and any(place.iterdir()):
        sys.exit(f"{place} is not empty")
    for name, text in site().items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    images = REPOSITORY / "docs" / "images"
    if images.is_dir():
        shutil.copytree(images, place / "images")
    print(f"{len(site())} pages in {place}")


if __name__ == "__main__":
    main()
