"""How processes dial quorum nodes: addresses, TLS, and settings of every channel and server."""

from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

MAX_MESSAGE_BYTES = 128 << 20

_COMMON = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
CHANNEL_OPTIONS = (
    *_COMMON,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Each link is its own connection, so that one that is cut does not take others with it.
    ("grpc.use_local_subchannel_pool", 1),
    # Addresses are of our own processes: a proxy of the environment has no business between them.
    ("grpc.enable_http_proxy", 0),
)
SERVER_OPTIONS = (
    *_COMMON,
    # By default two servers may share one port without a word, and calls go to either.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates: each side shows its own and checks the other's against the authority."""

    certificate: Path
    key: Path
    authority: Path

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a server that takes only clients whose certificate the authority signed."""
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.certificate.read_bytes())],
            root_certificates=self.authority.read_bytes(),
            require_client_auth=True,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For dialling such a server."""
        return grpc.ssl_channel_credentials(
            root_certificates=self.authority.read_bytes(),
            private_key=self.key.read_bytes(),
            certificate_chain=self.certificate.read_bytes(),
        )


@dataclass(frozen=True, slots=True)
class Dial:
    """One address, and how to speak to it."""

    address: str
    tls: Tls | None = None

    def channel(self) -> grpc.aio.Channel:
        """A new channel."""
        if self.tls is None:
            return grpc.aio.insecure_channel(self.address, options=CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(self.address, self.tls.channel_credentials(), options=CHANNEL_OPTIONS)
