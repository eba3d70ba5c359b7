"""What another driver or other GPUs would change for what is on a node and for what was asked."""

from collections.abc import Iterator, Sequence

from gpudoctor.compat import Answer, Changed, FrameworkAnswer, Host, How, ImageAnswer, WhatIf
from gpudoctor.compatibility.asked import judge_framework, judge_image
from gpudoctor.compatibility.containers import judged
from gpudoctor.compatibility.judging import judge_cuda
from gpudoctor.compatibility.node import Seen


def what_if(
    seen: Seen, hosts: tuple[Host, Host], cuda: Sequence[str], images: Sequence[str], frameworks: Sequence[str]
) -> WhatIf:
    """What changes from the first host to the second."""
    before, after = hosts
    pairs = [*_on_the_node(seen, before, after), *_asked(before, after, cuda, images, frameworks)]
    changed = tuple(one for one in pairs if one.before != one.after)
    return WhatIf(before, changed, len(pairs) - len(changed))


def _on_the_node(seen: Seen, before: Host, after: Host) -> Iterator[Changed]:
    for toolkit in seen.toolkits.toolkits if seen.toolkits is not None else ():
        what = f"CUDA {toolkit.version} in {toolkit.path}"
        yield _cuda("toolkit", what, judge_cuda(toolkit.version, before), judge_cuda(toolkit.version, after))
    for container in seen.containers:
        one, other = judged(container, before), judged(container, after)
        if one.answer is not None and other.answer is not None:
            yield _cuda("container", f"{one.title}: CUDA {one.runtime}", one.answer, other.answer)
        if one.image is not None and other.image is not None:
            yield _image("requirement", f"{one.title}: what its image demands", one.image, other.image)


def _asked(
    before: Host, after: Host, cuda: Sequence[str], images: Sequence[str], frameworks: Sequence[str]
) -> Iterator[Changed]:
    for version in cuda:
        yield _cuda("cuda", f"CUDA {version}", judge_cuda(version, before), judge_cuda(version, after))
    for text in images:
        yield _image("image", text, judge_image(text, before), judge_image(text, after))
    for word in frameworks:
        yield from _framework(judge_framework(word, before), judge_framework(word, after))


def _framework(before: Sequence[FrameworkAnswer], after: Sequence[FrameworkAnswer]) -> Iterator[Changed]:
    known = {(one.version, wheel.cuda): wheel for one in before for wheel in one.wheels}
    for one in after:
        for wheel in one.wheels:
            if (old := known.get((one.version, wheel.cuda))) is not None:
                what = f"{one.framework} {one.version} for CUDA {wheel.cuda}"
                yield Changed("framework", what, old.how.value, wheel.how.value, wheel.why)


def _cuda(kind: str, what: str, before: Answer, after: Answer) -> Changed:
    return Changed(kind, what, _in_words(before), _in_words(after), after.why)


def _in_words(answer: Answer) -> str:
    """How it runs, with the limits that are not those of minor-version compatibility itself."""
    own = answer.limits if answer.how is not How.MINOR_VERSION else answer.limits[2:]
    return "; ".join((answer.how.value, *own)) if answer.how not in (How.NO, How.UNKNOWN) else answer.how.value


def _image(kind: str, what: str, before: ImageAnswer, after: ImageAnswer) -> Changed:
    return Changed(kind, what, before.outcome.value, after.outcome.value, after.why)
