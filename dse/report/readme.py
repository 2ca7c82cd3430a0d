"""The report as Markdown, for pull requests and repositories."""

from collections.abc import Iterator

from dse.report.content import Content
from dse.report.section import Section
from dse.report.tables import markdown

__all__ = ["readme"]


def readme(found: Content, *, pictures: str = "svg") -> str:
    """The report in GitHub Markdown; `pictures` is the ending of its pictures, empty for none."""
    blocks = [
        *_head(found),
        *(block for each in found.sections for block in _section(each, pictures)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(found: Content) -> Iterator[str]:
    yield f"# {found.question}"
    yield f"`{found.name}` · {found.eyebrow}"
    best = found.answer
    if best.feasible:
        yield best.title
    yield f"**{best.headline}**" if best.feasible else f"**Nothing is feasible.** {best.headline}"
    if best.unproved:
        yield f"> {best.unproved}"
    if best.launch:
        yield f"To launch it: `{best.launch}`"
    if best.facts:
        lines = (f"| {fact.title} | {fact.value} {fact.unit}{fact.aside} |" for fact in best.facts)
        yield "\n".join(["| | |", "|:--|--:|", *lines])
    for title, items in best.reasons:
        if items:
            yield f"**{title}**\n\n" + "\n".join(f"- {item}" for item in items)
    for alert in found.alerts:
        yield f"> {alert}"


def _section(section: Section, pictures: str) -> Iterator[str]:
    yield f"## {section.title}"
    yield from section.lines
    yield from (markdown(each) for each in section.lead)
    for each in section.charts:
        if each.title:
            yield f"### {each.title}"
        if pictures:
            yield f"![{each.alt}]({each.name}.{pictures})"
        yield each.caption
    yield from (markdown(each) for each in section.tables)
    for title, pairs in section.lists:
        if pairs:
            yield f"### {title}" if title else ""
            yield "\n".join(f"- **{term}**: {text}" for term, text in pairs)
    if section.command:
        yield f"```sh\n{section.command}\n```"
