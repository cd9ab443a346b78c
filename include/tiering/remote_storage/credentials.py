"""Static S3 credentials, for deployments that do not use the SDK's own chain."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Never printed: only the access key's id shows in `repr`."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
