"""The program of the process that reads one PDF file, with limits of memory and time. It may be killed at any time.

In: the bytes of the file, until the input ends. Out: a line of JSON {"text": t, "pages": n, "empty": n}, where `empty`
counts pages without text, or {"fault": text}. Arguments: the most bytes of memory, pages and characters.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

from twostroke.system import here

NICENESS = 5


def read(data: bytes, most_pages: int, most_characters: int) -> dict[str, Any]:
    """Returns the text of all pages, with an empty line between two of them."""
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        return {"fault": "it is locked with a password"}
    count = len(reader.pages)
    if count > most_pages:
        return {"fault": f"it has {count:,} pages, and {most_pages:,} are read at most"}
    pages, length = [], 0
    for page in reader.pages:
        pages.append(page.extract_text().strip())
        length += len(pages[-1])
        if length > most_characters:
            return {"fault": f"its text has more than {most_characters:,} characters"}
    return {"text": "\n\n".join(filter(None, pages)), "pages": count, "empty": pages.count("")}


def main() -> None:
    """Reads the PDF from standard input, writes its text as JSON to standard output, and ends the process."""
    import pypdf

    logging.getLogger(pypdf.__name__).setLevel(logging.CRITICAL)
    here.stand_back(NICENESS)
    memory_bytes, most_pages, most_characters = map(int, sys.argv[1:])
    try:
        here.limit_memory(memory_bytes)
        here.write_no_files()
    except OSError as error:
        print(json.dumps({"fault": f"the system does not let its process limit itself ({error.strerror})"}), flush=True)
        return
    try:
        found = read(sys.stdin.buffer.read(), most_pages, most_characters)
    except MemoryError:
        found = {"fault": "it takes too much memory"}
    except RecursionError:
        found = {"fault": "it is nested too deeply"}
    except Exception as error:  # pypdf raises any exception for broken files
        found = {"fault": f"{error}".splitlines()[0][:200] if f"{error}" else type(error).__name__}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
