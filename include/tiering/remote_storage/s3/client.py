"""One boto3 client, set up for large objects that carry their own checksum.

setting                                  why
request_checksum_calculation             botocore would read every body once more for a CRC-32; ours is CRC-32C
payload_signing_enabled False            over plain http botocore would read it for a SHA-256 too; what is sent is
                                         proved by the checksum header, which is signed. Use https where the
                                         network is not trusted: over http anybody on the way can read, too
no Expect: 100-continue                  one more round trip per object
path style for an own endpoint           bucket.host is resolved nowhere but at AWS
standard retries, bounded                a body rewinds, is charged again, and the whole thing ends
no validation of parameters              every argument is built here, and typed; it is 3 % of a small request
classic client, never CRT                CRT ignores an own endpoint, and takes no paced body
a fixed User-Agent                       botocore would compose it anew for every request: a tenth of a small one
"""

from urllib.parse import urlsplit

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from include.tiering.errors import SettingError
from include.tiering.remote_storage.credentials import S3Credentials

DEFAULT_REGION = "us-east-1"
USER_AGENT = f"kafka-tiering-operations boto3/{boto3.__version__}"


def s3_client(
    *, endpoint_url: str | None, region: str | None, credentials: S3Credentials | None, max_attempts: int
) -> BaseClient:
    """Without `credentials` they come from boto3's ordinary chain: environment, profile, instance.

    Raises:
        SettingError: an endpoint that is no http(s) URL, or that holds credentials; a region that is none; a profile
            or an AWS configuration that cannot be used.
    """
    if endpoint_url is not None:
        _check_endpoint(endpoint_url)
    try:
        return _client_of(endpoint_url, region, credentials, max_attempts)
    except (BotoCoreError, ValueError) as error:
        raise SettingError(
            f"S3 cannot be used as it is set ({type(error).__name__}): check remote_storage.endpoint_url,"
            " remote_storage.region, AWS_PROFILE, AWS_REGION and the AWS configuration file"
        ) from error


def _client_of(
    endpoint_url: str | None, region: str | None, credentials: S3Credentials | None, max_attempts: int
) -> BaseClient:
    session = boto3.session.Session() if credentials is None else _session_of(credentials)
    client = session.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=region or session.region_name or DEFAULT_REGION,
        config=Config(
            signature_version="s3v4",
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            retries={"mode": "standard", "total_max_attempts": max_attempts},
            parameter_validation=False,
            connect_timeout=10,
            read_timeout=60,
            tcp_keepalive=True,
            user_agent=USER_AGENT,
            s3={
                "payload_signing_enabled": False,
                "addressing_style": "auto" if endpoint_url is None else "path",
            },
        ),
    )
    client.meta.events.register_last("before-call.s3", _drop_expect)
    return client


def _session_of(credentials: S3Credentials) -> boto3.session.Session:
    return boto3.session.Session(
        aws_access_key_id=credentials.access_key_id,
        aws_secret_access_key=credentials.secret_access_key,
        aws_session_token=credentials.session_token,
    )


def _drop_expect(params: dict[str, dict[str, str]], **_: object) -> None:
    """An event handler; botocore takes anything but None for the reply itself."""
    params["headers"].pop("Expect", None)


def _check_endpoint(endpoint_url: str) -> None:
    try:
        parts = urlsplit(endpoint_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        has_credentials = "@" in parts.netloc
    except ValueError:
        usable, has_credentials = False, False
    if has_credentials:
        raise SettingError("remote_storage.endpoint_url holds credentials: give them through the environment instead")
    if not usable:
        raise SettingError("remote_storage.endpoint_url must be http://host[:port] or https://host[:port]")
