"""Write the guide's page on data layouts."""

from tests.support.layouts import PAGE, page

PAGE.parent.mkdir(parents=True, exist_ok=True)
PAGE.write_text(page(), encoding="utf-8", newline="\n")
