"""The report as one HTML page that needs nothing else: no request, no script to be read, the whole report inside as JSON."""

from gpudoctor.report import Report


def render(report: Report) -> str:
    """The page, in ASCII, so that no encoding on its way can spoil it."""
    from gpudoctor.reports.html.page import page  # jinja2 comes with it: reading a page back does without

    return page(report)
