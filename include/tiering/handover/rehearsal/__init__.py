"""A handover rehearsed on a throw-away broker."""
