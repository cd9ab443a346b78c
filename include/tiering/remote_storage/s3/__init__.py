"""An object store in an S3 bucket, and its listing."""
