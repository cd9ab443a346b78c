"""SCRAM against the example of RFC 7677, and against servers that do not know the password."""

import pytest

from include.tiering.errors import BrokersLoginError
from include.tiering.kafka.protocol.login import Scram

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


PASSWORD = "pencil"


def _scram(password: str = PASSWORD, username: str = "user") -> Scram:
    return Scram("SCRAM-SHA-256", username, password, NONCE)


def test_the_example_of_the_rfc() -> None:
    scram = _scram()
    assert scram.first() == b"n,,n=user,r=" + NONCE.encode()
    assert scram.final(SERVER_FIRST) == CLIENT_FINAL
    scram.check(SERVER_FINAL)


def test_a_user_with_the_marks_of_the_protocol_is_escaped() -> None:
    assert _scram(username="a=b,c").first() == b"n,,n=a=3Db=2Cc,r=" + NONCE.encode()


def test_another_password_gives_another_proof_and_refuses_the_server() -> None:
    scram = _scram("pen")
    assert scram.final(SERVER_FIRST) != CLIENT_FINAL
    with pytest.raises(BrokersLoginError, match="does not prove that it knows the password"):
        scram.check(SERVER_FINAL)


def test_a_server_that_skips_the_exchange_proves_nothing() -> None:
    with pytest.raises(BrokersLoginError, match="does not prove"):
        _scram().check(b"v=")


@pytest.mark.parametrize(
    "server_first",
    [
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z!,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1000001",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=" + b"9" * 5000,
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-1",
        b"\xff\xfe",
        b"",
    ],
)
def test_what_no_honest_server_says_is_refused(server_first: bytes) -> None:
    with pytest.raises(BrokersLoginError, match="SCRAM") as caught:
        _scram().final(server_first)
    assert PASSWORD not in str(caught.value)
