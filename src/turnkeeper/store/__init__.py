"""The waist: rows below, meaning above. Start with `backend.py`, then `overlay.py`, `transaction.py`, `engine.py`."""
