#!/usr/bin/env python3
"""Fails if a page links to a file or a heading that does not exist, or names a file of the project that does not exist."""
import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
FOLDERS = "src|tests|docs|bench|tools|examples|program|tool|python"
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(rf"(?<![\w/.])((?:{FOLDERS})/[\w./-]*\.(?:md|hpp|cpp|cuh|cu|py|sh|json))\b")


def anchors(page):
    headings = re.findall(r"^#+ +(.*)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


errors = []
pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
for page in pages:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (heading and target.suffix == ".md" and heading not in anchors(target)):
            errors.append(f"{page.relative_to(ROOT)}: no {link}")
    errors += [f"{page.relative_to(ROOT)}: no {name}" for name in NAMED.findall(text) if not (ROOT / name).exists()]
if len(pages) < 10:
    errors.append(f"only {len(pages)} pages found")
print("\n".join(errors) or f"{len(pages)} pages")
sys.exit(bool(errors))
