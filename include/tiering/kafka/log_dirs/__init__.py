"""Reading files that belong to a running broker: their names, and opening them without harm to either side."""
