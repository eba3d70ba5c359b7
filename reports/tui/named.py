"""What a file is that somebody named: a saved report, or something that a run must look at first."""

HEAD = 4096


def is_report(place: str) -> bool:
    """By content: JSON of one of our schemas, or a page. What else there is, is for `gpudoctor run --node` to recognise."""
    try:
        with open(place, "rb") as file:
            head = file.read(HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return False
    if head.startswith(b"{"):
        return b'"gpudoctor.' in head
    return head[:9].lower() == b"<!doctype" or head[:5].lower() == b"<html"
