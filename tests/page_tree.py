"""A page read by the standard library's parser, which knows nothing of how it was written."""

from collections.abc import Iterator
from html.parser import HTMLParser

VOID = {"br", "img", "input", "link", "meta"}
"""Elements that have no end tag, as far as pages here have them (HTML Standard, "Void elements")."""


class Element:
    """An element, its attributes and what is in it."""

    def __init__(self, tag: str, attributes: dict[str, str], above: "Element | None") -> None:
        self.tag = tag
        self.attributes = attributes
        self.above = above
        self.inside: list[Element | str] = []

    @property
    def text(self) -> str:
        """All text in it, scripts' and style sheets' too."""
        return "".join(one if isinstance(one, str) else one.text for one in self.inside)

    @property
    def words(self) -> str:
        """Its text with white space as a browser shows it."""
        return " ".join(self.text.split())

    @property
    def classes(self) -> set[str]:
        """Its classes."""
        return set(self.attributes.get("class", "").split())

    def walk(self) -> "Iterator[Element]":
        """Itself and every element in it, in their order."""
        yield self
        for one in self.inside:
            if isinstance(one, Element):
                yield from one.walk()

    def all(self, tag: str = "", class_: str = "") -> "list[Element]":
        """The elements of that tag and class in it."""
        return [one for one in self.walk() if tag in ("", one.tag) and (not class_ or class_ in one.classes)]

    def by_id(self, identity: str) -> "Element":
        """The one element with that id. Raises ValueError."""
        (one,) = (one for one in self.walk() if one.attributes.get("id") == identity)
        return one

    def within(self, tag: str) -> bool:
        """Whether an element of that tag is around it."""
        return self.above is not None and (self.above.tag == tag or self.above.within(tag))

    @property
    def hidden(self) -> bool:
        """Whether it, or an element around it, is hidden."""
        return "hidden" in self.attributes or (self.above is not None and self.above.hidden)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.top = Element("", {}, None)
        self.here = self.top

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> names an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs}, self.here)
        self.here.inside.append(element)
        if tag not in VOID:
            self.here = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.here.tag == tag, f"</{tag}> ends <{self.here.tag} {self.here.attributes}>"
        assert self.here.above is not None
        self.here = self.here.above

    def handle_data(self, data: str) -> None:
        self.here.inside.append(data)


def tree(page: str) -> Element:
    """The page as a tree; every element must be ended by its own end tag."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.here is reader.top, f"<{reader.here.tag}> is never ended"
    return reader.top
