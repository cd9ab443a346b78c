"""Objects in S3. The package itself imports no boto3: here are the static credentials, for deployments that do not use
the SDK's own chain.
"""

from dataclasses import dataclass, field

from include.tiering.errors import SettingError
from include.tiering.settings import RemoteStorageSettings


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Never printed: only the access key's id shows in `repr`."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def credentials_of(remote: RemoteStorageSettings) -> S3Credentials | None:
    """Those that the settings name; None leaves it to the SDK's own chain.

    Raises:
        SettingError: only one half is set.
    """
    if remote.access_key_id is None and remote.secret_access_key is None:
        return None
    if remote.access_key_id is None or remote.secret_access_key is None:
        raise SettingError("remote_storage.access_key_id and remote_storage.secret_access_key go together")
    token = remote.session_token.get_secret_value() if remote.session_token is not None else None
    return S3Credentials(remote.access_key_id, remote.secret_access_key.get_secret_value(), token)
