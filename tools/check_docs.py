#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the links of the Markdown files: each names a file that is there, and [`text`](file#L12) a line that contains `text`.

Usage: tools/check_docs.py [--fix] [ROOT]     --fix moves line numbers to where the text is now.
"""
import pathlib
import re
import sys

LINK = re.compile(r"\[(?P<label>[^\]]*)\]\((?P<target>[^)#\s]+)(?:#L(?P<line>\d+))?\)")


def find_line(lines, text):
    return next((number for number, line in enumerate(lines, 1) if text in line), None)


def check_link(page, match, fix):
    """Returns (replacement, complaint)."""
    target = page.parent / match["target"]
    if "://" in match["target"]:
        return match[0], None
    if not target.exists():
        return match[0], f"{match['target']} is not there"
    if match["line"] is None:
        return match[0], None
    text = match["label"].strip("`")
    lines = target.read_text(encoding="utf-8").splitlines()
    line = int(match["line"])
    if line <= len(lines) and text in lines[line - 1]:
        return match[0], None
    found = find_line(lines, text)
    if fix and found:
        return f"[{match['label']}]({match['target']}#L{found})", None
    return match[0], f"line {line} of {match['target']} does not contain {text!r}"


def main():
    fix = "--fix" in sys.argv
    roots = [a for a in sys.argv[1:] if a != "--fix"]
    root = pathlib.Path(roots[0] if roots else pathlib.Path(__file__).parent.parent)
    pages = [p for p in sorted(root.rglob("*.md")) if not {"build", ".git"} & set(p.relative_to(root).parts)]
    complaints = 0
    links = 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        out = []
        at = 0
        for match in LINK.finditer(text):
            replacement, complaint = check_link(page, match, fix)
            links += 1
            if complaint:
                complaints += 1
                print(f"{page.relative_to(root)}: {complaint}")
            out += [text[at:match.start()], replacement]
            at = match.end()
        new = "".join(out) + text[at:]
        if new != text:
            page.write_text(new, encoding="utf-8")
    if complaints == 0:
        print(f"docs: {links} links in {len(pages)} pages, all good")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
