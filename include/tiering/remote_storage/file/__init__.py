"""Objects as files below one directory."""
