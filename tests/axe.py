"""axe-core over a page in a real Chromium: what bars people from reading it, and whether it keeps within its width.

The page's policy forbids every script but its own, so a copy is opened whose policy also names axe and the script that runs it, by
their hashes; nothing else of the page is changed. Frames of the widths asked for hold the copy, and say what was found to the page
around them, which is printed.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.chromium import open_page
from tests.page_tree import tree

AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
WIDTHS = (380, 1280)
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"
HEIGHT = 900

_RUNNER = r"""
(async () => {
  const told = (rules) => rules.map(({ id, nodes }) => ({
    rule: id,
    places: nodes.map(({ target, failureSummary, any, all, none }) => ({
      target: target.join(" "),
      why: failureSummary || [...any, ...all, ...none].map((check) => check.message).join("; "),
    })),
  }));
  // Text of drawings, whose ground axe does not look for: a rectangle drawn before it, or the page.
  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = color.map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = ([r, g, b, alpha = 1], opacity, ground) => [r, g, b].map((one, place) => {
    const share = alpha * opacity;
    return one * share + ground[place] * (1 - share);
  });
  const page = numbers(getComputedStyle(document.body).backgroundColor);
  const pale = () => [...document.querySelectorAll("svg text")].flatMap((text) => {
    const { left, top, width, height } = text.getBoundingClientRect();
    if (!width) return [];
    const [x, y] = [left + width / 2, top + height / 2];
    let ground = page;
    for (const rect of text.ownerSVGElement.querySelectorAll("rect")) {
      const box = rect.getBoundingClientRect(), { fill, fillOpacity } = getComputedStyle(rect);
      const under = box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
      if (under && fill !== "none" && !(rect.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_PRECEDING)) {
        ground = over(numbers(fill), Number(fillOpacity), ground);
      }
    }
    return [text, ...text.querySelectorAll("tspan")].flatMap((one) => {
      const { fill, fillOpacity } = getComputedStyle(one);
      const [low, high] = [light(ground), light(over(numbers(fill), Number(fillOpacity), ground))].sort((a, b) => a - b);
      const ratio = (high + 0.05) / (low + 0.05);
      return ratio < 4.5 ? [one.textContent + ": " + ratio.toFixed(2)] : [];
    });
  });
  const look = async (folded) => {
    const wanted = { runOnly: RULES, resultTypes: ["violations", "incomplete"] };
    const { violations, incomplete, passes } = await axe.run(document, wanted);
    const { scrollWidth, clientWidth } = document.documentElement;
    const wide = scrollWidth - clientWidth;
    return { folded, violations: told(violations), incomplete: told(incomplete), passed: passes.length, wide, pale: pale() };
  };
  const said = { dark: matchMedia("(prefers-color-scheme: dark)").matches, width: innerWidth, looks: [] };
  try {
    said.looks.push(await look(true));
    for (const details of document.querySelectorAll("details")) details.open = true;
    said.looks.push(await look(false));
  } catch (error) {
    said.error = String(error.stack || error);
  }
  parent.postMessage(JSON.stringify(said), "*");
})();
"""

_AROUND = """<!doctype html><meta charset="utf-8"><title>around</title>
{frames}
<pre id="said"></pre>
<script>
const frames = [...document.querySelectorAll("iframe")], said = [];
addEventListener("message", ({{ data, source }}) => {{
  if (!frames.some((frame) => frame.contentWindow === source)) return;
  said.push(JSON.parse(data));
  document.getElementById("said").textContent = JSON.stringify(said);
}});
for (const frame of frames) frame.src = frame.dataset.src;
</script>
"""
_FRAME = '<iframe title="{width}" data-src="{src}" style="border:0;width:{width}px;height:{height}px"></iframe>'


class Place(Struct, frozen=True):
    """An element that breaks a rule, and how."""

    target: str
    why: str


class Broken(Struct, frozen=True):
    """A rule and the elements that break it, or of which axe cannot tell."""

    rule: str
    places: tuple[Place, ...]


class Look(Struct, frozen=True):
    """A page as it opens, or with everything unfolded.

    `wide` is by how many pixels it is wider than its window, `pale` what in its drawings has less than 4.5:1 against its ground.
    """

    folded: bool
    violations: tuple[Broken, ...]
    incomplete: tuple[Broken, ...]
    passed: int
    wide: int
    pale: tuple[str, ...]
    width: int
    dark: bool


def looks(page: Path, folder: Path, *, dark: bool, widths: Sequence[int] = WIDTHS) -> tuple[Look, ...]:
    """The page at each width, folded and unfolded, in one colour scheme; its console must stay silent."""
    copy = folder / f"{page.stem}-axe.html"
    copy.write_text(with_scripts(page.read_text("utf-8"), [AXE.read_text("utf-8"), _runner()]), "utf-8")
    frames = [_FRAME.format(width=width, height=HEIGHT, src=html.escape(copy.name)) for width in widths]
    around = folder / f"{page.stem}-around.html"
    around.write_text(_AROUND.format(frames="\n".join(frames)), "utf-8")
    arguments = [DARK if dark else LIGHT, "--virtual-time-budget=600000", f"--window-size={max(widths) + 40},1000"]
    document, console = open_page(around, folder / "profile", *arguments)
    assert console == [], console
    said = json.loads(tree(document).by_id("said").text or "[]")
    assert [one for one in said if "error" in one] == []
    assert sorted((one["width"], one["dark"]) for one in said) == sorted((width, dark) for width in widths)
    return tuple(_look(look, one) for one in said for look in one["looks"])


def with_scripts(page: str, scripts: Sequence[str]) -> str:
    """The page with more scripts at its end, and with a policy that admits them."""
    hashes = " ".join(f"'sha256-{digest(script)}'" for script in scripts)
    admitted, policies = re.subn(r"script-src (?=&#39;)", lambda found: found[0] + html.escape(hashes) + " ", page)
    assert policies == 1, "a page of ours has one policy, which names its script"
    before, end, after = admitted.rpartition("</body>")
    assert end
    return before + "".join(f"<script>{script}</script>" for script in scripts) + end + after


def _look(look: dict[str, Any], of: dict[str, Any]) -> Look:
    violations, incomplete = (
        tuple(Broken(rule["rule"], tuple(Place(**place) for place in rule["places"])) for rule in look[kind])
        for kind in ("violations", "incomplete")
    )
    return Look(
        look["folded"],
        violations,
        incomplete,
        look["passed"],
        look["wide"],
        tuple(look["pale"]),
        of["width"],
        of["dark"],
    )


def _runner() -> str:
    return _RUNNER.replace("RULES", json.dumps(RULES))


def digest(text: str) -> str:
    """As a policy names a script or a style sheet."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
