"""The lock under which names of transformers are imported.

transformers imports its modules when a name of them is first asked for. Where two threads are first at once, each can
wait for a module that the other has begun, and Python hands out one that is not complete: "cannot import name
'AutoTokenizer' from 'transformers'".
"""

from __future__ import annotations

import threading

IMPORT_LOCK = threading.RLock()
"""Held by a thread while it imports names of transformers."""
