"""An object store in files below one directory, and its listing."""
