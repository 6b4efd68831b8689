"""Streams of a pod by the official Python client: one message of any size, pieces, a terminal, a port.

Arguments: kubeconfig, pod that repeats its input, pod with a terminal (or nothing), port with an echo server, size in MiB of
what goes in pieces.
"""

import hashlib
import io
import json
import select
import ssl
import sys
import tarfile
import time

import kubernetes
import websocket
from kubernetes import client, config
from kubernetes.stream import portforward, stream

MIB = 1 << 20
# A message is a frame here; its first byte names the channel.
LONGEST = 32 * MIB - 1
# Nothing takes so long.
GUARD = 100


def main():
    kubeconfig, shell, terminal, port, size = sys.argv[1:]
    config.load_kube_config(kubeconfig)
    session = execute(shell, "true")
    protocol = session.sock.getheaders()["sec-websocket-protocol"]
    session.close()
    print("kubernetes", kubernetes.__version__, "websocket-client", websocket.__version__, protocol)
    steps = [
        ("the longest message", lambda: one_message(shell, LONGEST)),
        ("one message of 40 MiB", lambda: too_long(shell, 40 * MIB)),
        ("40 MiB in pieces", lambda: pieces(shell, 40 * MIB, MIB)),
        ("%s MiB in pieces" % size, lambda: pieces(shell, int(size) * MIB, 256 << 10)),
        ("an archive in one message", lambda: archive(shell)),
        ("a container that is attached", lambda: attached(shell)),
        ("a terminal", lambda: resized(shell, terminal)),
        ("a port", lambda: forwarded(shell, int(port))),
    ]
    for name, step in steps:
        begin = time.monotonic()
        said = step()
        print("%s: %.2f s%s" % (name, time.monotonic() - begin, "; %s" % said if said else ""), flush=True)


def connect(method, pod, **options):
    # A client of its own: `stream` replaces how the client sends requests.
    api = client.CoreV1Api(client.ApiClient())
    settings = {"stderr": True, "stdin": True, "stdout": True, "tty": False, "_preload_content": False}
    settings.update(options)
    return stream(getattr(api, method), pod, "default", **settings)


def message_comes(socket):
    """Waits for a message. TLS may have read it already, in one record with an earlier message. Then the socket stays silent, and `update`
    of the client, which looks at the socket only, would wait for ever."""
    pending = getattr(socket.sock, "pending", lambda: 0)
    return pending() or select.select([socket.sock], [], [], GUARD)[0]


def execute(pod, script):
    return connect("connect_get_namespaced_pod_exec", pod, command=["sh", "-c", script], container="main")


def content(size):
    block = bytes(range(256)) * 257
    return (block * (size // len(block) + 1))[:size]


def result(session):
    """What the command printed. It must succeed."""
    session.run_forever(timeout=GUARD)
    printed, complaint = session.read_channel(1), session.read_channel(2)
    assert not session.is_open(), "the command hangs after %r %r" % (printed, complaint)
    # The status of the command, which `returncode` parses.
    assert session.returncode == 0, (session.returncode, printed, complaint)
    return printed


def counted(size):
    """Reads so many bytes: the older protocol has no end of input."""
    return "head -c %d | sha256sum" % size


def check(session, data):
    assert result(session).split()[0] == hashlib.sha256(data).hexdigest()


def one_message(pod, size):
    data = content(size)
    session = execute(pod, counted(size))
    session.write_stdin(data)
    check(session, data)


def too_long(pod, size):
    """How the server refuses it: by a close frame, or without one."""
    session = execute(pod, counted(size))
    socket = session.sock
    heard = []
    try:
        session.write_stdin(content(size))
    except (OSError, websocket.WebSocketException) as error:
        heard.append(type(error).__name__)
    try:
        while True:
            assert message_comes(socket), "the server neither takes nor refuses the message"
            kind, frame = socket.recv_data_frame(True)
            if kind == websocket.ABNF.OPCODE_CLOSE:
                heard.append("close %d" % int.from_bytes(frame.data[:2], "big"))
                break
            # The empty message that says that the connection stands.
            assert len(frame.data) == 1, frame.data
    except (OSError, ssl.SSLError, websocket.WebSocketException) as error:
        heard.append(type(error).__name__)
    return ", ".join(heard)


def pieces(pod, size, piece):
    data = content(size)
    session = execute(pod, counted(size))
    for place in range(0, size, piece):
        session.write_stdin(data[place:place + piece])
    check(session, data)


def archive(pod):
    """As the client's documentation copies files: an archive as the input of `tar`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for number in range(300):
            member = tarfile.TarInfo("file-%d" % number)
            member.size = 20_000
            tar.addfile(member, io.BytesIO(content(member.size)))
    data = buffer.getvalue()
    # Some `tar` reads on after the end of the archive.
    script = "d=$(mktemp -d) && cd $d && head -c %d | tar xf - && cat file-* | sha256sum && ls | wc -l; rm -r $d"
    session = execute(pod, script % len(data))
    session.write_stdin(data)
    digest, _, count = result(session).split()
    assert count == "300", count
    assert digest == hashlib.sha256(content(20_000) * 300).hexdigest(), digest


def attached(pod):
    session = connect("connect_get_namespaced_pod_attach", pod, container="main")
    session.write_stdin("hello-python\n")
    seen = b""
    while b"got hello-python" not in seen:
        assert message_comes(session.sock), "no answer in %r" % seen
        kind, frame = session.sock.recv_data_frame(True)
        assert kind != websocket.ABNF.OPCODE_CLOSE, "closed after %r" % seen
        if frame.data[:1] == b"\x01":
            seen += frame.data[1:]
    session.close()


def resized(shell, terminal):
    """A container with a terminal is attached. Where there is none, a command gets one."""
    options = {"tty": True, "stderr": False, "container": "main"}
    if terminal:
        session = connect("connect_get_namespaced_pod_attach", terminal, **options)
    else:
        session = connect("connect_get_namespaced_pod_exec", shell, command=["sh"], **options)
    seen = ""
    for height, width in [(37, 101), (50, 132)]:
        session.write_channel(4, json.dumps({"Height": height, "Width": width}))
        deadline = time.monotonic() + GUARD
        wanted = "%d %d" % (height, width)
        # The size comes with a message of its own, so it is asked for until it is there.
        while wanted not in seen:
            assert time.monotonic() < deadline and session.is_open(), "no %r in %r" % (wanted, seen)
            session.write_stdin("stty size\n")
            session.update(timeout=1)
            seen += session.read_channel(1)
    session.close()


def forwarded(pod, port):
    api = client.CoreV1Api(client.ApiClient())
    forward = portforward(api.connect_get_namespaced_pod_portforward, pod, "default", ports=str(port))
    connection = forward.socket(port)
    # An older client may keep the last bytes until more come: it looks at the socket, and misses what TLS holds already.
    connection.settimeout(0.2)
    sent = bytearray()
    received = bytearray()
    deadline = time.monotonic() + GUARD
    for piece in [content(100_000)] * 30:
        connection.sendall(piece)
        sent += piece
        while len(received) < len(sent):
            try:
                read = connection.recv(1 << 20)
            except TimeoutError:
                assert time.monotonic() < deadline, (len(sent), len(received))
                connection.sendall(b"\0")
                sent += b"\0"
                continue
            assert read, (len(received), forward.error(port))
            received += read
    assert received == sent
    connection.close()


main()
